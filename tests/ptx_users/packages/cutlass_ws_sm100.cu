// CUTLASS's collectives for Blackwell: a warp-specialized product with sums in tensor memory, tiles
// handed out by cluster launch control, and TMA both ways; by one CTA and by pairs.
#include "cutlass_gemm.hpp"

int main() {
  namespace gemm = cutlass::gemm;
  namespace epilogue = cutlass::epilogue;
  using Blackwell = cutlass::arch::Sm100;
  if (!right<cutlass::bfloat16_t, Shape<_128, _64, _64>, Shape<_1, _1, _1>,
             gemm::KernelTmaWarpSpecialized1SmSm100, epilogue::TmaWarpSpecialized1Sm, void,
             Blackwell>(256, 192, 192))
    return 2;
  if (!right<cutlass::bfloat16_t, Shape<_256, _64, _64>, Shape<_2, _1, _1>,
             gemm::KernelTmaWarpSpecialized2SmSm100, epilogue::TmaWarpSpecialized2Sm, void,
             Blackwell>(512, 128, 192))
    return 3;
  return 0;
}
