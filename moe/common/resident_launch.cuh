// Launches of kernels whose CTAs wait for each other, so that all of them have to be resident.
#pragma once

#include "fused_moe.cuh"
#include "rt.cuh"

namespace kb {

// What a kernel's arguments say of the call itself; the others are zero.
template <typename Arguments>
Arguments arguments_of(const FusedMoeCall& call) {
  Arguments args{};
  args.hidden = call.hidden;
  args.gating = call.gating;
  args.output = call.output;
  args.m = static_cast<uint32_t>(call.m);
  args.n = static_cast<uint32_t>(call.n);
  args.k = static_cast<uint32_t>(call.k);
  args.experts = static_cast<uint32_t>(call.e);
  args.topk = static_cast<uint32_t>(call.topk);
  args.renormalize = call.renormalize != 0;
  args.softcap = call.softcap;
  return args;
}

// `Shared`: the kernel's shared memory.
template <typename Shared, typename Kernel, typename Arguments>
void launch_resident(Kernel kernel, uint32_t ctas, uint32_t threads, rt::Stream stream,
                     const Arguments& args) {
  rt::launch(kernel,
             {.grid = {ctas, 1, 1},
              .threads = threads,
              .shared_bytes = sizeof(Shared),
              .stream = stream,
              .cooperative = true},
             args);
}

}  // namespace kb
