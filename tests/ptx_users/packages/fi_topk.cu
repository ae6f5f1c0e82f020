// FlashInfer's largest elements of rows, by radix: several CTAs of a row with counters between
// them, and one CTA with a filter.
#include "host.hpp"
//
#include <flashinfer/math.cuh>
//
#include <algorithm>
#include <flashinfer/topk.cuh>

using namespace flashinfer::sampling;

bool right(int rows, int columns, int count, bool deterministic, bool filtered) {
  Array<float> x(size_t(rows) * columns, 1), values(rows * count);
  Array<int> indices(rows * count);
  Array<uint8_t> states(1 << 20);  // as the package's own launchers give
  for (size_t i = 0; i < x.host.size(); ++i) x.host[i] = float(i * 7919 % 100003) / 100003;
  x.up();
  CHECK(cudaMemset(states.device, 0, states.host.size()));
  auto* const state = reinterpret_cast<RadixRowState*>(states.device);
  if (filtered) {
    CHECK((FilteredTopK<float, int>(x.device, indices.device, values.device, nullptr, rows, count,
                                    columns, deterministic)));
  } else {
    CHECK((RadixTopKMultiCTA<float, int>(x.device, indices.device, values.device, nullptr, rows,
                                         count, columns, state, deterministic)));
  }
  indices.down();
  values.down();
  for (int row = 0; row < rows; ++row) {
    std::vector<float> want(x.host.begin() + row * columns, x.host.begin() + (row + 1) * columns);
    std::vector<float> got(values.host.begin() + row * count,
                           values.host.begin() + (row + 1) * count);
    std::sort(want.rbegin(), want.rend());
    for (int i = 0; i < count; ++i) {
      const int index = indices.host[row * count + i];
      if (index < 0 || index >= columns) return false;
      if (!near("at", i, x[row * columns + index], got[i], 0)) return false;
    }
    std::sort(got.rbegin(), got.rend());
    for (int i = 0; i < count; ++i)
      if (!near("values", row * count + i, got[i], want[i], 0)) return false;
  }
  return true;
}

int main() {
  if (!right(2, 1000, 10, false, false)) return 2;
  if (!right(1, 70000, 16, false, false)) return 3;
  if (!right(1, 70000, 16, true, false)) return 4;
  return right(2, 5000, 32, false, true) ? 0 : 5;
}
