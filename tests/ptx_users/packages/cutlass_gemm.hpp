// A product by a collective of CUTLASS's, as its builder makes it, compared.
#pragma once

#include "cutlass/cutlass.h"
//
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/util/packed_stride.hpp"
#include "host.hpp"

using namespace cute;
using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;

template <typename T, typename Tile, typename Cluster, typename Schedule, typename Epilogue,
          typename Scheduler = void, typename Arch = cutlass::arch::Sm90>
bool right(int m, int n, int k) {
  constexpr int kAlign = 16 / sizeof(T);
  using ToC = typename cutlass::epilogue::collective::CollectiveBuilder<
      Arch, cutlass::arch::OpClassTensorOp, Tile, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, float, Row, 4, float, Row, 4,
      Epilogue>::CollectiveOp;
  using Main = typename cutlass::gemm::collective::CollectiveBuilder<
      Arch, cutlass::arch::OpClassTensorOp, T, Row, kAlign, T, Column, kAlign, float, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(typename ToC::SharedStorage))>,
      Schedule>::CollectiveOp;
  using Kernel =
      cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Main, ToC, Scheduler>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
  Array<T> a(size_t(m) * k, 1), b(size_t(n) * k, 2);
  Array<float> c(size_t(m) * n, 3), d(c.host.size());
  const auto stride_a = cutlass::make_cute_packed_stride(typename Kernel::StrideA{}, {m, k, 1});
  const auto stride_b = cutlass::make_cute_packed_stride(typename Kernel::StrideB{}, {n, k, 1});
  const auto stride_c = cutlass::make_cute_packed_stride(typename Kernel::StrideC{}, {m, n, 1});
  cutlass::KernelHardwareInfo hardware;
  hardware.sm_count = cutlass::KernelHardwareInfo::query_device_multiprocessor_count(0);
  typename Gemm::Arguments arguments{cutlass::gemm::GemmUniversalMode::kGemm,
                                     {m, n, k, 1},
                                     {a.device, stride_a, b.device, stride_b},
                                     {{2, 0.5f}, c.device, stride_c, d.device, stride_c},
                                     hardware};
  Array<uint8_t> space(Gemm::get_workspace_size(arguments) + 1);
  Gemm gemm;
  CHECK(gemm.can_implement(arguments));
  CHECK(gemm.initialize(arguments, space.device));
  CHECK(gemm.run());
  d.down();
  for (int at = 0; at < m * n; ++at) {
    double want = 0.5 * c[at];
    for (int i = 0; i < k; ++i) want += 2 * a[at / n * k + i] * b[at % n * k + i];
    if (!near("d", at, d[at], want, 1e-2)) return false;
  }
  return true;
}
