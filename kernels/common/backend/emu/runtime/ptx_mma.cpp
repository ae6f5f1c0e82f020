// mma.sync, mma.sp and wmma.mma (PTX ISA 9.1, 9.7.14.4 to 9.7.14.6).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "api_ptx.hpp"
#include "core.hpp"
#include "cvt.hpp"

namespace kb::emu {

namespace {

uint32_t bits_in(MmaElement element) {
  switch (element) {
    case MmaElement::kF64:
      return 64;
    case MmaElement::kTf32:
      return 32;
    case MmaElement::kF16:
    case MmaElement::kBf16:
      return 16;
    case MmaElement::kS4:
    case MmaElement::kU4:
      return 4;
    case MmaElement::kB1:
      return 1;
    default:
      return 8;
  }
}

// The element in the low bits.
inline float real(MmaElement element, uint32_t bits) {
  switch (element) {
    case MmaElement::kF16:
      return f32_of_f16(static_cast<uint16_t>(bits));
    case MmaElement::kBf16:
      return __builtin_bit_cast(float, bits << 16);
    case MmaElement::kTf32:
      return __builtin_bit_cast(float, bits & ~0x1fffu);
    case MmaElement::kE5m2:
      return f32_of_f16(static_cast<uint16_t>(bits << 8));
    default:
      return f32_of_f16(f16_bits_of_e4m3(static_cast<uint8_t>(bits)));
  }
}

int32_t whole(MmaElement element, uint32_t bits) {
  switch (element) {
    case MmaElement::kS8:
      return static_cast<int8_t>(bits);
    case MmaElement::kS4:
      return static_cast<int8_t>(bits << 4) >> 4;
    default:
      return static_cast<int32_t>(bits);
  }
}

struct Lane {
  uint32_t* d;
  const uint32_t *a, *b, *c;
  uint32_t metadata;
};

// Operand registers: element e of register r of lane l is in row l / 4 (+ 8 for odd r) of A, and
// k = per · (l mod 4) + e, + 4 · per for each two registers. Of B r counts along k alone.
class Product {
 public:
  Product(const MmaForm& form, const Collective& all) : form_(form), all_(all) {}

  uint32_t a(uint32_t row, uint32_t k) const { return element(form_.a, true, row, k); }
  uint32_t b(uint32_t column, uint32_t k) const { return element(form_.b, false, column, k); }
  // Of 16 bits, for 16 rows of A.
  uint32_t a16(uint32_t row, uint32_t k) const {
    return half(lane(4 * (row % 8) + k % 8 / 2).a[2 * (k / 8) + row / 8], k);
  }
  uint32_t b16(uint32_t column, uint32_t k) const {
    return half(lane(4 * column + k % 8 / 2).b[k / 8], k);
  }
  double a64(uint32_t row, uint32_t k) const { return element64(true, row, k); }
  double b64(uint32_t column, uint32_t k) const { return element64(false, column, k); }
  const Lane& lane(uint32_t at) const { return *reinterpret_cast<const Lane*>(all_.value[at]); }

  // PTX: 9.7.14.6.1: of a row's neighbours half are given, and which is said by four bits a chunk:
  // two of four elements by two bits each, the lower one's first; of two elements of tf32 one; of
  // four pairs of 4 bits two. Here: k of the given element `at`.
  uint32_t k_of(uint32_t row, uint32_t at) const {
    if (form_.a == MmaElement::kTf32) return 2 * at + (chunk(row, at) == kSecond ? 1 : 0);
    const uint32_t side = together(), part = at / side;
    const uint32_t index = chunk(row, part / 2) >> 2 * (part % 2) & 3;
    return (4 * (part / 2) + index) * side + at % side;
  }
  // The metadata that PTX leaves undefined, as a text; empty if there are none.
  std::string undefined_metadata() const {
    const uint32_t chunks = form_.depth / width();
    for (uint32_t row = 0; row < form_.rows; ++row) {
      for (uint32_t at = 0; at < chunks; ++at) {
        const uint32_t bits = chunk(row, at);
        if (is_defined(bits)) continue;
        return "metadata " + std::to_string(bits) + " of the " + std::to_string(width()) +
               " elements from [" + std::to_string(row) + ", " + std::to_string(at * width()) +
               "] of A on, which is undefined";
      }
    }
    return {};
  }

 private:
  // Of tf32: which one is given.
  static constexpr uint32_t kFirst = 0b0100, kSecond = 0b1110;

  // Neighbours that are given together, and those that share four bits of metadata.
  uint32_t together() const { return bits_in(form_.a) == 4 ? 2 : 1; }
  uint32_t width() const { return form_.a == MmaElement::kTf32 ? 2 : 4 * together(); }
  // PTX: 9.7.14.6.2, by its figures, and seen on an H200: of four lanes those that the selector
  // means have the metadata of two rows. A lane has four chunks of both; of elements of 8 and of 4
  // bits, eight of one.
  uint32_t chunk(uint32_t row, uint32_t at) const {
    const uint32_t first = 4 * (row % 8) + form_.selector * (form_.depth / width() / 4);
    if (bits_in(form_.a) < 16) {
      return lane(first + 2 * (at / 8) + row / 8).metadata >> 4 * (at % 8) & 0xf;
    }
    return lane(first + at / 4).metadata >> (16 * (row / 8) + 4 * (at % 4)) & 0xf;
  }
  bool is_defined(uint32_t bits) const {
    if (form_.a == MmaElement::kTf32) return bits == kFirst || bits == kSecond;
    const uint32_t first = bits & 3, second = bits >> 2;
    return form_.sparse == MmaSparse::kOrdered ? first < second : first != second;
  }
  static uint32_t half(uint32_t word, uint32_t k) { return word >> 16 * (k % 2) & 0xffff; }
  uint32_t place(bool left, uint32_t per, uint32_t at, uint32_t k) const {
    const uint32_t part = k / (4 * per);
    return left && form_.rows == 16 ? 2 * part + at / 8 : part;
  }
  // Which lane holds an element, and the how manieth of its own it is there.
  struct Slot {
    uint32_t lane, number;
  };
  Slot slot(bool left, uint32_t per, uint32_t at, uint32_t k) const {
    if (form_.by_lines) {
      const uint32_t each = (left ? form_.rows : form_.columns) * form_.depth / kWarpSize;
      const uint32_t index = at * form_.depth + k;
      return {index / each, index % each};
    }
    return {4 * (at % 8) + k % (4 * per) / per, place(left, per, at, k) * per + k % per};
  }
  uint32_t element(MmaElement kind, bool left, uint32_t at, uint32_t k) const {
    const uint32_t bits = bits_in(kind), per = 32 / bits;
    const Slot found = slot(left, per, at, k);
    const Lane& of = lane(found.lane);
    const uint32_t word = (left ? of.a : of.b)[found.number / per];
    const uint32_t shifted = word >> (bits * (found.number % per));
    return bits == 32 ? shifted : shifted & ((1u << bits) - 1);
  }
  double element64(bool left, uint32_t at, uint32_t k) const {
    const Slot found = slot(left, 1, at, k);
    const Lane& of = lane(found.lane);
    double value = 0;
    std::memcpy(&value, (left ? of.a : of.b) + 2 * found.number, sizeof value);
    return value;
  }

  const MmaForm& form_;
  const Collective& all_;
};

// Where element i of a lane's C and D is.
struct Place {
  uint32_t row, column;
};
Place place_of(const MmaForm& form, uint32_t lane, uint32_t i) {
  if (!form.by_lines) return {lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2};
  const uint32_t line = lane * (form.rows * form.columns / kWarpSize) + i;
  return {line / form.columns, line % form.columns};
}

// D = A · B + C, the products of an element in the order of k. `a`, `b`: a value by row or column,
// and k; `start` and `put`: an element of a lane's C and D; `add`: one product more.
template <typename Sum, typename A, typename B, typename Start, typename Add, typename Put>
void multiply(const MmaForm& form, const Product& of, A a, B b, Start start, Add add, Put put) {
  thread_local std::vector<Sum> sums;
  thread_local std::vector<decltype(b(0, 0))> right;
  const uint32_t each = form.rows * form.columns / kWarpSize;
  sums.resize(size_t{form.rows} * form.columns);
  right.resize(size_t{form.depth} * form.columns);
  for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
    for (uint32_t i = 0; i < each; ++i) {
      const Place at = place_of(form, lane, i);
      sums[at.row * form.columns + at.column] = start(of.lane(lane), i);
    }
  }
  for (uint32_t k = 0; k < form.depth; ++k) {
    for (uint32_t column = 0; column < form.columns; ++column) {
      right[k * form.columns + column] = b(column, k);
    }
  }
  const bool dense = form.sparse == MmaSparse::kDense;
  const uint32_t given = dense ? form.depth : form.depth / 2;
  for (uint32_t row = 0; row < form.rows; ++row) {
    Sum* const line = &sums[row * form.columns];
    for (uint32_t at = 0; at < given; ++at) {
      const auto left = a(row, at);
      const auto* const others = &right[(dense ? at : of.k_of(row, at)) * form.columns];
      for (uint32_t column = 0; column < form.columns; ++column) {
        line[column] = add(left, others[column], line[column]);
      }
    }
  }
  for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
    for (uint32_t i = 0; i < each; ++i) {
      const Place at = place_of(form, lane, i);
      put(of.lane(lane), i, sums[at.row * form.columns + at.column]);
    }
  }
}

void multiply64(const MmaForm& form, const Product& of) {
  multiply<double>(
      form, of, [&](uint32_t row, uint32_t k) { return of.a64(row, k); },
      [&](uint32_t column, uint32_t k) { return of.b64(column, k); },
      [](const Lane& lane, uint32_t i) {
        double value = 0;
        std::memcpy(&value, lane.c + 2 * i, sizeof value);
        return value;
      },
      [](double a, double b, double sum) { return std::fma(a, b, sum); },
      [](const Lane& lane, uint32_t i, double value) {
        std::memcpy(lane.d + 2 * i, &value, sizeof value);
      });
}

void multiply_whole(const MmaForm& form, const Product& of) {
  const bool exclusive = form.a == MmaElement::kB1 && form.exclusive;
  multiply<int64_t>(
      form, of, [&](uint32_t row, uint32_t k) { return whole(form.a, of.a(row, k)); },
      [&](uint32_t column, uint32_t k) { return whole(form.b, of.b(column, k)); },
      [](const Lane& lane, uint32_t i) { return int64_t{static_cast<int32_t>(lane.c[i])}; },
      [exclusive](int32_t a, int32_t b, int64_t sum) {
        return sum + (exclusive ? int64_t{a ^ b} : int64_t{a} * b);
      },
      [&](const Lane& lane, uint32_t i, int64_t sum) {
        if (form.saturate) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
        lane.d[i] = static_cast<uint32_t>(sum);
      });
}

// Element i of a lane's C, of f16 or f32.
float start_of(const MmaForm& form, const Lane& lane, uint32_t i) {
  if ((form.sum == MmaSum::kF32) != form.crossed) return __builtin_bit_cast(float, lane.c[i]);
  return f32_of_f16(static_cast<uint16_t>(lane.c[i / 2] >> 16 * (i % 2)));
}

void put_sum(const MmaForm& form, const Lane& lane, uint32_t i, float sum) {
  if (form.sum == MmaSum::kF32) {
    lane.d[i] = bits_of(sum);
    return;
  }
  const uint32_t shift = 16 * (i % 2);
  const uint32_t made = f16_bits(sum);
  lane.d[i / 2] = (lane.d[i / 2] & ~(0xffffu << shift)) | made << shift;
}

void multiply_real(const MmaForm& form, const Product& of) {
  const auto product = [&](auto a, auto b) {
    multiply<float>(
        form, of, a, b, [&](const Lane& lane, uint32_t i) { return start_of(form, lane, i); },
        [](float x, float y, float sum) { return std::fma(x, y, sum); },
        [&](const Lane& lane, uint32_t i, float sum) { put_sum(form, lane, i, sum); });
  };
  // Most products: what is known of them when they are compiled takes half of the time.
  if (form.a == form.b && bits_in(form.a) == 16 && !form.by_lines && form.rows == 16) {
    const auto of_kind = [&]<MmaElement kKind>() {
      product([&](uint32_t row, uint32_t k) { return real(kKind, of.a16(row, k)); },
              [&](uint32_t column, uint32_t k) { return real(kKind, of.b16(column, k)); });
    };
    if (form.a == MmaElement::kF16) return of_kind.operator()<MmaElement::kF16>();
    return of_kind.operator()<MmaElement::kBf16>();
  }
  product([&](uint32_t row, uint32_t k) { return real(form.a, of.a(row, k)); },
          [&](uint32_t column, uint32_t k) { return real(form.b, of.b(column, k)); });
}

}  // namespace

// PTX: mma.sync.aligned (9.7.14.5), wmma.mma.sync.aligned (9.7.14.4), mma.sp (9.7.14.6).
// Assumption: products are exact and added one after another in fp32, rounded to nearest; PTX
// leaves the order and the precision of intermediate sums open. Sums of f16 are rounded once, at
// the end. Of tf32 the low 13 bits are ignored.
void mma_sync(const MmaForm& form, uint32_t* d, const uint32_t* a, const uint32_t* b,
              const uint32_t* c, uint32_t metadata) {
  const Pc pc = KB_EMU_PC;
  interleave();
  const Lane mine{d, a, b, c, metadata};
  const auto body = [&form, pc](Collective& all) {
    const Product of(form, all);
    if (form.sparse != MmaSparse::kDense) {
      const std::string undefined = of.undefined_metadata();
      if (!undefined.empty()) {
        fail({.kind = Class::kDescriptor, .pc = pc, .text = "mma.sp with " + undefined});
      }
    }
    if (form.sum == MmaSum::kF64) {
      multiply64(form, of);
    } else if (form.sum == MmaSum::kS32) {
      multiply_whole(form, of);
    } else {
      multiply_real(form, of);
    }
  };
  collective("mma", ~0u, reinterpret_cast<uint64_t>(&mine), pc, body);
}

// PTX: .sync.aligned of wmma.load and wmma.store (9.7.14.4), whose accesses are the lanes' own.
void warp_meets(const char* what) {
  const Pc pc = KB_EMU_PC;
  interleave();
  warp_collective(what, pc, [] {});
}

}  // namespace kb::emu
