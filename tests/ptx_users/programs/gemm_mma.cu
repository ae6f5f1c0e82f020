// C = A · Bᵀ of halves by mma.sync: tiles of 64 × 64, by cp.async in two stages, and ldmatrix.
#include <cuda_fp16.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "check.h"
#ifndef ROWS
#define ROWS 1024  // 1.07 GFLOP
#endif
constexpr int M = ROWS, N = 512, K = 1024, T = 64, S = 32, P = S + 8;
__device__ void copy(void* to, const void* from) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
      "l"(from)
      : "memory");
}
__global__ void __launch_bounds__(128) product(const half* a, const half* b, float* c) {
  __shared__ __align__(16) half as[2][T][P], bs[2][T][P];
  int t = threadIdx.x, lane = t % 32, warp = t / 32, row = blockIdx.y * T, col = blockIdx.x * T;
  int wr = warp / 2 * 32, wc = warp % 2 * 32;
  auto load = [&](int stage, int k) {
    for (int i = t; i < T * S / 8; i += 128) {
      int r = i / (S / 8), x = i % (S / 8) * 8;
      copy(&as[stage][r][x], &a[(row + r) * K + k + x]);
      copy(&bs[stage][r][x], &b[(col + r) * K + k + x]);
    }
    asm volatile("cp.async.commit_group;");
  };
  float sum[2][4][4] = {};
  load(0, 0);
  for (int k = 0, stage = 0; k < K; k += S, stage ^= 1) {
    if (k + S < K)
      load(stage ^ 1, k + S);
    else
      asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    for (int kk = 0; kk < S; kk += 16) {
      uint32_t x[2][4], y[4][2];
      for (int i = 0; i < 2; ++i) {
        uint32_t at =
            __cvta_generic_to_shared(&as[stage][wr + i * 16 + lane % 16][kk + lane / 16 * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(x[i][0]), "=r"(x[i][1]), "=r"(x[i][2]), "=r"(x[i][3])
                     : "r"(at));
      }
      for (int j = 0; j < 4; ++j) {
        uint32_t at =
            __cvta_generic_to_shared(&bs[stage][wc + j * 8 + lane % 8][kk + lane / 8 % 2 * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
                     : "=r"(y[j][0]), "=r"(y[j][1])
                     : "r"(at));
      }
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j)
          asm volatile(
              "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
              "{%8,%9}, {%0,%1,%2,%3};"
              : "+f"(sum[i][j][0]), "+f"(sum[i][j][1]), "+f"(sum[i][j][2]), "+f"(sum[i][j][3])
              : "r"(x[i][0]), "r"(x[i][1]), "r"(x[i][2]), "r"(x[i][3]), "r"(y[j][0]), "r"(y[j][1]));
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j)
      for (int h = 0; h < 2; ++h)
        *(float2*)&c[(row + wr + i * 16 + h * 8 + lane / 4) * N + col + wc + j * 8 + lane % 4 * 2] =
            make_float2(sum[i][j][h * 2], sum[i][j][h * 2 + 1]);
}
int main() {
  std::vector<half> a(M * K), b(K * N);
  std::vector<float> c(M * N);
  for (size_t i = 0; i < a.size(); ++i) a[i] = half(float(int(i * 7 % 9) - 4));
  for (size_t i = 0; i < b.size(); ++i) b[i] = half(float(int(i * 5 % 7) - 3));
  half *da, *db;
  float* dc;
  CHECK(cudaMalloc(&da, a.size() * 2));
  CHECK(cudaMalloc(&db, b.size() * 2));
  CHECK(cudaMalloc(&dc, c.size() * 4));
  CHECK(cudaMemcpy(da, a.data(), a.size() * 2, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(db, b.data(), b.size() * 2, cudaMemcpyHostToDevice));
  product<<<dim3(N / T, M / T), 128>>>(da, db, dc);
  CHECK(cudaMemcpy(c.data(), dc, c.size() * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < M * N; i += 997) {
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += float(a[i / N * K + k]) * float(b[i % N * K + k]);
    if (sum != c[i]) return printf("%d: %g %g\n", i, c[i], sum), 1;
  }
}
