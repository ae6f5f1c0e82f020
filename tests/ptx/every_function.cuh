// Shared by the files that call every function of the ptx layer. One kernel for each function,
// named after it (a suffix behind two underscores where one kernel will not do), calls every
// overload with every tag. The kernels are compiled and their PTX is read; they never run.
#pragma once

#include "kb.cuh"
#include "ptx/types.cuh"

namespace ptx = kb::ptx;

struct Arguments {
  kb::Mbarrier* bar;
  kb::ClusterAddress<kb::Mbarrier> remote_bar;
  kb::ClusterAddress<uint32_t> remote_word;
  kb::TensorMap* map;
  kb::TensorMap* other_map;
  kb::ClcResponse* response;
  kb::CachePolicy policy;
  kb::ClusterMask mask;
  void* shared;
  void* global;
  float* sums;
  uint32_t* out;
  uint64_t a, b;
  uint32_t u, v, w;
  int32_t x, y, z;
  float f, g;
};

#define EVERY(name) \
  extern "C" KB_GLOBAL void KB_LAUNCH_BOUNDS(128, 1) name(KB_GRID_CONSTANT(Arguments) a)
