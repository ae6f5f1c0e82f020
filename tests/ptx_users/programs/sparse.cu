// mma.sp of every type and shape, against the product of the matrix that values and metadata mean.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

// Registers of a lane: of A and B each, of C and D.
#define FOUR_FOUR(opcode, selector)                                                           \
  asm volatile(opcode                                                                         \
               " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, "                    \
               "{%12, %13, %14, %15}, %16, " #selector ";"                                    \
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])                               \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), \
                 "r"(b[3]), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(e))
#define TWO_FOUR(opcode, selector)                                                                 \
  asm volatile(opcode " {%0, %1, %2, %3}, {%4, %5}, {%6, %7}, {%8, %9, %10, %11}, %12, " #selector \
                      ";"                                                                          \
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])                                    \
               : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]),      \
                 "r"(c[3]), "r"(e))
#define FOUR_TWO(opcode, selector)                                                                 \
  asm volatile(opcode " {%0, %1}, {%2, %3, %4, %5}, {%6, %7, %8, %9}, {%10, %11}, %12, " #selector \
                      ";"                                                                          \
               : "=r"(d[0]), "=r"(d[1])                                                            \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]),      \
                 "r"(b[3]), "r"(c[0]), "r"(c[1]), "r"(e))
#define TWO_TWO(opcode, selector)                                                   \
  asm volatile(opcode " {%0, %1}, {%2, %3}, {%4, %5}, {%6, %7}, %8, " #selector ";" \
               : "=r"(d[0]), "=r"(d[1])                                             \
               : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(e))

// Form, name, shape and what follows, types of A and B, depth, selector.
#define CASES(X)                                                                    \
  X(TWO_FOUR, f16_k16_0, "m16n8k16.row.col.f32.f16.f16.f32", kF16, kF16, 16, 0)     \
  X(TWO_FOUR, f16_k16_1, "m16n8k16.row.col.f32.f16.f16.f32", kF16, kF16, 16, 1)     \
  X(TWO_TWO, f16_k16_2, "m16n8k16.row.col.f16.f16.f16.f16", kF16, kF16, 16, 2)      \
  X(TWO_FOUR, f16_k16_3, "m16n8k16.row.col.f32.f16.f16.f32", kF16, kF16, 16, 3)     \
  X(FOUR_FOUR, f16_k32_0, "m16n8k32.row.col.f32.f16.f16.f32", kF16, kF16, 32, 0)    \
  X(FOUR_TWO, f16_k32_1, "m16n8k32.row.col.f16.f16.f16.f16", kF16, kF16, 32, 1)     \
  X(TWO_FOUR, bf16_k16, "m16n8k16.row.col.f32.bf16.bf16.f32", kBf16, kBf16, 16, 1)  \
  X(FOUR_FOUR, bf16_k32, "m16n8k32.row.col.f32.bf16.bf16.f32", kBf16, kBf16, 32, 1) \
  X(TWO_FOUR, tf32_k8, "m16n8k8.row.col.f32.tf32.tf32.f32", kTf32, kTf32, 8, 2)     \
  X(FOUR_FOUR, tf32_k16, "m16n8k16.row.col.f32.tf32.tf32.f32", kTf32, kTf32, 16, 1) \
  X(FOUR_FOUR, e4m3, "m16n8k64.row.col.f32.e4m3.e4m3.f32", kE4m3, kE4m3, 64, 0)     \
  X(FOUR_FOUR, e5m2, "m16n8k64.row.col.f32.e5m2.e4m3.f32", kE5m2, kE4m3, 64, 0)     \
  X(TWO_FOUR, s8_k32, "m16n8k32.row.col.s32.s8.s8.s32", kS8, kS8, 32, 1)            \
  X(FOUR_FOUR, s8_k64, "m16n8k64.row.col.satfinite.s32.s8.u8.s32", kS8, kU8, 64, 0) \
  X(TWO_FOUR, s4_k64, "m16n8k64.row.col.s32.s4.u4.s32", kS4, kU4, 64, 1)            \
  X(FOUR_FOUR, u4_k128, "m16n8k128.row.col.s32.u4.s4.s32", kU4, kS4, 128, 0)

#define KERNEL(form, name, rest, of_a, of_b, depth, selector)                                      \
  __global__ void name(bool ordered, int operands, int sums, const uint32_t* a, const uint32_t* b, \
                       const uint32_t* c, const uint32_t* metadata, uint32_t* d) {                 \
    const int lane = threadIdx.x;                                                                  \
    a += lane * operands, b += lane * operands, c += lane * sums, d += lane * sums;                \
    const uint32_t e = metadata[lane];                                                             \
    if (ordered) {                                                                                 \
      form("mma.sp::ordered_metadata.sync.aligned." rest, selector);                               \
    } else {                                                                                       \
      form("mma.sp.sync.aligned." rest, selector);                                                 \
    }                                                                                              \
  }
CASES(KERNEL)

enum Type { kF16, kBf16, kTf32, kE4m3, kE5m2, kS8, kU8, kS4, kU4 };
constexpr int kBits[] = {16, 16, 32, 8, 8, 8, 8, 4, 4};

// The bits of a number from -3 to 3.
uint32_t bits_of(Type type, int value) {
  const auto of = [value](uint32_t one, uint32_t half, uint32_t sign) {
    // 1, 2 and 3 are of one sign, and 2 and 3 of one exponent.
    const int size = value < 0 ? -value : value;
    const uint32_t bits[] = {0, one, one + 2 * half, one + 3 * half};
    return bits[size] | (value < 0 ? sign : 0);
  };
  switch (type) {
    case kF16:
      return of(0x3c00, 0x200, 0x8000);
    case kBf16:
      return of(0x3f80, 0x40, 0x8000);
    case kTf32:
      return of(0x3f800000, 0x400000, 0x80000000);
    case kE4m3:
      return of(0x38, 4, 0x80);
    case kE5m2:
      return of(0x3c, 2, 0x80);
    default:
      return static_cast<uint32_t>(value) & ((1u << kBits[type]) - 1);
  }
}

bool is_unsigned(Type type) {
  return type == kU8 || type == kU4;
}

// Which register of which lane has the element of a row, or of a column of B, and from which bit.
struct Slot {
  int lane, word, shift;
};
Slot slot(Type type, bool left, int row, int k) {
  const int per = 32 / kBits[type], block = k / (4 * per);
  return {4 * (row % 8) + k % (4 * per) / per, left ? 2 * block + row / 8 : block,
          kBits[type] * (k % per)};
}

struct Case {
  const char* name;
  void (*kernel)(bool, int, int, const uint32_t*, const uint32_t*, const uint32_t*, const uint32_t*,
                 uint32_t*);
  Type a, b;
  int depth, selector;
  bool halves, integers;
};

int main() {
#define ENTRY(form, name, rest, of_a, of_b, depth, selector) \
  {#name,                                                    \
   name,                                                     \
   of_a,                                                     \
   of_b,                                                     \
   depth,                                                    \
   selector,                                                 \
   std::strstr(rest, "f16.f16.f16.f16") != nullptr,          \
   std::strstr(rest, ".s32.") != nullptr},
  const Case cases[] = {CASES(ENTRY)};
  uint32_t* memory = nullptr;
  cudaMalloc(&memory, 5 * 512);
  int wrong = 0;
  for (const Case& each : cases) {
    for (const bool ordered : {false, true}) {
      std::mt19937 random(each.depth + each.selector);
      const auto draw = [&random](int from, int to) {
        return from + static_cast<int>(random() % static_cast<unsigned>(to - from + 1));
      };
      const int side = kBits[each.a] == 4 ? 2 : 1;
      const int width = each.a == kTf32 ? 2 : 4 * side, chunks = each.depth / width;
      const int lanes = chunks / 4, operands = each.depth / 2 * kBits[each.a] / 64;
      const int sums = each.halves ? 2 : 4;
      std::vector<uint32_t> a(128), b(128), c(128), metadata(32), d(128);
      // Of the other lanes they mean nothing.
      for (uint32_t& word : metadata) word = random();
      static int dense[16][128], right[8][128];
      std::memset(dense, 0, sizeof dense);
      for (int row = 0; row < 16; ++row) {
        for (int chunk = 0; chunk < chunks; ++chunk) {
          int first = draw(0, 2), second = draw(first + 1, 3);
          if (!ordered && draw(0, 3) == 0) std::swap(first, second);
          uint32_t code = static_cast<uint32_t>(first | second << 2);
          if (each.a == kTf32) code = (first = draw(0, 1)) == 0 ? 0b0100 : 0b1110;
          const bool narrow = kBits[each.a] < 16;
          const int lane = narrow ? 2 * (chunk / 8) + row / 8 : chunk / 4;
          uint32_t& word = metadata[4 * (row % 8) + each.selector * lanes + lane];
          const int shift = narrow ? 4 * (chunk % 8) : 16 * (row / 8) + 4 * (chunk % 4);
          word = (word & ~(0xfu << shift)) | code << shift;
          for (int at = 0; at < (each.a == kTf32 ? 1 : 2 * side); ++at) {
            const int value = draw(is_unsigned(each.a) ? 0 : -3, 3);
            const int index = at / side == 0 ? first : second;
            dense[row][chunk * width + index * side + at % side] = value;
            const int k = chunk * width / 2 + at;
            const Slot to = slot(each.a, true, row, k);
            a[to.lane * operands + to.word] |= bits_of(each.a, value) << to.shift;
          }
        }
      }
      for (int column = 0; column < 8; ++column) {
        for (int k = 0; k < each.depth; ++k) {
          const int value = right[column][k] = draw(is_unsigned(each.b) ? 0 : -3, 3);
          const Slot to = slot(each.b, false, column, k);
          b[to.lane * operands + to.word] |= bits_of(each.b, value) << to.shift;
        }
      }
      const auto bits_of_sum = [&each](int value) -> uint32_t {
        if (each.integers) return static_cast<uint32_t>(value);
        const float real = static_cast<float>(value);
        uint32_t bits;
        std::memcpy(&bits, &real, 4);
        if (!each.halves || value == 0) return each.halves ? 0 : bits;
        return (bits >> 16 & 0x8000) | ((bits >> 13 & 0x3ffff) - (112 << 10));
      };
      std::vector<uint32_t> want(128);
      for (int lane = 0; lane < 32; ++lane) {
        for (int i = 0; i < 4; ++i) {
          const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
          const int start = draw(-3, 3);
          int sum = start;
          for (int k = 0; k < each.depth; ++k) sum += dense[row][k] * right[column][k];
          const int at = each.halves ? 2 * lane + i / 2 : 4 * lane + i;
          const int shift = each.halves ? 16 * (i % 2) : 0;
          c[at] |= bits_of_sum(start) << shift;
          want[at] |= bits_of_sum(sum) << shift;
        }
      }
      const std::vector<uint32_t>* const given[] = {&a, &b, &c, &metadata};
      for (int i = 0; i < 4; ++i) {
        cudaMemcpy(memory + 128 * i, given[i]->data(), 4 * given[i]->size(),
                   cudaMemcpyHostToDevice);
      }
      each.kernel<<<1, 32>>>(ordered, operands, sums, memory, memory + 128, memory + 256,
                             memory + 384, memory + 512);
      if (cudaMemcpy(d.data(), memory + 512, 128 * sums, cudaMemcpyDeviceToHost) != cudaSuccess) {
        return 1;
      }
      d.resize(32 * sums), want.resize(32 * sums);
      if (d == want) continue;
      std::printf("%s%s is wrong\n", each.name, ordered ? ", ordered" : "");
      ++wrong;
    }
  }
  std::printf("%d of %zu wrong\n", wrong, 2 * sizeof cases / sizeof *cases);
  return wrong != 0;
}
