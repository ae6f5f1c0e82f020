// CUTLASS's collectives for Blackwell: products of groups of several sizes by one kernel, which
// writes each group's tensor maps itself.
#include "cutlass_grouped.hpp"

int main() {
  namespace gemm = cutlass::gemm;
  namespace epilogue = cutlass::epilogue;
  return grouped<cutlass::arch::Sm100, Shape<_128, _64, _64>, Shape<_1, _1, _1>,
                 gemm::KernelPtrArrayTmaWarpSpecialized1SmSm100,
                 epilogue::PtrArrayTmaWarpSpecialized1Sm>(
             {{128, 64, 128}, {256, 64, 64}, {72, 128, 192}})
             ? 0
             : 1;
}
