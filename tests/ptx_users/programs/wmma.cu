// Products by nvcuda::wmma, a warp for each tile: halves by rows and columns, scaled element by
// element, and bytes.
#include <cuda_fp16.h>
#include <mma.h>

#include <cstdio>
#include <vector>

namespace {

namespace wmma = nvcuda::wmma;

constexpr int kSize = 32, kTile = 16;

// C = 2 · A · B + C of tiles of 16 × 16, A by rows, B by columns.
__global__ void product(const half* a, const half* b, float* c) {
  __shared__ half staged[kTile * kTile];
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  wmma::fragment<wmma::accumulator, kTile, kTile, 16, float> sums, start;
  wmma::fill_fragment(sums, 0.0f);
  for (int k = 0; k < kSize; k += 16) {
    wmma::fragment<wmma::matrix_a, kTile, kTile, 16, half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, kTile, kTile, 16, half, wmma::col_major> right;
    for (int at = threadIdx.x; at < kTile * kTile; at += 32) {
      staged[at] = b[(column + at / kTile) * kSize + k + at % kTile];
    }
    __syncwarp();
    wmma::load_matrix_sync(left, a + row * kSize + k, kSize);
    wmma::load_matrix_sync(right, staged, kTile);
    wmma::mma_sync(sums, left, right, sums);
    __syncwarp();
  }
  float* const tile = c + row * kSize + column;
  wmma::load_matrix_sync(start, tile, kSize, wmma::mem_row_major);
  for (int at = 0; at < sums.num_elements; ++at) sums.x[at] = 2 * sums.x[at] + start.x[at];
  wmma::store_matrix_sync(tile, sums, kSize, wmma::mem_row_major);
}

// C = A · B of bytes, A by columns, C by columns.
__global__ void bytes(const signed char* a, const signed char* b, int* c) {
  wmma::fragment<wmma::matrix_a, 8, 32, 16, signed char, wmma::col_major> left;
  wmma::fragment<wmma::matrix_b, 8, 32, 16, signed char, wmma::row_major> right;
  wmma::fragment<wmma::accumulator, 8, 32, 16, int> sums;
  wmma::fill_fragment(sums, 0);
  wmma::load_matrix_sync(left, a, 16);
  wmma::load_matrix_sync(right, b, 32);
  wmma::mma_sync(sums, left, right, sums);
  wmma::store_matrix_sync(c, sums, 8, wmma::mem_col_major);
}

template <typename T>
T* moved(const std::vector<T>& from) {
  T* to;
  cudaMalloc(&to, from.size() * sizeof(T));
  cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice);
  return to;
}

bool halves_are_right() {
  std::vector<half> a(kSize * kSize), b(kSize * kSize);
  std::vector<float> c(kSize * kSize);
  for (int at = 0; at < kSize * kSize; ++at) {
    a[at] = __float2half(float(at * 7 % 9 - 4));
    b[at] = __float2half(float(at * 5 % 7 - 3));
    c[at] = float(at % 5);
  }
  float* const on_gpu = moved(c);
  product<<<dim3(2, 2), 32>>>(moved(a), moved(b), on_gpu);
  std::vector<float> found(c.size());
  cudaMemcpy(found.data(), on_gpu, found.size() * sizeof(float), cudaMemcpyDeviceToHost);
  for (int row = 0; row < kSize; ++row) {
    for (int column = 0; column < kSize; ++column) {
      float want = c[row * kSize + column];
      for (int k = 0; k < kSize; ++k) {
        want += 2 * __half2float(a[row * kSize + k]) * __half2float(b[column * kSize + k]);
      }
      if (found[row * kSize + column] != want) return false;
    }
  }
  return true;
}

bool bytes_are_right() {
  std::vector<signed char> a(16 * 16), b(16 * 32);  // lines of A are as long as two tiles
  std::vector<int> c(8 * 32);
  for (size_t at = 0; at < a.size(); ++at) a[at] = static_cast<signed char>(at * 37);
  for (size_t at = 0; at < b.size(); ++at) b[at] = static_cast<signed char>(at * 91);
  int* const on_gpu = moved(c);
  bytes<<<1, 32>>>(moved(a), moved(b), on_gpu);
  cudaMemcpy(c.data(), on_gpu, c.size() * sizeof(int), cudaMemcpyDeviceToHost);
  for (int row = 0; row < 8; ++row) {
    for (int column = 0; column < 32; ++column) {
      int want = 0;
      for (int k = 0; k < 16; ++k) want += a[k * 16 + row] * b[k * 32 + column];
      if (c[column * 8 + row] != want) return false;
    }
  }
  return true;
}

}  // namespace

int main() {
  const bool halves = halves_are_right(), bytes = bytes_are_right();
  if (!halves || !bytes) std::printf("%s are wrong\n", halves ? "bytes" : "halves");
  return halves && bytes ? 0 : 1;
}
