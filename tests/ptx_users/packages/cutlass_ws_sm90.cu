// CUTLASS's collectives for Hopper: a warp-specialized product by clusters, with TMA both ways
// (cooperative and ping-pong).
#include "cutlass_gemm.hpp"

int main() {
  namespace gemm = cutlass::gemm;
  namespace epilogue = cutlass::epilogue;
  if (!right<cutlass::half_t, Shape<_128, _128, _64>, Shape<_2, _1, _1>,
             gemm::KernelTmaWarpSpecializedCooperative, epilogue::TmaWarpSpecializedCooperative>(
          256, 128, 192))
    return 2;
  if (!right<cutlass::tfloat32_t, Shape<_64, _128, _32>, Shape<_1, _2, _1>,
             gemm::KernelTmaWarpSpecializedPingpong, epilogue::TmaWarpSpecialized>(128, 256, 96))
    return 3;
  return 0;
}
