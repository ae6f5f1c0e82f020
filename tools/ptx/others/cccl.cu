// Thrust and CUB of the toolkit: a reduction, scans with look-back over several tiles, sorts by
// radix, a selection and a histogram.
#include <thrust/copy.h>
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sort.h>

#include <algorithm>
#include <cub/device/device_histogram.cuh>
#include <iterator>
#include <numeric>
#include <vector>

struct IsOdd {
  __host__ __device__ bool operator()(int x) const { return x % 2 != 0; }
};

int main() {
  constexpr int kCount = 10000, kBins = 16;
  thrust::host_vector<int> x(kCount);
  for (int i = 0; i < kCount; ++i) x[i] = i * 7919 % 1009;
  const thrust::device_vector<int> in = x;
  const int sum = std::accumulate(x.begin(), x.end(), 0);
  if (thrust::reduce(in.begin(), in.end()) != sum) return 1;

  thrust::device_vector<int> sums(kCount), odd(kCount);
  thrust::inclusive_scan(in.begin(), in.end(), sums.begin());
  thrust::host_vector<int> got = sums;
  for (int i = 0, want = 0; i < kCount; ++i) {
    if (got[i] != (want += x[i])) return 2;
  }
  const auto end = thrust::copy_if(in.begin(), in.end(), odd.begin(), IsOdd());
  std::vector<int> want;
  std::copy_if(x.begin(), x.end(), std::back_inserter(want), IsOdd());
  got = odd;
  if (end - odd.begin() != static_cast<long>(want.size())) return 3;
  if (!std::equal(want.begin(), want.end(), got.begin())) return 4;

  thrust::device_vector<int> sorted = in;
  thrust::sort(sorted.begin(), sorted.end());
  got = sorted;
  std::sort(x.begin(), x.end());
  if (!std::equal(x.begin(), x.end(), got.begin())) return 5;

  thrust::device_vector<int> bins(kBins);
  size_t bytes = 0;
  cub::DeviceHistogram::HistogramEven(nullptr, bytes, in.begin(), bins.data().get(), kBins + 1, 0,
                                      1024, kCount);
  thrust::device_vector<char> space(bytes);
  cub::DeviceHistogram::HistogramEven(space.data().get(), bytes, in.begin(), bins.data().get(),
                                      kBins + 1, 0, 1024, kCount);
  got = bins;
  for (int bin = 0; bin < kBins; ++bin) {
    if (got[bin] != std::count_if(x.begin(), x.end(), [&](int v) { return v / 64 == bin; }))
      return 6;
  }
  return 0;
}
