// A kernel launches a kernel: a quicksort whose parts are sorted in streams of their own.
#include "sample.h"
__device__ void swap(int& a, int& b) {
  const int kept = a;
  a = b;
  b = kept;
}
__global__ void sort(int* data, int low, int high, int depth) {
  if (depth == 0 || high - low < 8) {
    for (int i = low; i < high; ++i) {
      for (int j = i; j > low && data[j] < data[j - 1]; --j) swap(data[j], data[j - 1]);
    }
    return;
  }
  const int pivot = data[(low + high) / 2];
  int left = low, right = high - 1;
  while (left <= right) {
    while (data[left] < pivot) ++left;
    while (data[right] > pivot) --right;
    if (left <= right) swap(data[left++], data[right--]);
  }
  cudaStream_t first, second;
  cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
  sort<<<1, 1, 0, first>>>(data, low, right + 1, depth - 1);
  sort<<<1, 1, 0, second>>>(data, left, high, depth - 1);
  cudaStreamDestroy(first);
  cudaStreamDestroy(second);
}
int main() {
  constexpr int kCount = 64;
  int* data = managed<int>(kCount);
  for (int i = 0; i < kCount; ++i) data[i] = i * 37 % 61;
  sort<<<1, 1>>>(data, 0, kCount, 4);
  CHECK(cudaDeviceSynchronize());
  bool sorted = true;
  for (int i = 1; i < kCount; ++i) sorted &= data[i - 1] <= data[i];
  return verdict(sorted);
}
