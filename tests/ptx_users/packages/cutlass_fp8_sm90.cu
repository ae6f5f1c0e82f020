// CUTLASS's collectives for Hopper: fp8 with sums in the tensor cores, and a product split along K
// between CTAs (stream K).
#include "cutlass_gemm.hpp"

int main() {
  namespace gemm = cutlass::gemm;
  namespace epilogue = cutlass::epilogue;
  if (!right<cutlass::float_e4m3_t, Shape<_64, _128, _128>, Shape<_1, _1, _1>,
             gemm::KernelTmaWarpSpecializedPingpongFP8FastAccum, epilogue::TmaWarpSpecialized>(
          128, 128, 256))
    return 2;
  if (!right<cutlass::half_t, Shape<_128, _128, _64>, Shape<_1, _1, _1>,
             gemm::KernelTmaWarpSpecializedCooperative, epilogue::TmaWarpSpecializedCooperative,
             gemm::StreamKScheduler>(128, 128, 768))
    return 3;
  return 0;
}
