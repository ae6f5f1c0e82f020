// CUTLASS's collectives for Hopper: products of groups of several sizes by one kernel, which writes
// each group's tensor maps itself.
#include "cutlass_grouped.hpp"

int main() {
  namespace gemm = cutlass::gemm;
  namespace epilogue = cutlass::epilogue;
  return grouped<cutlass::arch::Sm90, Shape<_128, _64, _64>, Shape<_2, _1, _1>,
                 gemm::KernelPtrArrayTmaWarpSpecializedCooperative,
                 epilogue::PtrArrayTmaWarpSpecializedCooperative>(
             {{128, 64, 128}, {256, 64, 64}, {72, 128, 192}})
             ? 0
             : 1;
}
