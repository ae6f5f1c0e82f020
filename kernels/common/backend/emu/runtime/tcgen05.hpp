// What tcgen05.mma, cp and commit share (PTX ISA 9.1, 9.7.16): one thread issues them, they execute
// in order.
#pragma once

#include <memory>
#include <utility>

#include "one_lane.hpp"
#include "tmem.hpp"

namespace kb::emu {

// A finding that ends the launch if the CTA, which the operation would act in, has exited.
void check_alive(const Cta& cta, Pc pc, const char* what);

// The operation as an actor; when not checking, only its place.
AsyncActor tensor_actor(Pc pc, const char* what);

// Executes the operation behind the earlier ones of the running warp.
template <typename Operation>
void start(Pc pc, Operation operation) {
  if (!checking()) {
    operation.execute();
    return;
  }
  submit_in_order(Pipe::kTensor, pc,
                  [kept = std::make_shared<Operation>(std::move(operation))] { kept->execute(); });
}

}  // namespace kb::emu
