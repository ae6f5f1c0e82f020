// Kernels of a stream for test_emu_grids.py: dependent launches that overlap.
#include "entry.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/pdl.cuh"
#include "ptx/red.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"
#include "wait.cuh"

using namespace kb;

namespace {

constexpr uint32_t kThreads = 64;

enum Trigger : int { kNone = 0, kFirst, kLast };
enum Waits : int { kNobody = 0, kEverybody, kOneThread, kTooLate };
enum Reads : int { kLoad = 0, kBulkCopy, kThreadCopy };

struct SharedStorage {
  alignas(16) uint32_t words[kThreads];
  Mbarrier full;
};

KB_DEVICE uint32_t global_index() {
  return ptx::cta_index().x * kThreads + ptx::thread_index();
}

// out[i] = in[i] + 1, or in[i] is added to it.
KB_GLOBAL void write_words(const uint32_t* in, uint32_t* out, int trigger, bool waits, bool adds) {
  if (trigger == kFirst) ptx::griddepcontrol_launch_dependents();
  if (waits) ptx::griddepcontrol_wait();
  const uint32_t i = global_index();
  if (adds) {
    ptx::red_release_gpu_global_add_u32(&out[i], in[i] + 1);
  } else {
    out[i] = in[i] + 1;
  }
  if (trigger == kLast) ptx::griddepcontrol_launch_dependents();
}

// The same, and reads in one of three ways.
KB_GLOBAL void read_words(const uint32_t* in, uint32_t* out, int waits, int reads) {
  auto& storage = shared_storage<SharedStorage>();
  const uint32_t thread = ptx::thread_index();
  if (thread == 0) {
    ptx::mbarrier_init(&storage.full, 1);
    ptx::fence_mbarrier_init_release_cluster();
  }
  if (waits == kEverybody || (waits == kOneThread && thread == 0)) ptx::griddepcontrol_wait();
  ptx::bar_sync();
  uint32_t value = 0;
  const uint32_t i = global_index();
  if (reads == kLoad) value = in[i];
  if (reads == kBulkCopy) {
    if (thread == 0) {
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, &storage.full,
                                     sizeof storage.words);
      ptx::cp_async_bulk_shared_global(storage.words, in + i, sizeof storage.words, &storage.full);
    }
    mbarrier_wait_parity(&storage.full, 0);
    value = storage.words[thread];
  }
  if (reads == kThreadCopy) {
    ptx::cp_async_ca_shared_global_4(&storage.words[thread], in + i);
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<0>();
    value = storage.words[thread];
  }
  if (waits == kTooLate) ptx::griddepcontrol_wait();
  out[i] = value + 1;
}

template <typename Body>
int guarded_call(char* message, Body&& body) {
  return guarded(message, 256, body);
}

rt::LaunchConfig config(bool dependent) {
  rt::LaunchConfig launch{
      .grid = {2, 1, 1}, .threads = kThreads, .shared_bytes = sizeof(SharedStorage)};
  launch.dependent = dependent;
  return launch;
}

}  // namespace

// first = in + 1, then out = first + 1 by a dependent grid.
KB_EXPORT int run_two(const uint32_t* in, uint32_t* first, uint32_t* out, int trigger, int waits,
                      int reads, bool adds, bool memset_between, char* message) {
  return guarded_call(message, [&] {
    rt::launch(write_words, config(false), in, first, trigger, false, adds);
    if (memset_between) rt::memset_async(out, 0, sizeof(uint32_t), {});
    rt::launch(read_words, config(true), first, out, waits, reads);
  });
}

// first = in + 1, second = in + 1, out = first + 1: each a dependent grid of the one before.
KB_EXPORT int run_three(const uint32_t* in, uint32_t* first, uint32_t* second, uint32_t* out,
                        bool second_waits, char* message) {
  return guarded_call(message, [&] {
    rt::launch(write_words, config(false), in, first, kFirst, false, false);
    rt::launch(write_words, config(true), in, second, kFirst, second_waits, false);
    rt::launch(read_words, config(true), first, out, kEverybody, kLoad);
  });
}

// out = first + 1, and first = in + 1 by a dependent grid: it may write what the other still reads.
KB_EXPORT int run_writer_behind(const uint32_t* in, uint32_t* first, uint32_t* out, bool waits,
                                char* message) {
  return guarded_call(message, [&] {
    rt::launch(write_words, config(false), first, out, kFirst, false, false);
    rt::launch(write_words, config(true), in, first, kNone, waits, false);
  });
}

// first = in + 1 on one stream, then out = first + 1 on the same or on another one, after a wait of
// the host or without; `back`: the second grid writes `in` that the first one reads.
KB_EXPORT int run_on_streams(uint32_t* in, uint32_t* first, uint32_t* out, bool same, bool waits,
                             bool back, char* message) {
  return guarded_call(message, [&] {
    uint32_t handles[2] = {};
    rt::LaunchConfig launch = config(false);
    launch.stream = {&handles[0]};
    rt::launch(write_words, launch, in, first, kNone, false, false);
    if (waits) rt::stream_synchronize(launch.stream);
    if (!same) launch.stream = {&handles[1]};
    rt::launch(write_words, launch, back ? out : first, back ? in : out, kNone, false, false);
  });
}
