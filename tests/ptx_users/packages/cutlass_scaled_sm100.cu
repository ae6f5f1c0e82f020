// CUTLASS's collectives for Blackwell: products of numbers with a scale for each block along K, of
// 8 bits (mxfp8, by pairs of CTAs) and of 4 bits (nvfp4).
#include "cutlass_gemm.hpp"

// A matrix of rows by its numbers' codes and their blocks' scales, in CUTLASS's layout of scales.
template <typename Element>
struct Scaled {
  using Data = typename Element::DataType;
  using Scale = typename Element::ScaleFactorType;
  static constexpr int kBits = cutlass::sizeof_bits<Data>::value;
  int columns;
  Array<uint8_t> codes, scales;

  Scaled(int rows, int columns, size_t scale_count, unsigned seed)
      : columns(columns), codes(size_t(rows) * columns * kBits / 8), scales(scale_count) {
    for (size_t at = 0; at < codes.host.size(); ++at) codes.host[at] = code(at, seed);
    for (size_t at = 0; at < scale_count; ++at)
      scales.host[at] = Scale(std::exp2f(std::round(2 * value(at, seed + 1)))).storage;
    codes.up();
    scales.up();
  }
  static uint8_t code(size_t at, unsigned seed) {
    if constexpr (kBits == 8) return Data(value(at, seed)).storage;
    return uint8_t(int(value(at, seed) * 8 + 8) * 15 | int(value(at, seed + 9) * 8 + 8));
  }
  auto data() const { return reinterpret_cast<const Data*>(codes.device); }
  auto factors() const { return reinterpret_cast<const Scale*>(scales.device); }
  template <typename Layout>
  double operator()(int row, int column, const Layout& layout) const {
    const size_t at = size_t(row) * columns + column;
    const uint8_t code = kBits == 8 ? codes.host[at] : codes.host[at / 2] >> at % 2 * 4 & 15;
    return double(float(Data::bitcast(code))) *
           float(Scale::bitcast(scales.host[layout(row, column, 0)]));
  }
};

template <typename Element, int kAlign, typename Tile, typename Cluster, typename Schedule,
          typename Epilogue>
bool scaled(int m, int n, int k) {
  using Arch = cutlass::arch::Sm100;
  using Class = cutlass::arch::OpClassBlockScaledTensorOp;
  using ToC = typename cutlass::epilogue::collective::CollectiveBuilder<
      Arch, Class, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto, float, float,
      float, Row, 4, float, Row, 4, Epilogue>::CollectiveOp;
  using Main = typename cutlass::gemm::collective::CollectiveBuilder<
      Arch, Class, Element, Row, kAlign, Element, Column, kAlign, float, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(typename ToC::SharedStorage))>,
      Schedule>::CollectiveOp;
  using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Main, ToC>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
  using Scales = typename Main::Sm1xxBlkScaledConfig;
  const auto of_a = Scales::tile_atom_to_shape_SFA(make_shape(m, n, k, 1));
  const auto of_b = Scales::tile_atom_to_shape_SFB(make_shape(m, n, k, 1));
  Scaled<Element> a(m, k, cosize(of_a), 1), b(n, k, cosize(of_b), 2);
  Array<float> c(size_t(m) * n, 3), d(c.host.size());
  const auto stride_a = cutlass::make_cute_packed_stride(typename Kernel::StrideA{}, {m, k, 1});
  const auto stride_b = cutlass::make_cute_packed_stride(typename Kernel::StrideB{}, {n, k, 1});
  const auto stride_c = cutlass::make_cute_packed_stride(typename Kernel::StrideC{}, {m, n, 1});
  typename Gemm::Arguments arguments{
      cutlass::gemm::GemmUniversalMode::kGemm,
      {m, n, k, 1},
      {a.data(), stride_a, b.data(), stride_b, a.factors(), of_a, b.factors(), of_b},
      {{2, 0.5f}, c.device, stride_c, d.device, stride_c}};
  Array<uint8_t> space(Gemm::get_workspace_size(arguments) + 1);
  Gemm gemm;
  CHECK(gemm.can_implement(arguments));
  CHECK(gemm.initialize(arguments, space.device));
  CHECK(gemm.run());
  d.down();
  for (int at = 0; at < m * n; ++at) {
    double want = 0.5 * c[at];
    for (int i = 0; i < k; ++i) want += 2 * a(at / n, i, of_a) * b(at % n, i, of_b);
    if (!near("d", at, d[at], want, 1e-4)) return false;
  }
  return true;
}

int main() {
  namespace gemm = cutlass::gemm;
  namespace epilogue = cutlass::epilogue;
  if (!scaled<cutlass::mx_float8_t<cutlass::float_e4m3_t>, 16, Shape<_256, _128, _128>,
              Shape<_2, _1, _1>, gemm::KernelTmaWarpSpecialized2SmMxf8f6f4Sm100,
              epilogue::TmaWarpSpecialized2Sm>(256, 256, 384))
    return 2;
  if (!scaled<cutlass::nv_float4_t<cutlass::float_e2m1_t>, 32, Shape<_128, _128, _256>,
              Shape<_1, _1, _1>, gemm::KernelTmaWarpSpecialized1SmNvf4Sm100,
              epilogue::TmaWarpSpecialized1Sm>(256, 128, 512))
    return 3;
  return 0;
}
