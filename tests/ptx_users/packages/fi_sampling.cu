// FlashInfer's sampling: softmax of rows, a token by its probability, by top k, top p and min p.
#include "host.hpp"
//
#include <flashinfer/sampling.cuh>

using namespace flashinfer::sampling;

int main() {
  constexpr int kRows = 3, kColumns = 1000;
  Array<float> logits(kRows * kColumns, 1), probabilities(kRows * kColumns),
      renormed(kRows * kColumns);
  Array<int> tokens(kRows);
  Array<uint8_t> space(1 << 20);
  static_assert(sizeof(bool) == 1);
  Array<uint8_t> valid(kRows);
  produce(logits);
  CHECK((OnlineSoftmax<float>(logits.device, probabilities.device, kRows, kColumns, nullptr, 0.5f,
                              space.device, space.host.size(), true)));
  probabilities.down();
  for (int row = 0; row < kRows; ++row) {
    double sum = 0;
    for (int i = 0; i < kColumns; ++i) sum += std::exp(2 * logits[row * kColumns + i]);
    for (int i = 0; i < kColumns; ++i) {
      const size_t at = row * kColumns + i;
      if (!near("p", at, probabilities[at] * 1e3, std::exp(2 * logits[at]) / sum * 1e3, 1e-3))
        return 2;
    }
  }
  bool* ok = reinterpret_cast<bool*>(valid.device);
  const auto sampled = [&](const char* what, double least) {
    tokens.down();
    for (int row = 0; row < kRows; ++row) {
      const int token = tokens.host[row];
      if (token < 0 || token >= kColumns || probabilities[row * kColumns + token] < least) {
        std::printf("%s: token %d of row %d\n", what, token, row);
        return false;
      }
    }
    return true;
  };
  float* const p = probabilities.device;
  CHECK((SamplingFromLogits<float, int>(logits.device, tokens.device, nullptr, kRows, kColumns,
                                        true, nullptr, 1, nullptr, 0)));
  if (!sampled("logits", 0)) return 3;
  CHECK((SamplingFromProb<float, int>(p, tokens.device, ok, nullptr, kRows, kColumns, true, nullptr,
                                      1, nullptr, 0)));
  if (!sampled("probabilities", 0)) return 4;
  CHECK((TopKSamplingFromProb<float, int>(p, tokens.device, ok, nullptr, nullptr, kRows, 20,
                                          kColumns, true, nullptr, 1, nullptr, 0)));
  if (!sampled("top k", 0)) return 5;
  CHECK((TopPSamplingFromProb<float, int>(p, tokens.device, ok, nullptr, nullptr, kRows, 0.3f,
                                          kColumns, true, nullptr, 1, nullptr, 0)));
  if (!sampled("top p", 0)) return 6;
  CHECK((MinPSamplingFromProb<float, int>(p, nullptr, tokens.device, ok, nullptr, kRows, 0.5f,
                                          kColumns, true, nullptr, 1, nullptr, 0)));
  if (!sampled("min p", 0)) return 7;
  CHECK((TopPRenormProb<float>(p, renormed.device, nullptr, kRows, 0.5f, kColumns)));
  renormed.down();
  for (int row = 0; row < kRows; ++row) {
    double sum = 0;
    for (int i = 0; i < kColumns; ++i) sum += renormed[row * kColumns + i];
    if (!near("renormed", row, sum, 1, 1e-3)) return 8;
  }
  return 0;
}
