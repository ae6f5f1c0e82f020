// Two GPUs: memory of a pool of one, which the other is let into.
#include "sample.h"
__global__ void count(int* data) {
  data[threadIdx.x] = threadIdx.x;
}
__global__ void add(const int* data, int* out) {
  out[threadIdx.x] = data[threadIdx.x] + 1;
}
int main() {
  need_two_gpus();
  cudaStream_t first, second;
  cudaEvent_t counted, added;
  cudaMemPool_t pool;
  int *data, *out, here[64];
  CHECK(cudaSetDevice(0));
  CHECK(cudaStreamCreate(&first)), CHECK(cudaEventCreate(&counted));
  CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
  cudaMemAccessDesc let = {};
  let.location = {cudaMemLocationTypeDevice, 1};
  let.flags = cudaMemAccessFlagsProtReadWrite;
  CHECK(cudaMemPoolSetAccess(pool, &let, 1));
  CHECK(cudaMallocAsync(&data, sizeof here, first));
  count<<<1, 64, 0, first>>>(data);
  CHECK(cudaEventRecord(counted, first));
  CHECK(cudaSetDevice(1));
  CHECK(cudaStreamCreate(&second)), CHECK(cudaEventCreate(&added));
  CHECK(cudaMallocAsync(&out, sizeof here, second));
  CHECK(cudaStreamWaitEvent(second, counted));
  add<<<1, 64, 0, second>>>(data, out);
  CHECK(cudaEventRecord(added, second));
  CHECK(cudaStreamWaitEvent(first, added));
  CHECK(cudaFreeAsync(data, first));
  CHECK(cudaMemcpyAsync(here, out, sizeof here, cudaMemcpyDefault, second));
  CHECK(cudaFreeAsync(out, second));
  CHECK(cudaStreamSynchronize(second)), CHECK(cudaStreamSynchronize(first));
  return verdict(here[63] == 64);
}
