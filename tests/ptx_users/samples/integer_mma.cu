// A product of 8-bit integers by a warp's instruction.
#include <mma.h>

#include "sample.h"
using namespace nvcuda;
__global__ void multiply(const signed char* a, const signed char* b, int* c) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, signed char, wmma::row_major> left;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, signed char, wmma::col_major> right;
  wmma::fragment<wmma::accumulator, 16, 16, 16, int> sum;
  wmma::fill_fragment(sum, 0);
  wmma::load_matrix_sync(left, a, 16), wmma::load_matrix_sync(right, b, 16);
  wmma::mma_sync(sum, left, right, sum);
  wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}
int main() {
  auto *a = managed<signed char>(256), *b = managed<signed char>(256);
  int* c = managed<int>(256);
  for (int i = 0; i < 256; ++i) a[i] = i % 9 - 4, b[i] = i % 5 - 2;
  multiply<<<1, 32>>>(a, b, c);
  CHECK(cudaDeviceSynchronize());
  bool right = true;
  for (int i = 0; i < 256; ++i) {
    int sum = 0;
    for (int k = 0; k < 16; ++k) sum += a[i / 16 * 16 + k] * b[i % 16 * 16 + k];
    right &= c[i] == sum;
  }
  return verdict(right);
}
