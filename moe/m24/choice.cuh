// Which kernel a call takes.
#pragma once

#include "fused_moe.cuh"

namespace kb::step {

// The kernels, by the routes that an expert has on average, M topk / E: few tokens stay resident
// and each CTA looks for them; of many, lists are made.
enum class Kernel { kResident16, kResident32, kLists64, kLists80, kLists144 };
struct Choice {
  double most_routes;
  Kernel kernel;
};
inline constexpr Choice kChoices[] = {
    {2.5, Kernel::kResident16},
    {17, Kernel::kResident32},
    {40, Kernel::kLists64},
    {72, Kernel::kLists80},
};

inline Kernel kernel_for(const FusedMoeCall& call) {
  const double routes = double(call.m) * call.topk / call.e;
  for (const Choice& choice : kChoices) {
    if (routes <= choice.most_routes) return choice.kernel;
  }
  return Kernel::kLists144;
}

inline bool makes_lists(Kernel kernel) {
  return kernel != Kernel::kResident16 && kernel != Kernel::kResident32;
}

// Calls `enqueue` with the tokens of the kernel's items.
template <typename Enqueue>
void with_kernel(Kernel kernel, Enqueue enqueue) {
  switch (kernel) {
    case Kernel::kResident16:
      return enqueue.template resident<16>();
    case Kernel::kResident32:
      return enqueue.template resident<32>();
    case Kernel::kLists64:
      return enqueue.template lists<64>();
    case Kernel::kLists80:
      return enqueue.template lists<80>();
    case Kernel::kLists144:
      return enqueue.template lists<144>();
  }
}

}  // namespace kb::step
