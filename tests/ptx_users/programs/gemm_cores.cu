// C = A · B in float by CUDA cores: tiles of 128 × 128 in shared memory, 8 × 8 sums a thread.
#include <cstdio>
#include <vector>

#include "check.h"
#ifndef ROWS
#define ROWS 1024  // 1.07 GFLOP
#endif
constexpr int M = ROWS, N = 512, K = 1024, T = 128, S = 8;
__global__ void __launch_bounds__(256) product(const float* a, const float* b, float* c) {
  __shared__ float as[S][T + 4], bs[S][T];
  int t = threadIdx.x, tx = t % 16, ty = t / 16, row = blockIdx.y * T, col = blockIdx.x * T;
  float sum[8][8] = {};
  for (int k = 0; k < K; k += S) {
    int s = t % 2 * 4, r = t / 2;
    float4 x = *(const float4*)&a[(row + r) * K + k + s];
    as[s][r] = x.x, as[s + 1][r] = x.y, as[s + 2][r] = x.z, as[s + 3][r] = x.w;
    *(float4*)&bs[t / 32][t % 32 * 4] = *(const float4*)&b[(k + t / 32) * N + col + t % 32 * 4];
    __syncthreads();
    for (int i = 0; i < S; ++i) {
      float u[8], v[8];
      for (int p = 0; p < 8; p += 4) {
        *(float4*)&u[p] = *(const float4*)&as[i][ty * 8 + p];
        *(float4*)&v[p] = *(const float4*)&bs[i][tx * 8 + p];
      }
      for (int p = 0; p < 8; ++p)
        for (int q = 0; q < 8; ++q) sum[p][q] += u[p] * v[q];
    }
    __syncthreads();
  }
  for (int p = 0; p < 8; ++p)
    for (int q = 0; q < 8; q += 4)
      *(float4*)&c[(row + ty * 8 + p) * N + col + tx * 8 + q] =
          make_float4(sum[p][q], sum[p][q + 1], sum[p][q + 2], sum[p][q + 3]);
}
int main() {
  std::vector<float> a(M * K), b(K * N), c(M * N);
  for (size_t i = 0; i < a.size(); ++i) a[i] = int(i * 7 % 9) - 4;
  for (size_t i = 0; i < b.size(); ++i) b[i] = int(i * 5 % 7) - 3;
  float *da, *db, *dc;
  CHECK(cudaMalloc(&da, a.size() * 4));
  CHECK(cudaMalloc(&db, b.size() * 4));
  CHECK(cudaMalloc(&dc, c.size() * 4));
  CHECK(cudaMemcpy(da, a.data(), a.size() * 4, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(db, b.data(), b.size() * 4, cudaMemcpyHostToDevice));
  product<<<dim3(N / T, M / T), 256>>>(da, db, dc);
  CHECK(cudaMemcpy(c.data(), dc, c.size() * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < M * N; i += 997) {
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += a[i / N * K + k] * b[k * N + i % N];
    if (sum != c[i]) return printf("%d: %g %g\n", i, c[i], sum), 1;
  }
}
