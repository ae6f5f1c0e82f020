// FlashInfer's norms of rows: RMS, with a residual, of heads; layer norm.
#include "host.hpp"
//
#include <flashinfer/norm.cuh>

using flashinfer::norm::FusedAddRMSNorm;
using flashinfer::norm::QKRMSNorm;
using flashinfer::norm::RMSNorm;
using bf16 = __nv_bfloat16;

constexpr int kRows = 3;

double scale(const Array<bf16>& x, const Array<bf16>* residual, int row, int columns) {
  double sum = 0;
  for (int i = 0; i < columns; ++i) {
    const size_t at = size_t(row) * columns + i;
    const double each = x[at] + (residual ? (*residual)[at] : 0);
    sum += each * each;
  }
  return 1 / std::sqrt(sum / columns + 1e-5);
}

bool rms(int columns) {
  Array<bf16> x(kRows * columns, 1), weight(columns, 2), y(kRows * columns);
  produce(x);
  CHECK(RMSNorm<bf16>(x.device, weight.device, y.device, kRows, columns, columns, columns, 1e-5,
                      true));
  y.down();
  for (int at = 0; at < kRows * columns; ++at) {
    const double want = x[at] * scale(x, nullptr, at / columns, columns) * weight[at % columns];
    if (!near("rms", at, y[at], want, 1e-2)) return false;
  }
  return true;
}

bool fused(int columns) {
  Array<bf16> x(kRows * columns, 1), residual(kRows * columns, 3), weight(columns, 2);
  const Array<bf16> before = x, added = residual;
  produce(x, residual);
  CHECK(FusedAddRMSNorm<bf16>(x.device, residual.device, weight.device, kRows, columns, columns,
                              columns, 1e-5, true));
  x.down();
  residual.down();
  for (int at = 0; at < kRows * columns; ++at) {
    const double sum = before[at] + added[at];
    const double want = sum * scale(before, &added, at / columns, columns) * weight[at % columns];
    if (!near("fused", at, x[at], want, 1e-2)) return false;
    if (!near("residual", at, residual[at], sum, 1e-2)) return false;
  }
  return true;
}

bool heads() {
  constexpr int kHeads = 5, kColumns = 64;
  Array<bf16> x(kRows * kHeads * kColumns, 1), weight(kColumns, 2), y(x.host.size());
  produce(x);
  CHECK(QKRMSNorm<bf16>(x.device, weight.device, y.device, kRows, kHeads, kColumns,
                        kHeads * kColumns, kColumns, kHeads * kColumns, kColumns, 1e-5, true));
  y.down();
  for (size_t at = 0; at < y.host.size(); ++at) {
    const double want =
        x[at] * scale(x, nullptr, int(at / kColumns), kColumns) * weight[at % kColumns];
    if (!near("heads", at, y[at], want, 1e-2)) return false;
  }
  return true;
}

bool layer() {
  constexpr int kColumns = 96;
  Array<bf16> x(kRows * kColumns, 1), y(x.host.size());
  Array<float> gain(kColumns, 2), shift(kColumns, 3);
  CHECK((flashinfer::norm::LayerNorm<bf16, float>(x.device, gain.device, shift.device, y.device,
                                                  kRows, kColumns)));
  y.down();
  for (int at = 0; at < kRows * kColumns; ++at) {
    double mean = 0, variance = 0;
    for (int i = 0; i < kColumns; ++i) mean += x[at / kColumns * kColumns + i] / kColumns;
    for (int i = 0; i < kColumns; ++i)
      variance += std::pow(x[at / kColumns * kColumns + i] - mean, 2) / kColumns;
    const double want =
        (x[at] - mean) / std::sqrt(variance + 1e-5) * gain[at % kColumns] + shift[at % kColumns];
    if (!near("layer", at, y[at], want, 2e-2)) return false;
  }
  return true;
}

int main() {
  for (const int columns : {64, 256, 1000, 1088}) {
    if (!rms(columns)) return 2;
    if (!fused(columns)) return 3;
  }
  if (!heads()) return 4;
  return layer() ? 0 : 5;
}
