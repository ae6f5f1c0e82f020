// FlashInfer's probabilities of a row's top p by radix: passes of several CTAs, the last of them
// sums.
#include "host.hpp"
//
#include <cooperative_groups.h>

#include <algorithm>
#include <flashinfer/air_top_p.cuh>

template <bool kDeterministic>
bool right() {
  constexpr int kRows = 2, kColumns = 30000;
  constexpr float kP = 0.4f;
  Array<float> x(kRows * kColumns), y(kRows * kColumns);
  for (int row = 0; row < kRows; ++row) {
    double sum = 0;
    for (int i = 0; i < kColumns; ++i)
      sum += x.host[row * kColumns + i] = std::exp(float(i * 7919 % 30011) / 3000);
    for (int i = 0; i < kColumns; ++i) x.host[row * kColumns + i] /= sum;
  }
  x.up();
  Array<uint8_t> space(1 << 22);
  CHECK((flashinfer::sampling::air_top_p::AirTopPRenormProb<kDeterministic, float>(
      x.device, y.device, nullptr, kRows, kP, kColumns, space.device)));
  y.down();
  for (int row = 0; row < kRows; ++row) {
    std::vector<float> sorted(x.host.begin() + row * kColumns,
                              x.host.begin() + (row + 1) * kColumns);
    std::sort(sorted.rbegin(), sorted.rend());
    double kept = 0;
    int count = 0;
    while (kept < kP) kept += sorted[count++];
    double sum = 0;
    int got = 0;
    for (int i = 0; i < kColumns; ++i) {
      sum += y[row * kColumns + i];
      got += y[row * kColumns + i] > 0;
    }
    if (!near("sum", row, sum, 1, 1e-3) || !near("kept", row, got, count, 1e-2)) return false;
  }
  return true;
}

int main() {
  return right<false>() ? right<true>() ? 0 : 3 : 2;
}
