// Memory of the device, copies, a launch.
#include "sample.h"
__global__ void add(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
int main() {
  constexpr int n = 1000;
  float here[n], *a, *b, *c;
  for (int i = 0; i < n; ++i) here[i] = i;
  CHECK(cudaMalloc(&a, sizeof here)), CHECK(cudaMalloc(&b, sizeof here)),
      CHECK(cudaMalloc(&c, sizeof here));
  CHECK(cudaMemcpy(a, here, sizeof here, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(b, a, sizeof here, cudaMemcpyDeviceToDevice));
  add<<<(n + 255) / 256, 256>>>(a, b, c, n);
  CHECK(cudaMemcpy(here, c, sizeof here, cudaMemcpyDeviceToHost));
  return verdict(here[999] == 1998);
}
