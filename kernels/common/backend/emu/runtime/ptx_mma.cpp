// mma.sync and wmma.mma of dense operands (PTX ISA 9.1, 9.7.14.5 and 9.7.14.4).
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
float real(MmaElement element, uint32_t bits) {
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
};

// Operand registers: element e of register r of lane l is in row l / 4 (+ 8 for odd r) of A, and
// k = per · (l mod 4) + e, + 4 · per for each two registers. Of B r counts along k alone.
class Product {
 public:
  Product(const MmaForm& form, const Collective& all) : form_(form), all_(all) {}

  uint32_t a(uint32_t row, uint32_t k) const { return element(form_.a, true, row, k); }
  uint32_t b(uint32_t column, uint32_t k) const { return element(form_.b, false, column, k); }
  double a64(uint32_t row, uint32_t k) const { return element64(true, row, k); }
  double b64(uint32_t column, uint32_t k) const { return element64(false, column, k); }
  const Lane& lane(uint32_t at) const { return *reinterpret_cast<const Lane*>(all_.value[at]); }

 private:
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

double summed64(const MmaForm& form, const Product& of, uint32_t row, uint32_t column, double sum) {
  for (uint32_t k = 0; k < form.depth; ++k) sum = std::fma(of.a64(row, k), of.b64(column, k), sum);
  return sum;
}

float summed(const MmaForm& form, const Product& of, uint32_t row, uint32_t column, float sum) {
  for (uint32_t k = 0; k < form.depth; ++k) {
    sum = std::fma(real(form.a, of.a(row, k)), real(form.b, of.b(column, k)), sum);
  }
  return sum;
}

uint32_t counted(const MmaForm& form, const Product& of, uint32_t row, uint32_t column,
                 uint32_t start) {
  auto sum = static_cast<int64_t>(static_cast<int32_t>(start));
  for (uint32_t k = 0; k < form.depth; ++k) {
    const uint32_t a = of.a(row, k), b = of.b(column, k);
    sum += form.a == MmaElement::kB1 ? static_cast<int64_t>(form.exclusive ? a ^ b : a & b)
                                     : int64_t{whole(form.a, a)} * whole(form.b, b);
  }
  if (form.saturate) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
  return static_cast<uint32_t>(sum);
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

}  // namespace

// PTX: mma.sync.aligned (9.7.14.5), wmma.mma.sync.aligned (9.7.14.4).
// Assumption: products are exact and added one after another in fp32, rounded to nearest; PTX
// leaves the order and the precision of intermediate sums open. Sums of f16 are rounded once, at
// the end. Of tf32 the low 13 bits are ignored.
void mma_sync(const MmaForm& form, uint32_t* d, const uint32_t* a, const uint32_t* b,
              const uint32_t* c) {
  const Pc pc = KB_EMU_PC;
  interleave();
  const Lane mine{d, a, b, c};
  const auto body = [&form](Collective& all) {
    const Product of(form, all);
    for (uint32_t lane = 0; lane < kWarpSize; ++lane) {
      const Lane& to = of.lane(lane);
      const uint32_t each = form.rows * form.columns / kWarpSize;
      for (uint32_t i = 0; i < each; ++i) {
        const uint32_t line = lane * each + i;
        const uint32_t row = form.by_lines ? line / form.columns : lane / 4 + 8 * (i / 2);
        const uint32_t column = form.by_lines ? line % form.columns : 2 * (lane % 4) + i % 2;
        if (form.sum == MmaSum::kF64) {
          double value = 0;
          std::memcpy(&value, to.c + 2 * i, sizeof value);
          value = summed64(form, of, row, column, value);
          std::memcpy(to.d + 2 * i, &value, sizeof value);
        } else if (form.sum == MmaSum::kS32) {
          to.d[i] = counted(form, of, row, column, to.c[i]);
        } else {
          put_sum(form, to, i, summed(form, of, row, column, start_of(form, to, i)));
        }
      }
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
