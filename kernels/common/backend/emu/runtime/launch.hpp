// What the scheduler asks of the launch that it is part of.
#pragma once

#include <memory>

#include "core.hpp"
#include "rt.cuh"
#include "runner.hpp"

namespace kb::emu {

// A grid of translated PTX.
struct TranslatedGrid {
  rt::LaunchConfig config;
  std::function<void()> body;
  CtaIndex extent;  // of a cluster
  CtaIndex block;
  const void* kernel = nullptr;
  StreamOperation* operation = nullptr;
};
// The CTAs of others beside its own, all of them resident.
void launch(const TranslatedGrid& grid, const std::vector<TranslatedGrid>& others);
// OS threads that run clusters.
uint32_t os_threads_running();
// Mapping stacks takes longer than a small launch: those of earlier launches are used again.
std::unique_ptr<Resources> resources_for(uint32_t threads, uint32_t ctas);
void give_back(std::unique_ptr<Resources> resources);

}  // namespace kb::emu
