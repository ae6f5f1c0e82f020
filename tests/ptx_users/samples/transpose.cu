// Tiles in shared memory.
#include "sample.h"
__global__ void transpose(const int* in, int* out, int n) {
  __shared__ int tile[16][17];
  const int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
  tile[threadIdx.y][threadIdx.x] = in[y * n + x];
  __syncthreads();
  out[(blockIdx.x * 16 + threadIdx.y) * n + blockIdx.y * 16 + threadIdx.x] =
      tile[threadIdx.x][threadIdx.y];
}
int main() {
  constexpr int n = 32;
  int *in = managed<int>(n * n), *out = managed<int>(n * n);
  for (int i = 0; i < n * n; ++i) in[i] = i;
  transpose<<<dim3(2, 2), dim3(16, 16)>>>(in, out, n);
  CHECK(cudaDeviceSynchronize());
  return verdict(out[5 * n + 20] == 20 * n + 5);
}
