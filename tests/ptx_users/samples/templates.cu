// Kernels by type, with dynamic shared memory.
#include "sample.h"
template <typename T>
__global__ void reverse(T* data) {
  extern __shared__ char memory[];
  T* tile = reinterpret_cast<T*>(memory);
  tile[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
template <typename T>
bool right() {
  T* data = managed<T>(32);
  for (int i = 0; i < 32; ++i) data[i] = static_cast<T>(i);
  reverse<<<1, 32, 32 * sizeof(T)>>>(data);
  CHECK(cudaDeviceSynchronize());
  return data[0] == T(31) && data[31] == T(0);
}
int main() {
  return verdict(right<char>() && right<int>() && right<double>());
}
