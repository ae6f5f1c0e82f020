// FlashInfer's exact top k by clusters: a row longer than k, one that overflows its buffer, and a
// short one.
#include "host.hpp"
//
#include <algorithm>
#include <flashinfer/fast_topk_clusters_exact.cuh>

bool right(int rows, int columns, int k, int cached, int clusters, bool dependent) {
  const int overflow = columns;
  Array<float> x(size_t(rows) * columns, 1), values(rows * k);
  Array<int> indices(rows * k), space(size_t(rows) * clusters * overflow * 4);
  for (size_t i = 0; i < x.host.size(); ++i) x.host[i] = float(i * 7919 % 100003) / 100003;
  x.up();
  produce(x);
  flashinfer::sampling::launch_fast_topk_clusters_exact<float, int>(
      x.device, indices.device, values.device, columns, nullptr, space.device, overflow, rows,
      columns, k, cached, clusters, dependent, k, nullptr);
  CHECK(cudaGetLastError());
  indices.down();
  values.down();
  for (int row = 0; row < rows; ++row) {
    std::vector<float> want(x.host.begin() + row * columns, x.host.begin() + (row + 1) * columns);
    std::vector<float> got(values.host.begin() + row * k, values.host.begin() + (row + 1) * k);
    std::sort(want.rbegin(), want.rend());
    const int count = std::min(k, columns);
    got.resize(count);
    std::sort(got.rbegin(), got.rend());
    for (int i = 0; i < count; ++i)
      if (!near("values", row * k + i, got[i], want[i], 0)) return false;
  }
  return true;
}

int main() {
  if (!right(2, 5000, 64, 1024, 2, false)) return 2;
  if (!right(1, 6000, 64, 16, 4, true)) return 3;
  return right(2, 50, 64, 1024, 2, true) ? 0 : 4;
}
