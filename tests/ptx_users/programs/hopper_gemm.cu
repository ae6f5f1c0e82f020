// C = A B^T of bf16 on Hopper: clusters of two share B by multicast, a producer warp group, two
// consumer warp groups, four stages, persistent blocks, output by TMA.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "check.h"
using bf16 = __nv_bfloat16;
constexpr int kM = 128, kN = 64, kK = 64, kStages = 3, kThreads = 3 * 128, kCluster = 2;
struct Shared {
  alignas(1024) bf16 a[kStages][kM * kK];
  alignas(1024) bf16 b[kStages][kN * kK];
  alignas(1024) bf16 c[kM * kN];
  alignas(8) uint64_t full[kStages], empty[kStages];
};
__device__ uint32_t sm(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ void init(uint64_t* b, int n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sm(b)), "r"(n));
}
__device__ void expect(uint64_t* b, int n) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(sm(b)),
               "r"(n)
               : "memory");
}
__device__ void wait(uint64_t* b, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nL1:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, "
      "[%0], %1;\n@done bra L2;\nbra L1;\nL2:\n}" ::"r"(sm(b)),
      "r"(parity)
      : "memory");
}
__device__ void arrive_at(uint64_t* b, uint32_t cta) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, "
      "%1;\nmbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n}" ::"r"(sm(b)),
      "r"(cta)
      : "memory");
}
__device__ void load(void* to, const CUtensorMap* map, uint64_t* bar, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%3, %4}], [%2];" ::"r"(sm(to)),
      "l"(map), "r"(sm(bar)), "r"(x), "r"(y)
      : "memory");
}
__device__ void load_all(void* to, const CUtensorMap* map, uint64_t* bar, int x, int y,
                         uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::"
      "cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(sm(to)),
      "l"(map), "r"(sm(bar)), "r"(x), "r"(y), "h"(mask)
      : "memory");
}
__device__ uint64_t descriptor(const bf16* p) {
  return uint64_t((sm(p) & 0x3ffff) >> 4) | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 |
         uint64_t(1) << 62;
}
__device__ void wgmma(float (&d)[32], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%"
      "25,%26,%27,%28,%29,%30,%31}, %32, %33, p, 1, 1, 0, 0;\n}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"(add));
}
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
         const __grid_constant__ CUtensorMap map_c, int m, int n, int k) {
  extern __shared__ __align__(1024) unsigned char raw[];
  Shared& s = *reinterpret_cast<Shared*>(raw);
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  const int group = threadIdx.x / 128, clusters = gridDim.x / kCluster,
            cluster = blockIdx.x / kCluster;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      init(&s.full[i], 1);
      init(&s.empty[i], 2 * kCluster);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
  const int tiles_m = (m + kCluster * kM - 1) / (kCluster * kM), tiles_n = (n + kN - 1) / kN,
            tiles = tiles_m * tiles_n, steps = (k + kK - 1) / kK;
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) {
      int stage = 0, phase = 0;
      for (int t = cluster; t < tiles; t += clusters) {
        const int row = (t / tiles_n * kCluster + rank) * kM, col = t % tiles_n * kN;
        for (int i = 0; i < steps; ++i) {
          wait(&s.empty[stage], phase ^ 1);
          expect(&s.full[stage], (kM + kN) * kK * 2);
          load(s.a[stage], &map_a, &s.full[stage], i * kK, row);
          load_all(s.b[stage] + rank * (kN / kCluster) * kK, &map_b, &s.full[stage], i * kK,
                   col + rank * (kN / kCluster), (1 << kCluster) - 1);
          if (++stage == kStages) {
            stage = 0;
            phase ^= 1;
          }
        }
      }
      for (int i = 0; i < kStages; ++i) {
        wait(&s.empty[stage], phase ^ 1);
        if (++stage == kStages) {
          stage = 0;
          phase ^= 1;
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int half = group - 1;
    int stage = 0, phase = 0;
    for (int t = cluster; t < tiles; t += clusters) {
      const int row = (t / tiles_n * kCluster + rank) * kM, col = t % tiles_n * kN;
      float d[32];
      for (int i = 0; i < steps; ++i) {
        wait(&s.full[stage], phase);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int j = 0; j < kK / 16; ++j)
          wgmma(d, descriptor(s.a[stage] + half * 64 * kK + 16 * j),
                descriptor(s.b[stage] + 16 * j), i + j > 0);
        asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::
                         : "memory");
        if (threadIdx.x % 128 < kCluster) arrive_at(&s.empty[stage], threadIdx.x % 128);
        if (++stage == kStages) {
          stage = 0;
          phase ^= 1;
        }
      }
      const int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
      bf16* c = s.c + half * 64 * kN;
      if (threadIdx.x % 128 == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
      for (int e = 0; e < 32; e += 2) {
        const int r = 16 * warp + lane / 4 + 8 * (e / 2 % 2), x = 8 * (e / 4) + 2 * (lane % 4);
        *reinterpret_cast<__nv_bfloat162*>(c + r * kN + x) = __floats2bfloat162_rn(d[e], d[e + 1]);
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
      if (threadIdx.x % 128 == 0) {
        asm volatile(
            "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::
                "l"(&map_c),
            "r"(sm(c)), "r"(col), "r"(row + 64 * half)
            : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      }
    }
    if (threadIdx.x % 128 == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}
static CUtensorMap map_of(void* p, uint64_t rows, uint64_t cols, uint32_t box_rows,
                          uint32_t box_cols, CUtensorMapSwizzle swizzle) {
  void* f = nullptr;
  cudaDriverEntryPointQueryResult q;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &q);
  CUtensorMap map;
  const cuuint64_t dims[2] = {cols, rows}, strides[1] = {cols * 2};
  const cuuint32_t box[2] = {box_cols, box_rows}, ones[2] = {1, 1};
  const CUresult r = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(f)(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, p, dims, strides, box, ones,
      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) {
    std::printf("map: %d\n", int(r));
    std::exit(1);
  }
  return map;
}
int main() {
  const int m = 400, n = 136, k = 200;
  std::vector<bf16> ha(m * k), hb(n * k), hc(m * n);
  for (int i = 0; i < m * k; ++i) ha[i] = __float2bfloat16(float(i * 5 % 7 - 3));
  for (int i = 0; i < n * k; ++i) hb[i] = __float2bfloat16(float(i * 3 % 5 - 2));
  bf16 *a, *b, *c;
  CHECK(cudaMalloc(&a, m * k * 2));
  CHECK(cudaMalloc(&b, n * k * 2));
  CHECK(cudaMalloc(&c, m * n * 2));
  CHECK(cudaMemcpy(a, ha.data(), m * k * 2, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(b, hb.data(), n * k * 2, cudaMemcpyHostToDevice));
  CHECK(cudaMemset(c, 0xff, m * n * 2));
  const CUtensorMap ma = map_of(a, m, k, kM, kK, CU_TENSOR_MAP_SWIZZLE_128B),
                    mb = map_of(b, n, k, kN / kCluster, kK, CU_TENSOR_MAP_SWIZZLE_128B),
                    mc = map_of(c, m, n, 64, kN, CU_TENSOR_MAP_SWIZZLE_NONE);
  CHECK(cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)));
  gemm<<<4, kThreads, sizeof(Shared)>>>(ma, mb, mc, m, n, k);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(hc.data(), c, m * n * 2, cudaMemcpyDeviceToHost));
  for (int r = 0; r < m; ++r)
    for (int x = 0; x < n; ++x) {
      float want = 0;
      for (int i = 0; i < k; ++i)
        want += __bfloat162float(ha[r * k + i]) * __bfloat162float(hb[x * k + i]);
      const float got = __bfloat162float(hc[r * n + x]);
      if (got != __bfloat162float(__float2bfloat16(want))) {
        std::printf("%d %d: %f, not %f\n", r, x, got, want);
        return 1;
      }
    }
  std::puts("ok");
  return 0;
}
