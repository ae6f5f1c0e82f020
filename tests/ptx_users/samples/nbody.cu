// All pairs, tiles of positions in dynamic shared memory.
#include <cmath>

#include "sample.h"
__global__ void forces(const float4* at, float4* force, int count) {
  extern __shared__ float4 tile[];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float4 mine = at[i];
  float3 sum = {0, 0, 0};
  for (int begin = 0; begin < count; begin += blockDim.x) {
    tile[threadIdx.x] = at[begin + threadIdx.x];
    __syncthreads();
    for (unsigned j = 0; j < blockDim.x; ++j) {
      const float x = tile[j].x - mine.x, y = tile[j].y - mine.y, z = tile[j].z - mine.z;
      const float near = rsqrtf(x * x + y * y + z * z + 0.1f),
                  pull = tile[j].w * near * near * near;
      sum.x += x * pull, sum.y += y * pull, sum.z += z * pull;
    }
    __syncthreads();
  }
  force[i] = {sum.x, sum.y, sum.z, 0};
}
int main() {
  auto *at = managed<float4>(64), *force = managed<float4>(64);
  for (int i = 0; i < 64; ++i) at[i] = {std::sin(i * 1.0f), std::cos(i * 2.0f), 0.1f * i, 1};
  forces<<<2, 32, 32 * sizeof(float4)>>>(at, force, 64);
  CHECK(cudaDeviceSynchronize());
  float x = 0;
  for (int i = 0; i < 64; ++i) x += force[i].x;
  return verdict(std::fabs(x) < 1e-2f);  // what pulls is pulled
}
