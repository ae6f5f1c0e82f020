// Pixels of images by im2col maps, against what a host gathers; stores of pixels.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

constexpr int kMostBytes = 16384;

struct Start {
  int at[5];
  unsigned short offsets[3];
};

__device__ void load(int rank, uint32_t to, const CUtensorMap* map, const Start& s, uint32_t bar) {
  const int* c = s.at;
  const unsigned short* o = s.offsets;
  if (rank == 3) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4}], [%5], {%6};" ::"r"(to),
        "l"(map), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(bar), "h"(o[0])
        : "memory");
  } else if (rank == 4) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};" ::"r"(to),
        "l"(map), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(bar), "h"(o[0]), "h"(o[1])
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5, %6}], [%7], {%8, %9, %10};" ::"r"(to),
        "l"(map), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]), "r"(bar), "h"(o[0]),
        "h"(o[1]), "h"(o[2])
        : "memory");
  }
}

// Shared memory as the load leaves it, and by a store by a second map, of the same pixels.
__global__ void pixels(int rank, const __grid_constant__ CUtensorMap map,
                       const __grid_constant__ CUtensorMap stored, Start start, int bytes,
                       int footprint, uint32_t* seen, bool stores) {
  extern __shared__ __align__(1024) unsigned char tile[];
  __shared__ alignas(8) uint64_t barrier;
  const auto bar = static_cast<uint32_t>(__cvta_generic_to_shared(&barrier));
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(tile));
  for (int i = threadIdx.x; i < footprint / 4; i += blockDim.x) {
    reinterpret_cast<uint32_t*>(tile)[i] = 0x55555555;
  }
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
    load(rank, to, &map, start, bar);
  }
  uint32_t done = 0;
  while (!done) {
    asm volatile(
        "{ .reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n"
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(bar)
        : "memory");
  }
  for (int i = threadIdx.x; i < footprint / 4; i += blockDim.x) {
    seen[i] = reinterpret_cast<const uint32_t*>(tile)[i];
  }
  if (stores && threadIdx.x == 0) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group "
        "[%0, {%1, %2, %3, %4}], [%5];" ::"l"(&stored),
        "r"(start.at[0]), "r"(start.at[1]), "r"(start.at[2]), "r"(start.at[3]), "r"(to)
        : "memory");
    asm volatile("cp.async.bulk.commit_group;");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}

struct Case {
  int rank, dims[5];  // C, W, H, D, N, as many as there are
  int lower[3], upper[3], strides[5];
  int channels, pixels, swizzle;
  Start start;
  bool nan, stores;
};

// clang-format off
const Case kCases[] = {
    // A window of 3 × 2 pixels with other borders on every side, from the first pixel on.
    {4, {16, 7, 5, 3}, {-1, -2}, {-1, 1}, {1, 1, 1, 1}, 8, 40, 0, {{0, -1, -2, 0}, {0, 0}}},
    {4, {16, 7, 5, 3}, {-1, -2}, {-1, 1}, {1, 1, 1, 1}, 8, 40, 0, {{8, -1, -2, 0}, {2, 1}}},
    // From the middle, and beyond the last image.
    {4, {16, 7, 5, 3}, {-1, -2}, {-1, 1}, {1, 1, 1, 1}, 8, 64, 0, {{8, 3, 2, 1}, {1, 0}}},
    {4, {16, 7, 5, 3}, {-1, -2}, {-1, 1}, {1, 1, 1, 1}, 8, 64, 0, {{0, 2, 3, 2}, {1, 2}}, true},
    // Traversal strides, and channels that the tensor ends in.
    {4, {24, 9, 8, 2}, {-2, -1}, {0, 1}, {1, 2, 3, 1}, 16, 24, 0, {{16, -2, -1, 0}, {1, 1}}},
    {4, {24, 9, 8, 2}, {-2, -1}, {0, 1}, {1, 2, 3, 1}, 16, 24, 1, {{0, 0, 2, 0}, {3, 0}}},
    // Swizzles, with rows as wide as they are and shorter ones.
    {4, {64, 6, 6, 2}, {0, 0}, {-2, -2}, {1, 1, 1, 1}, 64, 32, 3, {{0, 0, 0, 0}, {2, 1}}},
    {4, {64, 6, 6, 2}, {0, 0}, {-2, -2}, {1, 1, 1, 1}, 32, 32, 3, {{32, 1, 2, 1}, {0, 2}}},
    {4, {64, 6, 6, 2}, {-1, -1}, {-1, -1}, {1, 1, 1, 1}, 32, 48, 2, {{32, -1, 2, 0}, {0, 2}}},
    {3, {32, 40, 3}, {-3}, {-4}, {1, 1, 1}, 32, 96, 0, {{0, 30, 0}, {7}}},
    {3, {32, 40, 3}, {-3}, {2}, {1, 4, 1}, 16, 40, 0, {{16, 1, 1}, {0}}},
    {5, {16, 4, 3, 3, 2}, {-1, 0, -1}, {-1, 1, 0}, {1, 1, 1, 1, 1}, 16, 96, 0,
     {{0, -1, 0, -1, 0}, {1, 2, 1}}},
    {5, {16, 5, 6, 4, 2}, {-1, 0, -2}, {1, -1, 0}, {1, 2, 1, 3, 1}, 8, 48, 0,
     {{8, 1, 2, 1, 0}, {2, 0, 1}}},
    // Out again: by the map's box, without offsets.
    {4, {16, 7, 5, 3}, {1, 0}, {-1, -2}, {1, 1, 1, 1}, 8, 20, 0, {{8, 1, 0, 0}, {0, 0}},
     false, true},
    {4, {16, 7, 5, 3}, {1, 0}, {-1, 0}, {1, 2, 1, 1}, 16, 24, 0, {{0, 3, 3, 1}, {0, 0}},
     false, true},
};
// clang-format on

int main() {
  unsigned char* memory = nullptr;
  constexpr int kTensor = 65536;
  cudaMalloc(&memory, 2 * kTensor + kMostBytes);
  cudaFuncSetAttribute(pixels, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostBytes);
  int wrong = 0, number = 0;
  for (const Case& each : kCases) {
    cuuint64_t dims[5], strides[4];
    cuuint32_t steps[5];
    size_t bytes = 2;
    for (int d = 0; d < each.rank; ++d) {
      dims[d] = each.dims[d], steps[d] = each.strides[d];
      if (d > 0) strides[d - 1] = bytes;
      bytes *= each.dims[d];
    }
    std::vector<uint16_t> tensor(bytes / 2), to(bytes / 2, 7), want_to(bytes / 2, 7);
    for (size_t i = 0; i < tensor.size(); ++i) tensor[i] = static_cast<uint16_t>(3 * i + 1);
    cudaMemcpy(memory, tensor.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(memory + kTensor, to.data(), bytes, cudaMemcpyHostToDevice);
    CUtensorMap maps[2];
    for (int i = 0; i < 2; ++i) {
      const CUresult made = cuTensorMapEncodeIm2col(
          &maps[i], CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, each.rank, memory + i * kTensor, dims,
          strides, each.lower, each.upper, each.channels, each.pixels, steps,
          CU_TENSOR_MAP_INTERLEAVE_NONE, static_cast<CUtensorMapSwizzle>(each.swizzle),
          CU_TENSOR_MAP_L2_PROMOTION_NONE,
          each.nan ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
                   : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
      if (made != CUDA_SUCCESS) {
        std::printf("case %d: no map: %d\n", number, made);
        return 1;
      }
    }
    const int row = 2 * each.channels, pitch = each.swizzle == 0 ? row : 16 << each.swizzle;
    const int footprint = pitch * each.pixels;
    std::vector<uint16_t> want(footprint / 2, 0x5555), seen(footprint / 2);
    int place[5] = {};
    for (int d = 0; d < each.rank; ++d) place[d] = each.start.at[d];
    for (int pixel = 0; pixel < each.pixels; ++pixel) {
      for (int i = 0; i < each.channels; ++i) {
        const int channel = each.start.at[0] + i;
        bool inside = channel < each.dims[0];
        size_t at = channel;
        for (int d = 1; d < each.rank; ++d) {
          const int here = place[d] + (d + 1 < each.rank ? each.start.offsets[d - 1] : 0);
          inside = inside && here >= 0 && here < each.dims[d];
          at += here * (strides[d - 1] / 2);
        }
        int byte = pixel * pitch + 2 * i;
        byte ^= (byte >> 7 & ((1 << each.swizzle) - 1)) << 4;
        want[byte / 2] = inside ? tensor[at] : each.nan ? 0x7ff7 : 0;
        if (inside && each.stores) want_to[at] = tensor[at];
      }
      for (int d = 1; d < each.rank; ++d) {
        place[d] += each.strides[d];
        if (d + 1 == each.rank || place[d] < each.dims[d] + each.upper[d - 1]) break;
        place[d] = each.lower[d - 1];
      }
    }
    unsigned char* const out = memory + 2 * kTensor;
    pixels<<<1, 128, kMostBytes>>>(each.rank, maps[0], maps[1], each.start, row * each.pixels,
                                   footprint, reinterpret_cast<uint32_t*>(out), each.stores);
    const cudaError_t status = cudaMemcpy(seen.data(), out, footprint, cudaMemcpyDeviceToHost);
    cudaMemcpy(to.data(), memory + kTensor, bytes, cudaMemcpyDeviceToHost);
    int bad = 0, first = -1, bad_to = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      if (seen[i] != want[i] && bad++ == 0) first = static_cast<int>(i);
    }
    for (size_t i = 0; i < to.size(); ++i) bad_to += to[i] != want_to[i];
    if (status != cudaSuccess || bad + bad_to != 0) {
      std::printf("case %d: %s, %d of %zu wrong, first %d: %#x for %#x; stored %d\n", number,
                  cudaGetErrorString(status), bad, want.size(), first, first < 0 ? 0 : seen[first],
                  first < 0 ? 0 : want[first], bad_to);
      ++wrong;
    }
    ++number;
  }
  std::printf("%d of %d cases wrong\n", wrong, number);
  return wrong != 0;
}
