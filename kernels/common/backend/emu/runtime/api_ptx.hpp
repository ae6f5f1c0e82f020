// What translated PTX calls beside the other api_*.hpp: forms of instructions that the ptx layer
// does not have, addresses of windows, and launches. Each takes the caller's address on entry, so
// that a finding names the PTX line.
#pragma once

#include <cstddef>
#include <cstdint>

#include "elements.hpp"

namespace kb::emu {

// Windows. Addresses are those of shared::cluster: rank << 24 | offset.
void* own_shared();
uint32_t own_shared_window();
void* cluster_shared(uint32_t address);
uint32_t dynamic_shared_bytes(uint32_t static_bytes);
[[noreturn]] void no_shared_address();

// The shape of a CTA.
struct BlockExtent {
  uint32_t x, y, z;
};
BlockExtent block_extent();
// Two words of a cooperative grid's own, for its barrier; null in other grids.
uint32_t* grid_words();

// Warps.
enum class ShuffleMode : uint32_t { kUp, kDown, kXor, kIndex };
struct Shuffled {
  uint32_t value;
  bool in_range;
};
Shuffled shfl_segment(ShuffleMode mode, uint32_t value, uint32_t operand, uint32_t clamp,
                      uint32_t members);
enum class Reduction : uint32_t { kAdd, kMin, kMax, kAnd, kOr, kXor };
uint32_t redux(Reduction reduction, bool is_signed, uint32_t value, uint32_t members);
uint32_t match_any(uint32_t value, uint32_t members);
// bar.red: the number of threads whose predicate holds, among those of the barrier.
uint32_t bar_red(uint32_t barrier, uint32_t threads, bool predicate);
// `row`: of a matrix, for the lanes that give one.
void ldmatrix(uint32_t* out, uint32_t count, bool transposed, const void* row);
void stmatrix(void* row, const uint32_t* in, uint32_t count, bool transposed);
// d = a · b + c for a [m, k], b [k, 8]; each lane's registers.
enum class MmaSums : uint32_t { kF32, kF16, kS32, kF64 };
struct MmaForm {
  uint32_t m, k;
  ElementKind a, b;
  MmaSums sums;
  bool saturates;
};
void mma_sync(const MmaForm& form, uint32_t* d, const uint32_t* a, const uint32_t* b,
              const uint32_t* c);
// The elected lane, plus 32 in that lane.
uint32_t elected_by(uint32_t members);

// Memory, in shared or in global memory by the address.
enum class Order : uint32_t { kRelaxed, kAcquire, kRelease, kAcqRel };
// The old bits, of 4 or 8 bytes; `update` gives the new ones.
uint64_t atomic_update(void* at, uint32_t bytes, Order order, bool returns,
                       uint64_t (*update)(uint64_t old, const void* context), const void* context);
// A load, or a store of the bits given, that may synchronize.
uint64_t strong_load(const void* at, uint32_t bytes, bool acquire);
void strong_store(void* at, uint32_t bytes, uint64_t value, bool release);
// The same for vectors of 8 or 16 bytes.
void strong_load_vector(const void* at, uint32_t bytes, bool acquire, void* values);
void strong_store_vector(void* at, uint32_t bytes, const void* values, bool release);
[[noreturn]] void lanes_disabled();
void sleep_a_while();
[[noreturn]] void trap();

// A translated kernel: takes its parameters as PTX lays them out.
using TranslatedKernel = void (*)(void* parameters);
// The translation that stands for a kernel of a step's library, or null.
TranslatedKernel translation_of(const void* kernel);
// Whether what runs is translated, or may be: compilers' PTX has no tcgen05.fence where the
// hardware needs none.
bool runs_ptx();
// Returns 0, or 1 and a message.
int launch_translated(TranslatedKernel kernel, const uint32_t (&grid)[3],
                      const uint32_t (&block)[3], const uint32_t (&cluster)[3],
                      uint32_t shared_bytes, bool cooperative, const void* parameters, size_t bytes,
                      char* message, size_t size);

}  // namespace kb::emu
