// Thrust and CUB sort keys with values.
#include <thrust/device_vector.h>
#include <thrust/sort.h>

#include <cub/cub.cuh>

#include "sample.h"
int main() {
  thrust::device_vector<int> keys(200), values(200);
  for (int i = 0; i < 200; ++i) keys[i] = i * 71 % 199, values[i] = i;
  thrust::sort_by_key(keys.begin(), keys.end(), values.begin());
  bool right = true;
  for (int i = 1; i < 200; ++i) right &= keys[i - 1] <= keys[i];
  int *in = managed<int>(100), *out = managed<int>(1);
  for (int i = 0; i < 100; ++i) in[i] = i;
  size_t bytes = 0;
  CHECK(cub::DeviceReduce::Sum(nullptr, bytes, in, out, 100));
  void* room;
  CHECK(cudaMalloc(&room, bytes)), CHECK(cub::DeviceReduce::Sum(room, bytes, in, out, 100));
  CHECK(cudaDeviceSynchronize());
  return verdict(right && *out == 4950);
}
