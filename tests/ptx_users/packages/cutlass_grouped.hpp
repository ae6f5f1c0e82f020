// Products of groups by collectives of CUTLASS's: one kernel writes the tensor maps of each group.
#pragma once

#include "cutlass_gemm.hpp"
//
#include "cutlass/gemm/group_array_problem_shape.hpp"

template <typename Arch, typename Tile, typename Cluster, typename Schedule, typename Epilogue>
bool grouped(const std::vector<Shape<int, int, int>>& groups) {
  using T = cutlass::half_t;
  using ToC = typename cutlass::epilogue::collective::CollectiveBuilder<
      Arch, cutlass::arch::OpClassTensorOp, Tile, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, float, Row*, 4, float, Row*, 4,
      Epilogue>::CollectiveOp;
  using Main = typename cutlass::gemm::collective::CollectiveBuilder<
      Arch, cutlass::arch::OpClassTensorOp, T, Row*, 8, T, Column*, 8, float, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(typename ToC::SharedStorage))>,
      Schedule>::CollectiveOp;
  using Problem = cutlass::gemm::GroupProblemShape<Shape<int, int, int>>;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<Problem, Main, ToC>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
  using StrideA = typename Kernel::InternalStrideA;
  using StrideB = typename Kernel::InternalStrideB;
  using StrideC = typename Kernel::InternalStrideC;
  const size_t count = groups.size();
  std::vector<Array<T>> a, b;
  std::vector<Array<float>> c, d;
  Array<const T*> of_a(count), of_b(count);
  Array<const float*> of_c(count);
  Array<float*> of_d(count);
  Array<StrideA> stride_a(count);
  Array<StrideB> stride_b(count);
  Array<StrideC> stride_c(count);
  Array<typename Problem::UnderlyingProblemShape> shapes(count);
  for (size_t at = 0; at < count; ++at) {
    const auto [m, n, k] = shapes.host[at] = groups[at];
    of_a.host[at] = a.emplace_back(size_t(m) * k, 3 * at + 1).device;
    of_b.host[at] = b.emplace_back(size_t(n) * k, 3 * at + 2).device;
    of_c.host[at] = c.emplace_back(size_t(m) * n, 3 * at + 3).device;
    of_d.host[at] = d.emplace_back(size_t(m) * n).device;
    stride_a.host[at] = cutlass::make_cute_packed_stride(StrideA{}, {m, k, 1});
    stride_b.host[at] = cutlass::make_cute_packed_stride(StrideB{}, {n, k, 1});
    stride_c.host[at] = cutlass::make_cute_packed_stride(StrideC{}, {m, n, 1});
  }
  for (auto* each : {&of_a, &of_b}) each->up();
  of_c.up(), of_d.up(), stride_a.up(), stride_b.up(), stride_c.up(), shapes.up();
  cutlass::KernelHardwareInfo hardware;
  hardware.sm_count = cutlass::KernelHardwareInfo::query_device_multiprocessor_count(0);
  typename Gemm::Arguments arguments{
      cutlass::gemm::GemmUniversalMode::kGrouped,
      {int(count), shapes.device, shapes.host.data()},
      {of_a.device, stride_a.device, of_b.device, stride_b.device},
      {{2, 0.5f}, of_c.device, stride_c.device, of_d.device, stride_c.device},
      hardware};
  Array<uint8_t> space(Gemm::get_workspace_size(arguments) + 1);
  Gemm gemm;
  CHECK(gemm.can_implement(arguments));
  CHECK(gemm.initialize(arguments, space.device));
  CHECK(gemm.run());
  for (size_t group = 0; group < count; ++group) {
    const auto [m, n, k] = groups[group];
    d[group].down();
    for (int at = 0; at < m * n; ++at) {
      double want = 0.5 * c[group][at];
      for (int i = 0; i < k; ++i) want += 2 * a[group][at / n * k + i] * b[group][at % n * k + i];
      if (!near("d", at, d[group][at], want, 1e-3)) return false;
    }
  }
  return true;
}
