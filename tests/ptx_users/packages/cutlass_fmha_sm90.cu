// CUTLASS's example 88 for Hopper: attention by warpgroups that take turns, all keys and causal.
#include "cute/tensor.hpp"
#include "cutlass/cutlass.h"
#include "cutlass/kernel_hardware_info.h"
//
#include "88_hopper_fmha/collective/fmha_fusion.hpp"
#include "88_hopper_fmha/device/device_universal.hpp"
#include "88_hopper_fmha/kernel/fmha_kernel_builder.hpp"
#include "cutlass_attention.hpp"

using namespace cute;

template <typename Mask, typename Schedule>
bool right(int queries, int keys) {
  namespace fmha = cutlass::fmha;
  using To = cute::tuple<int, _1, cute::tuple<int, int>>;
  using ToSum = cute::tuple<_1, cute::tuple<int, int>>;
  using Operation = cutlass::device::Universal<typename fmha::kernel::FmhaBuilder<
      cutlass::half_t, float, float, Shape<_128, _64, _64>, To, To, To, Mask, Schedule>::Kernel>;
  constexpr int kHeads = 2, kWidth = 64;
  Rows data(kHeads, queries, keys, kWidth, std::is_same_v<Mask, fmha::collective::CausalFusion>);
  constexpr int kRow = kHeads * kWidth;
  const To to_q{kRow, {}, {queries * kRow, kWidth}}, to_k{kRow, {}, {keys * kRow, kWidth}};
  const ToSum to_sum{{}, {kHeads * queries, queries}};
  cutlass::KernelHardwareInfo hardware;
  hardware.sm_count = cutlass::KernelHardwareInfo::query_device_multiprocessor_count(0);
  data.run<Operation>({{1, kHeads, queries, keys, kWidth},
                       {data.q.device, to_q, data.k.device, to_k, data.v.device, to_k},
                       {data.o.device, to_q, data.lse.device, to_sum},
                       hardware});
  return data.right();
}

int main() {
  namespace gemm = cutlass::gemm;
  namespace fusion = cutlass::fmha::collective;
  if (!right<fusion::DefaultFusion, gemm::KernelTmaWarpSpecializedCooperative>(128, 192)) return 2;
  if (!right<fusion::CausalFusion, gemm::KernelTmaWarpSpecializedPingpong>(256, 256)) return 3;
  return 0;
}
