// A stream's window of lines that stay in L2.
#include "sample.h"
__global__ void add(int* data) {
  data[threadIdx.x] += 1;
}
int main() {
  int* data = managed<int>(32);
  for (int i = 0; i < 32; ++i) data[i] = i;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 1 << 20));
  cudaStreamAttrValue value = {};
  value.accessPolicyWindow = {data, 128, 1.0f, cudaAccessPropertyPersisting,
                              cudaAccessPropertyStreaming};
  CHECK(cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &value));
  add<<<1, 32, 0, stream>>>(data);
  CHECK(cudaStreamSynchronize(stream)), CHECK(cudaCtxResetPersistingL2Cache());
  return verdict(data[31] == 32);
}
