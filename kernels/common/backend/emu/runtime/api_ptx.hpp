// What translated PTX calls beside the other api_*.hpp: forms of instructions that the ptx layer
// does not have, addresses of windows, and launches. Each takes the caller's address on entry, so
// that a finding names the PTX line.
#pragma once

#include <cstddef>
#include <cstdint>

#include "api_core.hpp"
#include "elements.hpp"

namespace kb::emu {

// Windows. Addresses are those of shared::cluster: rank << 24 | offset.
void* own_shared();
uint32_t own_shared_window();
void* cluster_shared(uint32_t address);
uint32_t dynamic_shared_bytes(uint32_t static_bytes);
[[noreturn]] void no_shared_address();
[[noreturn]] void no_level_by_gradients();

// The shape of a CTA.
struct BlockExtent {
  uint32_t x, y, z;
};
BlockExtent block_extent();
// Two words of a cooperative grid's own, for its barrier; null in other grids.
uint32_t* grid_words();
// Whether the kernel has asked for it in a launch that is not cooperative.
bool lacks_grid_words();

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
uint32_t match_any(uint64_t value, uint32_t members);
// The members that have not exited if all have one value, else none.
uint32_t match_all(uint64_t value, uint32_t members);
// Which lanes voted, and which of them with `predicate`.
struct Votes {
  uint32_t cast;
  uint32_t held;
};
Votes vote(bool predicate, uint32_t members);
uint32_t movmatrix(uint32_t value);
// `row`: of a matrix, for the lanes that give one.
void ldmatrix(uint32_t* out, uint32_t count, bool transposed, const void* row);
void stmatrix(void* row, const uint32_t* in, uint32_t count, bool transposed);
enum class MmaElement : uint32_t {
  kF64,
  kTf32,
  kF16,
  kBf16,
  kE4m3,
  kE5m2,
  kS8,
  kU8,
  kS4,
  kU4,
  kB1,
};
enum class MmaSum : uint32_t { kF64, kF32, kF16, kS32 };
// Whether half of each row of a is given, with metadata: of mma.sp, of ::ordered_metadata.
enum class MmaSparse : uint32_t { kDense, kAny, kOrdered };
// a is [rows, depth], b [depth, columns].
struct MmaForm {
  MmaElement a, b;
  MmaSum sum;
  uint32_t rows, depth;
  bool saturate;   // of integers
  bool exclusive;  // of single bits: xor, not and
  uint32_t columns = 8;
  // Fragments of wmma, whose layout PTX leaves open: a matrix row by row, B column by column, the
  // same number of neighbours in each lane. Otherwise those of mma.sync.
  bool by_lines = false;
  bool crossed = false;  // c is of f16 where d is of f32, or the other way round
  MmaSparse sparse = MmaSparse::kDense;
  uint32_t selector = 0;  // of the lanes whose metadata count
};
// d = a · b + c; each lane's registers.
void mma_sync(const MmaForm& form, uint32_t* d, const uint32_t* a, const uint32_t* b,
              const uint32_t* c, uint32_t metadata = 0);
// All lanes of the warp come to the same instruction.
void warp_meets(const char* what);
// Arrives on a named barrier and waits: how many of its threads brought `value`. The second: of all
// the CTA's threads that have not exited.
uint32_t bar_red(uint32_t barrier, uint32_t threads, bool value);
uint32_t bar_red_all(uint32_t barrier, bool value);
// The elected lane, plus 32 in that lane.
uint32_t elected_by(uint32_t members);
// The lanes at an activemask; `together`: no branch came since the warp's lanes were.
uint32_t active_mask(bool together);
// The parity of an mbarrier's current phase.
uint32_t mbarrier_parity(const void* bar);
bool points_to_shared(const void* pointer, bool own);

// What the check build announces of weak loads and stores; `same`: the store changes nothing.
void weak_load(const void* at, uint32_t bytes);
void weak_store(void* at, uint32_t bytes, bool same);
// Loads by a cache that is not coherent within a launch, as findings say it.
void cached_load(const void* at, uint32_t bytes, const char* what);
// Of local memory, whose `extent` bytes begin at `local`; 0: unknown.
void own_access(const void* at, uint32_t bytes, const void* local, size_t extent);
// Of a vector whose elements are accessed one by one.
void vector_access(const void* at, uint32_t bytes);

// Memory, in shared or in global memory by the address.
enum class Order : uint32_t { kRelaxed, kAcquire, kRelease, kAcqRel };
// `may_poll`: a thread that repeats it while it changes nothing waits for the word to change.
struct AtomicForm {
  Order order;
  Scope scope;
  bool returns;
  bool may_poll;
};
// The old bits, of 4 or 8 bytes; `update` gives the new ones.
uint64_t atomic_update(void* at, uint32_t bytes, const AtomicForm& form,
                       uint64_t (*update)(uint64_t old, const void* context), const void* context);
// Of 16 bytes: `old` gets what was there; where that equals `compared` (null: anything), `value`
// comes there.
void atomic_exchange_16(void* at, const AtomicForm& form, const void* compared, const void* value,
                        void* old);
// 128 bytes that hold nothing any more.
void discard(void* at);
// `meeting`: it is repeated until a bit of the word changes.
struct StrongForm {
  Order order;
  Scope scope;
  bool meeting = false;
};
// A load, or a store of the bits given, that may synchronize.
uint64_t strong_load(const void* at, uint32_t bytes, const StrongForm& form);
void strong_store(void* at, uint32_t bytes, uint64_t value, const StrongForm& form);
// The same for vectors of 8 or 16 bytes.
void strong_load_vector(const void* at, uint32_t bytes, const StrongForm& form, void* values);
void strong_store_vector(void* at, uint32_t bytes, const void* values, const StrongForm& form);
[[noreturn]] void lanes_disabled();
void sleep_a_while();
[[noreturn]] void trap();
[[noreturn]] void assertion_failed();
[[noreturn]] void breakpoint();
// malloc of kernels (device_heap.cpp).
uint64_t heap_allocate(uint64_t bytes);
// Launches by kernels (device_launches.cpp): where the thread puts the parameters of its next one,
// and the launch itself, a cudaError_t. A new stream; 0 for flags that a kernel may not give.
void* parameter_buffer(const char* kernel, const BlockExtent& grid, const BlockExtent& block,
                       uint32_t shared_bytes);
uint32_t launch_device(const void* parameters, uint64_t stream);
uint64_t create_stream(uint32_t flags);

// A translated kernel: takes its parameters as PTX lays them out.
using TranslatedKernel = void (*)(void* parameters);
// The translation that stands for a kernel of a step's library, or null.
TranslatedKernel translation_of(const void* kernel);
// Whether what runs is translated, or may be: compilers' PTX has no tcgen05.fence where the
// hardware needs none.
bool runs_ptx();
// The kernel that is launched now.
const void* kernel_running();
// Of PTX that runs: where its code is; null for a kernel of a step.
const void* translated_code();
// Whether what runs is PTX that was launched by itself, and this is no parameter of its kernel: it
// reads what is registered, or nothing.
bool in_no_parameter(const void* address);
// Returns 0, or 1 and a message.
int launch_translated(TranslatedKernel kernel, const uint32_t (&grid)[3],
                      const uint32_t (&block)[3], const uint32_t (&cluster)[3],
                      uint32_t shared_bytes, bool cooperative, const void* parameters, size_t bytes,
                      char* message, size_t size);

}  // namespace kb::emu
