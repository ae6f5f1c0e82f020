// A product by cuBLAS.
#include <cublas_v2.h>

#include "sample.h"
int main() {
  float *a = managed<float>(6), *b = managed<float>(12), *c = managed<float>(8);
  for (int i = 0; i < 6; ++i) a[i] = i;
  for (int i = 0; i < 12; ++i) b[i] = 1 + i % 3;
  for (int i = 0; i < 8; ++i) c[i] = 1;
  cublasHandle_t handle;
  if (cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) return 1;
  const float one = 1, two = 2;
  cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 4, 3, &one, a, 2, b, 3, &two, c, 2);
  CHECK(cudaDeviceSynchronize());
  cublasDestroy(handle);
  bool right = true;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 4; ++j) {
      float want = 2;
      for (int k = 0; k < 3; ++k) want += a[i + 2 * k] * b[k + 3 * j];
      right &= c[i + 2 * j] == want;
    }
  }
  return verdict(right);
}
