// Passes of a sort by two buffers in turn.
#include <algorithm>

#include "sample.h"
__global__ void merge(const int* from, int* to, int width, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int begin = i / (2 * width) * 2 * width, middle = begin + width;
  const bool left = i < middle;
  int low = left ? middle : begin, high = left ? begin + 2 * width : middle;
  while (low < high) {
    const int at = (low + high) / 2;
    if (from[at] < from[i] || (!left && from[at] == from[i]))
      low = at + 1;
    else
      high = at;
  }
  const int others = low - (left ? middle : begin);
  to[begin + (i - (left ? begin : middle)) + others] = from[i];
}
int main() {
  constexpr int kCount = 128;
  int *a = managed<int>(kCount), *b = managed<int>(kCount), want[kCount];
  for (int i = 0; i < kCount; ++i) want[i] = a[i] = i * 37 % 101;
  std::sort(want, want + kCount);
  for (int width = 1; width < kCount; width *= 2) {
    merge<<<2, 64>>>(a, b, width, kCount);
    std::swap(a, b);
  }
  CHECK(cudaDeviceSynchronize());
  return verdict(std::equal(want, want + kCount, a));
}
