// Attention in double precision: rows of queries [length, heads, dim] and of keys and values.
#pragma once

#include "host.hpp"

template <typename T>
bool attention_near(const Array<T>& q, const Array<T>& k, const Array<T>& v, const Array<T>& o,
                    int queries, int keys, int heads, int kv_heads, int dim, bool causal,
                    double tolerance) {
  std::vector<double> weight(keys);
  for (int query = 0; query < queries; ++query) {
    for (int head = 0; head < heads; ++head) {
      const int kv_head = head / (heads / kv_heads),
                seen = causal ? keys - queries + query + 1 : keys;
      const size_t row = (size_t(query) * heads + head) * dim;
      double sum = 0;
      for (int key = 0; key < seen; ++key) {
        double dot = 0;
        for (int i = 0; i < dim; ++i) dot += q[row + i] * k[(key * kv_heads + kv_head) * dim + i];
        sum += weight[key] = std::exp(dot / std::sqrt(double(dim)));
      }
      for (int i = 0; i < dim; ++i) {
        double want = 0;
        for (int key = 0; key < seen; ++key)
          want += weight[key] / sum * v[(key * kv_heads + kv_head) * dim + i];
        if (!near("o", row + i, o[row + i], want, tolerance)) return false;
      }
    }
  }
  return true;
}
