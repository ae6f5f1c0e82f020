#pragma once

constexpr int kThreads = 256;

// out = x / sqrt(mean(x²) + eps) * w, a row a CTA.
static __global__ void __launch_bounds__(kThreads)
    normalize_rows(const float* x, const float* w, float* out, int columns, float eps) {
  __shared__ float sums[kThreads / 32];
  x += size_t(blockIdx.x) * columns;
  out += size_t(blockIdx.x) * columns;
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += kThreads) sum += x[i] * x[i];
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(~0u, sum, lane);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (float part : sums) sum += part;
  const float scale = rsqrtf(sum / columns + eps);
  for (int i = threadIdx.x; i < columns; i += kThreads) out[i] = x[i] * scale * w[i];
}
