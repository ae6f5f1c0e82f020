// A product of bf16 tiles by warps' matrix instructions.
#include <cuda_bf16.h>
#include <mma.h>

#include "sample.h"
using namespace nvcuda;
__global__ void multiply(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
  wmma::fill_fragment(sum, 0.0f);
  wmma::load_matrix_sync(left, a, 16), wmma::load_matrix_sync(right, b, 16);
  wmma::mma_sync(sum, left, right, sum);
  wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}
int main() {
  auto *a = managed<__nv_bfloat16>(256), *b = managed<__nv_bfloat16>(256);
  float* c = managed<float>(256);
  for (int i = 0; i < 256; ++i) a[i] = __float2bfloat16(i % 7), b[i] = __float2bfloat16(i % 5);
  multiply<<<1, 32>>>(a, b, c);
  CHECK(cudaDeviceSynchronize());
  bool right = true;
  for (int i = 0; i < 256; ++i) {
    float sum = 0;
    for (int k = 0; k < 16; ++k) sum += float((i / 16 * 16 + k) % 7) * float((i % 16 * 16 + k) % 5);
    right &= c[i] == sum;
  }
  return verdict(right);
}
