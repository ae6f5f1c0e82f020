// Cooperative groups: tiles, reductions, scans, labelled and coalesced groups, clusters.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <vector>

#include "check.h"
namespace cg = cooperative_groups;
constexpr int kThreads = 64;
__global__ void row_sums(const int* in, int* out, int rows, int n) {  // a tile of 16 a row
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<16>(block);
  const int row = blockIdx.x * (kThreads / 16) + tile.meta_group_rank();
  if (row >= rows) return;
  int sum = 0;
  for (int i = tile.thread_rank(); i < n; i += tile.size()) sum += in[row * n + i];
  sum = cg::reduce(tile, sum, cg::plus<int>());
  if (tile.thread_rank() == 0) out[row] = sum;
}
__global__ void compact(const int* in, int n, int* out,
                        int* count) {  // the odd ones, by a coalesced group
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && in[i] % 2) {
    auto active = cg::coalesced_threads();
    int first = 0;
    if (active.thread_rank() == 0) first = atomicAdd(count, int(active.size()));
    first = active.shfl(first, 0);
    out[first + active.thread_rank()] = in[i];
  }
}
__global__ void by_label(const int* in, int n, int* sums) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  const int label = i < n ? in[i] % 4 : 4;
  auto group = cg::labeled_partition(warp, label);
  const int sum = cg::reduce(group, i < n ? in[i] : 0, cg::plus<int>());
  if (group.thread_rank() == 0 && label < 4) atomicAdd(&sums[label], sum);
}
__global__ void scan(const int* in, int* out, int n) {  // one block
  __shared__ int ends[kThreads / 32];
  auto block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  const int i = threadIdx.x;
  const int mine = i < n ? in[i] : 0;
  int value = cg::inclusive_scan(warp, mine);
  if (warp.thread_rank() == 31) ends[warp.meta_group_rank()] = value;
  block.sync();
  for (int w = 0; w < warp.meta_group_rank(); ++w) value += ends[w];
  if (i < n) out[i] = value;
}
__global__ void __cluster_dims__(4, 1, 1) cluster_sum(const int* in, int n, int* out) {
  __shared__ int part;
  auto cluster = cg::this_cluster();
  auto block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  if (threadIdx.x == 0) part = 0;
  block.sync();
  int sum = 0;
  for (int i = cluster.thread_rank(); i < n; i += cluster.num_threads()) sum += in[i];
  sum = cg::reduce(warp, sum, cg::plus<int>());
  if (warp.thread_rank() == 0) atomicAdd(&part, sum);
  cluster.sync();
  if (cluster.block_rank() == 0 && threadIdx.x == 0) {
    int all = 0;
    for (unsigned r = 0; r < cluster.num_blocks(); ++r) all += *cluster.map_shared_rank(&part, r);
    *out = all;
  }
  cluster.sync();
}
int main() {
  const int rows = 10, n = 50;
  std::vector<int> host(rows * n);
  for (int i = 0; i < rows * n; ++i) host[i] = (i * 7 + i / 3) % 41;
  int *in, *out;
  CHECK(cudaMalloc(&in, host.size() * 4));
  CHECK(cudaMalloc(&out, 4096));
  CHECK(cudaMemcpy(in, host.data(), host.size() * 4, cudaMemcpyHostToDevice));
  std::vector<int> got(1024);
  auto fetch = [&](int many) {
    return cudaMemcpy(got.data(), out, many * 4, cudaMemcpyDeviceToHost) == cudaSuccess;
  };
  row_sums<<<3, kThreads>>>(in, out, rows, n);
  if (!fetch(rows)) return 1;
  for (int r = 0; r < rows; ++r) {
    int s = 0;
    for (int i = 0; i < n; ++i) s += host[r * n + i];
    if (s != got[r]) {
      std::puts("rows");
      return 1;
    }
  }
  CHECK(cudaMemset(out, 0, 4096));
  compact<<<(rows * n + 63) / 64, 64>>>(in, rows * n, out + 1, out);
  if (!fetch(1 + rows * n)) return 1;
  int odd = 0;
  long sum = 0, want = 0;
  for (int v : host)
    if (v % 2) {
      ++odd;
      want += v;
    }
  for (int i = 0; i < odd; ++i) sum += got[1 + i];
  if (got[0] != odd || sum != want) {
    std::puts("compact");
    return 1;
  }
  CHECK(cudaMemset(out, 0, 4096));
  by_label<<<8, 64>>>(in, rows * n, out);
  if (!fetch(4)) return 1;
  for (int l = 0; l < 4; ++l) {
    int s = 0;
    for (int v : host)
      if (v % 4 == l) s += v;
    if (s != got[l]) {
      std::puts("labels");
      return 1;
    }
  }
  scan<<<1, kThreads>>>(in, out, 60);
  if (!fetch(60)) return 1;
  for (int i = 0, s = 0; i < 60; ++i) {
    s += host[i];
    if (got[i] != s) {
      std::puts("scan");
      return 1;
    }
  }
  cluster_sum<<<4, kThreads>>>(in, rows * n, out);
  CHECK(cudaGetLastError());
  if (!fetch(1)) return 1;
  int all = 0;
  for (int v : host) all += v;
  if (got[0] != all) {
    std::puts("cluster");
    return 1;
  }
  std::puts("ok");
  return 0;
}
