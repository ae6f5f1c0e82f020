// CUTLASS's example 77 for Blackwell: attention whose warps load, multiply, take the softmax of two
// tiles, correct sums in tensor memory and store; all keys, and causal by a persistent kernel.
#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/kernel_hardware_info.h"
//
#include "77_blackwell_fmha/collective/fmha_fusion.hpp"
#include "77_blackwell_fmha/collective/sm100_fmha_fwd_epilogue_tma_warpspecialized.hpp"
#include "77_blackwell_fmha/collective/sm100_fmha_fwd_mainloop_tma_warpspecialized.hpp"
#include "77_blackwell_fmha/device/fmha.hpp"
#include "77_blackwell_fmha/kernel/fmha_options.hpp"
#include "77_blackwell_fmha/kernel/fmha_tile_scheduler.hpp"
#include "77_blackwell_fmha/kernel/sm100_fmha_fwd_kernel_tma_warpspecialized.hpp"
#include "cutlass_attention.hpp"

using namespace cute;

template <typename Mask, typename Scheduler>
bool right(int queries, int keys) {
  namespace fmha = cutlass::fmha;
  using Groups = cute::tuple<cute::tuple<int, int>, int>;
  using Shared = cute::tuple<cute::tuple<_0, int>, int>;
  using ToQ = cute::tuple<int, _1, Groups>;
  using ToK = cute::tuple<int, _1, Shared>;
  using ToSum = cute::tuple<_1, Groups>;
  using Main = fmha::collective::Sm100FmhaFwdMainloopTmaWarpspecialized<
      cutlass::half_t, float, float, Shape<_256, _128, _64>, ToQ, ToK, ToK, Mask>;
  using Tail = fmha::collective::Sm100FmhaFwdEpilogueTmaWarpspecialized<
      cutlass::half_t, float, typename Main::TileShapePV, ToQ, ToSum>;
  using Operation = fmha::device::FMHA<fmha::kernel::Sm100FmhaFwdKernelTmaWarpspecialized<
      cute::tuple<int, int, int, Groups>, Main, Tail, Scheduler>>;
  constexpr int kHeads = 2, kWidth = 64;
  Rows data(kHeads, queries, keys, kWidth, !std::is_same_v<Mask, fmha::collective::NoMask>);
  constexpr int kRow = kHeads * kWidth;
  const ToQ to_q{kRow, {}, {{kWidth, kWidth}, queries * kRow}};
  const ToK to_k{kRow, {}, {{{}, kWidth}, keys * kRow}};
  const ToSum to_sum{{}, {{queries, queries}, kHeads * queries}};
  cutlass::KernelHardwareInfo hardware;
  hardware.sm_count = cutlass::KernelHardwareInfo::query_device_multiprocessor_count(0);
  data.run<Operation>({{queries, keys, kWidth, {{1, kHeads}, 1}},
                       {data.q.device, to_q, data.k.device, to_k, data.v.device, to_k},
                       {data.o.device, to_q, data.lse.device, to_sum},
                       hardware});
  return data.right();
}

int main() {
  namespace fmha = cutlass::fmha;
  if (!right<fmha::collective::NoMask, fmha::kernel::IndividualTileScheduler>(256, 384)) return 2;
  if (!right<fmha::collective::CausalMask<>, fmha::kernel::PersistentTileScheduler>(512, 512))
    return 3;
  return 0;
}
