// What the programs of CUTLASS's attentions share: their rows, and the call of an operation.
#pragma once

#include <cutlass/numeric_types.h>

#include "attention.hpp"

struct Rows {
  int heads, queries, keys, width;
  bool causal;
  Array<cutlass::half_t> q, k, v, o;
  Array<float> lse;

  Rows(int heads, int queries, int keys, int width, bool causal)
      : heads(heads),
        queries(queries),
        keys(keys),
        width(width),
        causal(causal),
        q(size_t(queries) * heads * width, 1),
        k(size_t(keys) * heads * width, 2),
        v(k.host.size(), 3),
        o(q.host.size()),
        lse(size_t(heads) * queries) {}

  template <typename Operation>
  void run(const typename Operation::Arguments& arguments) {
    Array<uint8_t> space(Operation::get_workspace_size(arguments) + 1);
    Operation operation;
    CHECK(operation.can_implement(arguments));
    CHECK(operation.initialize(arguments, space.device));
    CHECK(operation.run());
    CHECK(cudaDeviceSynchronize());
    o.down();
  }
  bool right() const {
    return attention_near(q, k, v, o, queries, keys, heads, heads, width, causal, 4e-3);
  }
};
