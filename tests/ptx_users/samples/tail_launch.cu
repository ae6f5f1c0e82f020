// A kernel launches a kernel: CTAs' children add up rows, a tail launch adds the sums.
#include "sample.h"
constexpr int kRows = 4, kColumns = 64;
__global__ void add_row(const int* row, int* sum) {
  atomicAdd(sum, row[threadIdx.x]);
}
__global__ void add_sums(const int* sums, int* total) {
  for (int i = 0; i < kRows; ++i) *total += sums[i];
}
__global__ void rows(const int* data, int* sums, int* total) {
  const int row = blockIdx.x;
  if (threadIdx.x == 0) {
    sums[row] = 0;
    add_row<<<1, kColumns>>>(data + row * kColumns, sums + row);
    add_row<<<1, kColumns, 0, cudaStreamFireAndForget>>>(data + row * kColumns, sums + row);
  }
  if (row == 0 && threadIdx.x == 0) {
    *total = 0;
    add_sums<<<1, 1, 0, cudaStreamTailLaunch>>>(sums, total);
  }
}
int main() {
  int *data = managed<int>(kRows * kColumns), *sums = managed<int>(kRows), *total = managed<int>(1);
  for (int i = 0; i < kRows * kColumns; ++i) data[i] = i;
  rows<<<kRows, 32>>>(data, sums, total);
  CHECK(cudaDeviceSynchronize());
  return verdict(*total == kRows * kColumns * (kRows * kColumns - 1));
}
