// OpenGEMM's product for Blackwell, by pairs of CTAs, as its launcher launches it; then a chain:
// the second product takes what the first has written.
#include "types.cuh"
//
#include "kernel.cuh"
#include "tmap.cuh"
//
#include "host.hpp"

template <Policy P, typename T>
void product(T* a, T* b, float* c, int m, int n, int k) {
  using G = Geom<P>;
  CUtensorMap map_a, map_b, map_c;
  CHECK(init_ab_tmap(&map_a, a, m, k, G::block_m, G::block_k, G::tmap_a, G::global_bits_a));
  CHECK(init_ab_tmap(&map_b, b, n, k, G::block_n, G::block_k, G::tmap_b, G::global_bits_b));
  CHECK(init_c_tmap(&map_c, c, m, n, G::block_m, G::vec_stage ? G::store_n : G::c_tma_n, G::tmap_c,
                    G::vec_stage ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE));
  const auto kernel = mm_gemm_kernel<P>;
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, G::smem_bytes));
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {unsigned(G::cluster_m), 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  const int tiles = (m + G::tile_m - 1) / G::tile_m * ((n + G::mma_n - 1) / G::mma_n);
  config.gridDim = tiles * G::cluster_m;
  config.blockDim = G::threads;
  config.dynamicSmemBytes = G::smem_bytes;
  config.attrs = attributes;
  config.numAttrs = 2;
  CHECK(cudaLaunchKernelEx(&config, kernel, map_a, map_b, map_c, c, m, n, k, 1, 0, 1));
}

template <typename T>
bool right(const Array<T>& a, const Array<T>& b, Array<float>& c, int m, int n, int k) {
  c.down();
  for (int at = 0; at < m * n; ++at) {
    double want = 0;
    for (int i = 0; i < k; ++i) want += a[at / n * k + i] * b[at % n * k + i];
    if (!near("c", at, c[at], want, 1e-3)) return false;
  }
  return true;
}

int main() {
  constexpr Policy kBf16{Elem::bf16, Elem::bf16, 2, 128, 64};
  constexpr int kM = 256, kN = 128, kK = 320;
  Array<__nv_bfloat16> a(kM * kK, 1), b(kN * kK, 2);
  Array<float> c(kM * kN);
  product<kBf16>(a.device, b.device, c.device, kM, kN, kK);
  if (!right(a, b, c, kM, kN, kK)) return 2;
  constexpr Policy kTf32{Elem::tf32, Elem::tf32, 2, 128, 64};
  Array<float> x(kM * 64, 3), y(kN * 64, 4), z(64 * kN, 5), xy(kM * kN), xyz(kM * 64);
  product<kTf32>(x.device, y.device, xy.device, kM, kN, 64);
  product<kTf32>(xy.device, z.device, xyz.device, kM, 64, kN);
  if (!right(x, y, xy, kM, kN, 64)) return 3;
  if (!right(xy, z, xyz, kM, 64, kN)) return 4;
  return 0;
}
