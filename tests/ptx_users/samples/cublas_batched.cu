// Products of one extent, by pointers and by a stride.
#include <cublas_v2.h>

#include "sample.h"
int main() {
  float *a = managed<float>(8), *c = managed<float>(8), **pointers = managed<float*>(4);
  for (int i = 0; i < 8; ++i) a[i] = i;
  pointers[0] = a, pointers[1] = a + 4, pointers[2] = c, pointers[3] = c + 4;
  cublasHandle_t handle;
  if (cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) return 1;
  const float one = 1, none = 0;
  if (cublasSgemmBatched(handle, CUBLAS_OP_N, CUBLAS_OP_T, 2, 2, 2, &one, pointers, 2, pointers, 2,
                         &none, pointers + 2, 2, 2) != CUBLAS_STATUS_SUCCESS) {
    return 1;
  }
  CHECK(cudaDeviceSynchronize());
  bool right = c[0] == 4 && c[4] == 4 * 4 + 6 * 6;
  cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_T, 2, 2, 2, &one, a, 2, 4, a, 2, 4,
                            &none, c, 2, 4, 2);
  CHECK(cudaDeviceSynchronize());
  right &= c[0] == 4 && c[4] == 4 * 4 + 6 * 6;
  return verdict(right);
}
