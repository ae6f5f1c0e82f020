// Tensor memory in global memory: addresses, allocation, and what a warp or a product may touch
// (PTX ISA 9.1, 9.7.16.1). Loads and stores go to L2, which all threads of the GPU share.
#pragma once

#include "state.inl"

namespace kb::soft {

// The lane field may count from 128 in the odd CTA of a pair.
KB_DEVICE uint32_t tmem_lane(uint32_t address) {
  return address >> 16 & (kTmemLanes - 1);
}
KB_DEVICE uint32_t tmem_column(uint32_t address) {
  return address & 0xffff;
}

KB_DEVICE uint32_t load_word(const uint32_t* word) {
  uint32_t value;
  asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
KB_DEVICE void store_word(uint32_t* word, uint32_t value) {
  asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

// Bits of the units that `columns` columns from `first` on lie in.
KB_DEVICE uint32_t unit_mask(uint32_t first, uint32_t columns) {
  return (2u << ((first + columns - 1) / kTmemUnit)) - (1u << (first / kTmemUnit));
}

// Whether the CTA has allocated the columns; only that is checked, not by whom.
KB_DEVICE void check_columns(uint32_t cta, uint32_t address, uint32_t columns) {
  const uint32_t first = tmem_column(address);
  if (first + columns > kTmemColumns ||
      (unit_mask(first, columns) & ~load_word(&state.allocations[cta].taken)) != 0) {
    fail(Fault::kColumns, address, columns);
  }
}

// A warp's access of `lanes` lanes (32, or one half of them).
KB_DEVICE void check_access(uint32_t address, uint32_t lanes, uint32_t columns) {
  const uint32_t first = __shfl_sync(0xffffffff, address, 0);
  if (first != address) fail(Fault::kAddressDiffers, address, first);
  const uint32_t lane = tmem_lane(address);
  if (lane / 32 != threadIdx.x / 32 % 4 || lane % lanes != 0) fail(Fault::kLanes, address);
  check_columns(linear_cta(), address, columns);
}

// One thread. The lowest unit from which `units` are free, taken; blocks until there is one.
KB_DEVICE uint32_t take_units(Allocations& allocations, uint32_t units) {
  const uint64_t start = now_ns();
  const uint32_t mask = (1u << units) - 1;
  while (true) {
    const uint32_t taken = load_word(&allocations.taken);
    for (uint32_t unit = 0; unit < kTmemUnits; unit += units) {
      if ((taken & mask << unit) != 0) continue;
      if (atomicCAS(&allocations.taken, taken, taken | mask << unit) == taken) return unit;
      break;
    }
    if (now_ns() - start > kWaitLimitNs) fail(Fault::kAllocationWait, units * kTmemUnit);
    __nanosleep(1000);
  }
}

inline __device__ __noinline__ void allocate(uint32_t* address, uint32_t columns) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) {
    Allocations& allocations = state.allocations[linear_cta()];
    if (columns < kTmemUnit || columns > kTmemColumns || (columns & (columns - 1)) != 0) {
      fail(Fault::kAllocationSize, columns);
    }
    if (load_word(&allocations.relinquished) != 0) fail(Fault::kAfterRelinquish, columns);
    const uint32_t last = load_word(&allocations.last);
    if (last != 0 && columns > last) fail(Fault::kAllocationGrows, columns, last);
    const uint32_t unit = take_units(allocations, columns / kTmemUnit);
    store_word(&allocations.units[unit], columns / kTmemUnit);
    store_word(&allocations.last, columns);
    __threadfence();
    *address = unit * kTmemUnit;
  }
  __syncwarp();
}

inline __device__ __noinline__ void deallocate(uint32_t address, uint32_t columns) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) {
    Allocations& allocations = state.allocations[linear_cta()];
    const uint32_t unit = tmem_column(address) / kTmemUnit;
    if (address % kTmemUnit != 0 || address >= kTmemColumns || columns == 0 ||
        load_word(&allocations.units[unit]) * kTmemUnit != columns) {
      fail(Fault::kDeallocation, address, columns);
    }
    store_word(&allocations.units[unit], 0);
    __threadfence();
    atomicAnd(&allocations.taken, ~unit_mask(address, columns));
  }
  __syncwarp();
}

KB_DEVICE void relinquish() {
  if (threadIdx.x % 32 == 0) store_word(&state.allocations[linear_cta()].relinquished, 1);
}

// Where thread t keeps register r of an access, relative to the address.
struct Shape32x32b {
  static constexpr uint32_t kLanes = 32;
  static constexpr uint32_t kColumnsPerRegister = 1;
  static KB_DEVICE uint32_t lane(uint32_t t, uint32_t) { return t; }
  static KB_DEVICE uint32_t column(uint32_t, uint32_t r) { return r; }
};
struct Shape16x64b {
  static constexpr uint32_t kLanes = 16;
  static constexpr uint32_t kColumnsPerRegister = 2;
  static KB_DEVICE uint32_t lane(uint32_t t, uint32_t) { return t / 4 + 8 * (t % 2); }
  static KB_DEVICE uint32_t column(uint32_t t, uint32_t r) { return t / 2 % 2 + 2 * r; }
};
struct Shape16x256b {
  static constexpr uint32_t kLanes = 16;
  static constexpr uint32_t kColumnsPerRegister = 2;
  static KB_DEVICE uint32_t lane(uint32_t t, uint32_t r) { return t / 4 + 8 * (r / 2 % 2); }
  static KB_DEVICE uint32_t column(uint32_t t, uint32_t r) {
    return 2 * (t % 4) + r % 2 + 8 * (r / 4);
  }
};

template <typename Shape>
KB_DEVICE uint32_t* cell(uint32_t address, uint32_t r) {
  const uint32_t t = threadIdx.x % 32;
  return &state.slabs[linear_cta()].tmem[tmem_lane(address) + Shape::lane(t, r)]
                                        [tmem_column(address) + Shape::column(t, r)];
}

template <typename Shape, int kCount>
KB_DEVICE void load(uint32_t (&out)[kCount], uint32_t address) {
  check_access(address, Shape::kLanes, kCount * Shape::kColumnsPerRegister);
#pragma unroll
  for (int r = 0; r < kCount; ++r) out[r] = load_word(cell<Shape>(address, r));
}

template <typename Shape, int kCount>
KB_DEVICE void store(uint32_t address, const uint32_t (&in)[kCount]) {
  check_access(address, Shape::kLanes, kCount * Shape::kColumnsPerRegister);
#pragma unroll
  for (int r = 0; r < kCount; ++r) store_word(cell<Shape>(address, r), in[r]);
}

}  // namespace kb::soft
