// tcgen05.cp and the block-scaled product by one thread. Operands come from descriptors and tensor
// memory addresses alone. Codes become integers of twice their value, so the sum over a scale's
// block of 16 is exact; each block is then one fp32 FMA, the blocks in order.
#pragma once

#include "ptx/cluster.cuh"
#include "ptx/cvt.cuh"
#include "tmem.inl"

namespace kb::soft {

inline constexpr uint32_t kRows = 128;  // of D in each CTA
inline constexpr uint32_t kBlocks = 4;  // scales per row in K = 64
inline constexpr uint32_t kSmemOffsetMask = 0x3ffff;

// A K-major tile, from its descriptor (PTX ISA 9.1, 9.7.16.4.1).
struct OperandTile {
  uint32_t start, leading, stride;  // bytes
  uint32_t swizzle_rows;            // rows after which the permutation repeats, less one; 0: none
  uint32_t row_bytes;
};

KB_DEVICE OperandTile operand_tile(uint64_t descriptor) {
  // Zero: bits 15:14, 31:30, base offset 51:49, leading mode 52, 60:53. One: 48:46.
  constexpr uint64_t kFixedBits = 0x1fffc000c000c000;
  constexpr uint64_t kFixedValue = uint64_t{1} << 46;
  const auto swizzle = static_cast<uint32_t>(descriptor >> 61);
  OperandTile tile;
  tile.start = (descriptor & 0x3fff) << 4;
  tile.leading = (descriptor >> 16 & 0x3fff) << 4;
  tile.stride = (descriptor >> 32 & 0x3fff) << 4;
  // Codes 2, 4, 6: 128, 64 and 32 bytes; 1, 3, 5 and 7 are not for K-major FP4.
  tile.row_bytes = swizzle == 0 ? 16 : 256u >> (swizzle / 2);
  tile.swizzle_rows = swizzle == 0 ? 0 : tile.row_bytes / 16 - 1;
  if ((descriptor & kFixedBits) != kFixedValue || swizzle % 2 != 0) {
    fail(Fault::kSmemDescriptor, static_cast<uint32_t>(descriptor),
         static_cast<uint32_t>(descriptor >> 32));
  }
  return tile;
}

// Offset in shared memory of 16 bytes of a row: `chunk` 0 or 1.
KB_DEVICE uint32_t chunk_offset(const OperandTile& tile, uint32_t row, uint32_t chunk) {
  const uint32_t linear = tile.start + row / 8 * tile.stride + row % 8 * tile.row_bytes;
  if (tile.swizzle_rows == 0) return linear + chunk * tile.leading;
  const uint32_t place = linear + chunk * 16;
  return place ^ ((place >> 7 & tile.swizzle_rows) << 4);
}

// What to add to an offset for a shared::cluster address in the CTA with that rank.
KB_DEVICE uint32_t smem_window(uint32_t rank) {
  return ptx::mapa(&shared_storage<Mbarrier>(), rank).bits & ~kSmemOffsetMask;
}

KB_DEVICE uint4 load_chunk(uint32_t window, uint32_t offset) {
  uint4 chunk;
  // clang-format off
  asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(chunk.x), "=r"(chunk.y), "=r"(chunk.z), "=r"(chunk.w)
               : "r"(window | (offset & kSmemOffsetMask)) : "memory");
  // clang-format on
  return chunk;
}

// Bytes chosen by four nibbles: low bits the byte; the high bit replicates its sign instead, which
// is 0 for the tables here.
KB_DEVICE uint32_t pick_bytes(uint32_t low, uint32_t high, uint32_t nibbles) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(nibbles));
  return bytes;
}

// Four e2m1 codes (sign, magnitude 0 0.5 1 1.5 2 3 4 6) as signed bytes of twice their value.
KB_DEVICE uint32_t decode_codes(uint32_t codes) {
  constexpr uint32_t kLow = 0x03020100;
  constexpr uint32_t kHigh = 0x0c080604;
  const uint32_t positive = pick_bytes(kLow, kHigh, codes);
  const uint32_t negative = pick_bytes(kLow, kHigh, codes ^ 0x8888);
  return __vsub4(positive, negative);
}

KB_DEVICE void decode_row(const OperandTile& tile, uint32_t window, uint32_t row,
                          uint32_t (&out)[16]) {
#pragma unroll
  for (int chunk = 0; chunk < 2; ++chunk) {
    const uint4 raw = load_chunk(window, chunk_offset(tile, row, chunk));
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      out[8 * chunk + 2 * i] = decode_codes(words[i]);
      out[8 * chunk + 2 * i + 1] = decode_codes(words[i] >> 16);
    }
  }
}

// The four scales of a row of A or B: byte b of lane x % 32, column x / 32, in all four groups of
// 32 lanes. Bit 7 of an ue4m3 is not part of it.
KB_DEVICE void decode_scales(const Slab& slab, uint32_t address, uint32_t x, float (&out)[4]) {
  const uint32_t column = tmem_column(address) + x / 32;
  const uint32_t word = load_word(&slab.tmem[x % 32][column]);
#pragma unroll
  for (uint32_t replica = 1; replica < 4; ++replica) {
    if (load_word(&slab.tmem[x % 32 + 32 * replica][column]) != word) {
      fail(Fault::kScaleReplicas, column, x % 32);
    }
  }
#pragma unroll
  for (int pair = 0; pair < 2; ++pair) {
    const auto bits = static_cast<uint16_t>(word >> (16 * pair) & 0x7f7f);
    const f16x2 halves = ptx::cvt_rn_f16x2_e4m3x2(__builtin_bit_cast(e4m3x2, bits));
    out[2 * pair] = ptx::cvt_f32_f16(halves.lo);
    out[2 * pair + 1] = ptx::cvt_f32_f16(halves.hi);
  }
}

// d plus the product of a row of A and a column of B. The sum of a block is formed on top of the
// bits of 1.5 * 2^23, where an integer step is a step of 1.
KB_DEVICE float add_product(float d, const uint32_t (&a)[16], const float (&scales)[4],
                            const DecodedColumn& b) {
  constexpr int kBias = 0x4b400000;
#pragma unroll
  for (uint32_t block = 0; block < kBlocks; ++block) {
    int sum = kBias;
#pragma unroll
    for (uint32_t i = 4 * block; i < 4 * block + 4; ++i) {
      sum = __dp4a(static_cast<int>(a[i]), static_cast<int>(b.codes[i]), sum);
    }
    const float exact = __int_as_float(sum) - __int_as_float(kBias);
    d = __fmaf_rn(exact, scales[block] * b.scales[block], d);
  }
  return d;
}

// Instruction descriptor of kind mxf4nvf4 (PTX ISA 9.1, 9.7.16.4.2).
struct ProductShape {
  uint32_t n;
  float sign;
};

template <int kCtas>
KB_DEVICE ProductShape product_shape(uint32_t instruction) {
  // Zero: sparsity, scale ids, transposition, ue8m0 scales, K = 96 and what is reserved.
  constexpr uint32_t kZero = 0xe781907f;
  constexpr uint32_t kTypes = 0xf80;
  constexpr uint32_t kE2m1 = 1u << 7 | 1u << 10;
  const uint32_t n = (instruction >> 17 & 0x3f) * 8;
  const uint32_t m = (instruction >> 27 & 3) * 128;
  if ((instruction & kZero) != 0 || (instruction & kTypes) != kE2m1 || m != kRows * kCtas ||
      n == 0 || n > kMaxN || n % (8 * kCtas) != 0) {
    fail(Fault::kInstruction, instruction);
  }
  return {n, (instruction >> 13 & 1) == (instruction >> 14 & 1) ? 0.25f : -0.25f};
}

KB_DEVICE void check_one_lane() {
  const uint32_t lanes = __activemask();
  if ((lanes & (lanes - 1)) != 0) fail(Fault::kSeveralLanes, lanes);
}

// B and its scales for one CTA's rows of D. With two CTAs each holds half of the columns: `first`
// and `last` are their windows, of one CTA the same.
template <int kCtas>
KB_DEVICE void decode_b(Slab& slab, const OperandTile& tile, uint32_t first, uint32_t last,
                        uint32_t scales, uint32_t n) {
  const uint32_t share = n / kCtas;
#pragma unroll 2
  for (uint32_t x = 0; x < n; ++x) {
    const bool second = x >= share;
    DecodedColumn column;
    decode_row(tile, second ? last : first, second ? x - share : x, column.codes);
    decode_scales(slab, scales, x, column.scales);
    slab.columns[x] = column;
  }
}

// Rows and columns of D that one pass of the inner loop computes.
inline constexpr uint32_t kStep = 4;
using DBlock = float[kStep][kStep];

KB_DEVICE void load_d(DBlock& d, const uint32_t* corner, bool accumulate) {
#pragma unroll
  for (uint32_t i = 0; i < kStep; ++i) {
#pragma unroll
    for (uint32_t j = 0; j < kStep; ++j) {
      d[i][j] = accumulate ? __uint_as_float(load_word(corner + i * kTmemColumns + j)) : 0.0f;
    }
  }
}

KB_DEVICE void store_d(uint32_t* corner, const DBlock& d) {
#pragma unroll
  for (uint32_t i = 0; i < kStep; ++i) {
#pragma unroll
    for (uint32_t j = 0; j < kStep; ++j) {
      store_word(corner + i * kTmemColumns + j, __float_as_uint(d[i][j]));
    }
  }
}

// The rows of D of one CTA.
KB_DEVICE void multiply(Slab& slab, uint32_t d_address, const OperandTile& a, uint32_t window,
                        uint32_t scales_a, const ProductShape& shape, bool accumulate) {
  for (uint32_t m = 0; m < kRows; m += kStep) {
    uint32_t codes[kStep][16];
    float scales[kStep][4];
#pragma unroll
    for (uint32_t i = 0; i < kStep; ++i) {
      decode_row(a, window, m + i, codes[i]);
      decode_scales(slab, scales_a, m + i, scales[i]);
#pragma unroll
      for (float& scale : scales[i]) scale *= shape.sign;
    }
    uint32_t* row = &slab.tmem[m][tmem_column(d_address)];
    DBlock next;
    load_d(next, row, accumulate);
    for (uint32_t n = 0; n < shape.n; n += kStep) {
      DBlock d;
#pragma unroll
      for (uint32_t i = 0; i < kStep * kStep; ++i)
        d[i / kStep][i % kStep] = next[i / kStep][i % kStep];
      if (n + kStep < shape.n) load_d(next, row + n + kStep, accumulate);
#pragma unroll
      for (uint32_t j = 0; j < kStep; ++j) {
        const DecodedColumn column = slab.columns[n + j];
#pragma unroll
        for (uint32_t i = 0; i < kStep; ++i) {
          d[i][j] = add_product(d[i][j], codes[i], scales[i], column);
        }
      }
      store_d(row + n, d);
    }
  }
}

// Each CTA of the group multiplies its own rows of A with all of B, in its own tensor memory.
template <int kCtas>
__device__ __noinline__ void product(uint32_t d, uint64_t a, uint64_t b, uint32_t instruction,
                                     uint32_t scales_a, uint32_t scales_b, bool accumulate) {
  check_one_lane();
  const ProductShape shape = product_shape<kCtas>(instruction);
  const OperandTile tile_a = operand_tile(a);
  const OperandTile tile_b = operand_tile(b);
  if (tmem_lane(scales_a) != 0) fail(Fault::kScaleAddress, scales_a);
  if (tmem_lane(scales_b) != 0) fail(Fault::kScaleAddress, scales_b);
  if (tmem_lane(d) != 0) fail(Fault::kLanes, d);
  const uint32_t leader = kCtas == 2 ? ptx::cluster_ctarank() & ~1u : ptx::cluster_ctarank();
  const uint32_t first = linear_cta() - (ptx::cluster_ctarank() - leader);
  const uint32_t first_window = smem_window(leader);
  const uint32_t last_window = smem_window(leader + kCtas - 1);
#pragma unroll 1
  for (uint32_t i = 0; i < kCtas; ++i) {
    check_columns(first + i, d, shape.n);
    check_columns(first + i, scales_a, kRows / 32);
    check_columns(first + i, scales_b, (shape.n + 31) / 32);
    Slab& slab = state.slabs[first + i];
    decode_b<kCtas>(slab, tile_b, first_window, last_window, scales_b, shape.n);
    multiply(slab, d, tile_a, i == 0 ? first_window : last_window, scales_a, shape, accumulate);
  }
}

// Rows of 16 bytes to lanes i, i + 32, i + 64 and i + 96, in each CTA from its own shared memory.
template <int kCtas>
__device__ __noinline__ void copy_scales(uint32_t address, uint64_t source) {
  check_one_lane();
  const OperandTile tile = operand_tile(source);
  if (tile.swizzle_rows != 0) {
    fail(Fault::kSmemDescriptor, static_cast<uint32_t>(source),
         static_cast<uint32_t>(source >> 32));
  }
  if (tmem_lane(address) != 0 || address % 4 != 0) fail(Fault::kScaleAddress, address);
  const uint32_t leader = kCtas == 2 ? ptx::cluster_ctarank() & ~1u : ptx::cluster_ctarank();
  const uint32_t first = linear_cta() - (ptx::cluster_ctarank() - leader);
#pragma unroll 1
  for (uint32_t cta = 0; cta < kCtas; ++cta) {
    check_columns(first + cta, address, 4);
    const uint32_t window = smem_window(leader + cta);
    Slab& slab = state.slabs[first + cta];
#pragma unroll 4
    for (uint32_t row = 0; row < 32; ++row) {
      const uint4 chunk = load_chunk(window, chunk_offset(tile, row, 0));
      const uint32_t words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
      for (uint32_t i = 0; i < 16; ++i) {
        store_word(&slab.tmem[row + i / 4 * 32][tmem_column(address) + i % 4], words[i % 4]);
      }
    }
  }
}

}  // namespace kb::soft
