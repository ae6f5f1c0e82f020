// Small kernels for test_emu_global.py: CTAs that meet and hand on through global memory, and
// calls that keep a workspace. Each is right, or has the one fault that its name says.
#include "entry.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/red.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"
#include "wait.cuh"

using namespace kb;

namespace {

constexpr uint32_t kThreads = 64;
constexpr uint32_t kCtas = 4;
constexpr uint32_t kWords = kCtas * kThreads;

struct SharedStorage {
  alignas(16) uint32_t words[kThreads];
  Mbarrier full;
};

// One thread of each CTA; the shares add up to bit 31.
KB_DEVICE void meet(uint32_t* barrier, uint32_t before) {
  const uint32_t share = ptx::cta_index().x == 0 ? (1u << 31) - (kCtas - 1) : 1;
  ptx::red_release_gpu_global_add_u32(barrier, share);
  global_wait_changed(barrier, before, 1u << 31);
}

enum MeetFault : int {
  kMeets = 0,       // right
  kReadsTooSoon,    // another CTA's words, before they have met
  kThreadsTooLate,  // thread 0 meets the others before its own threads have written
  kWritesTooSoon,   // what others still read is written again, with no second meeting
};

// Twice: each CTA writes its words, they meet, each adds up another's.
KB_GLOBAL void exchange(uint32_t* words, uint32_t* barrier, uint32_t* out, int fault) {
  const uint32_t thread = ptx::thread_index();
  const uint32_t cta = ptx::cta_index().x;
  const uint32_t other = (cta + 1) % kCtas * kThreads + thread;
  uint32_t sum = 0;
  for (uint32_t round = 0; round < 2; ++round) {
    uint32_t before = *barrier;
    if (fault == kReadsTooSoon) sum += words[other];
    ptx::bar_sync();
    words[cta * kThreads + thread] = cta + round;
    if (fault != kThreadsTooLate) ptx::bar_sync();
    if (thread == 0) meet(barrier, before);
    ptx::bar_sync();
    if (fault != kReadsTooSoon) sum += words[other];
    if (fault == kWritesTooSoon) continue;
    before = *barrier;
    ptx::bar_sync();
    if (thread == 0) meet(barrier, before);
    ptx::bar_sync();
  }
  out[cta * kThreads + thread] = sum;
}

enum HandFault : int {
  kHandsOn = 0,   // right
  kWaitsForRead,  // until the bulk store has read its source, not until it has written
  kTakesUnasked,  // the reader does not wait for the flag
  kLoadInFlight,  // the reader clears the flag while its copy is on its way; a third CTA overwrites
};

// CTA 0 hands words on by a bulk store and a flag; CTA 1 takes them by a bulk copy; CTA 2 writes
// over them.
KB_GLOBAL void hand_on(uint32_t* words, uint32_t* flags, uint32_t* out, int fault) {
  auto& shared = shared_storage<SharedStorage>();
  const uint32_t cta = ptx::cta_index().x;
  const uint32_t thread = ptx::thread_index();
  shared.words[thread] = 100 * cta + thread;
  if (thread == 0) {
    ptx::mbarrier_init(&shared.full, 1);
    ptx::fence_mbarrier_init_release_cluster();
  }
  ptx::fence_proxy_async(ptx::space_shared_cta);
  ptx::bar_sync();
  if (thread != 0) return;
  if (cta == 1) {
    if (fault != kTakesUnasked) global_wait_at_least(&flags[0], 1);
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, &shared.full,
                                   sizeof shared.words);
    ptx::cp_async_bulk_shared_global(shared.words, words, sizeof shared.words, &shared.full);
    if (fault == kLoadInFlight) ptx::red_release_gpu_global_add_u32(&flags[1], 1);
    mbarrier_wait_parity(&shared.full, 0);
    out[0] = shared.words[1];
    if (fault != kLoadInFlight) ptx::red_release_gpu_global_add_u32(&flags[1], 1);
    return;
  }
  if (cta == 2) global_wait_at_least(&flags[1], 1);
  ptx::cp_async_bulk_global_shared(words, shared.words, sizeof shared.words);
  ptx::cp_async_bulk_commit_group();
  if (cta == 0 && fault != kWaitsForRead) {
    ptx::cp_async_bulk_wait_group<0>();
  } else {
    ptx::cp_async_bulk_wait_group_read<0>();
  }
  if (cta == 0) ptx::red_release_gpu_global_add_u32(&flags[0], 1);
}

// Adds to counters without order, and to a plain word behind an acquired release.
KB_GLOBAL void count(uint32_t* counters) {
  ptx::atom_relaxed_gpu_global_add_u32(&counters[ptx::thread_index() % 4], 1);
}

// out = the sum of `words`, or their copy.
KB_GLOBAL void copy_words(const uint32_t* words, uint32_t* out) {
  const uint32_t i = ptx::cta_index().x * kThreads + ptx::thread_index();
  out[i] = words[i];
}

KB_GLOBAL void write_words(uint32_t* words, uint32_t end) {
  const uint32_t i = ptx::cta_index().x * kThreads + ptx::thread_index();
  if (i < end) words[i] = i;
}

KB_GLOBAL void add_words(float* out) {
  ptx::red_relaxed_gpu_global_add_f32(out + ptx::thread_index(), 1.0f);
}

// A bulk copy of a tile of which a part may be empty.
KB_GLOBAL void copy_tile(const uint32_t* words, uint32_t* out) {
  auto& shared = shared_storage<SharedStorage>();
  if (ptx::thread_index() == 0) {
    ptx::mbarrier_init(&shared.full, 1);
    ptx::fence_mbarrier_init_release_cluster();
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, &shared.full,
                                   sizeof shared.words);
    ptx::cp_async_bulk_shared_global(shared.words, words, sizeof shared.words, &shared.full);
  }
  ptx::bar_sync();
  mbarrier_wait_parity(&shared.full, 0);
  if (ptx::thread_index() < 8) out[ptx::thread_index()] = shared.words[ptx::thread_index()];
}

enum CountFault : int {
  kResets = 0,  // right: the last CTA sets the counter back
  kMemsets,     // right: the host does before every call
  kNeverReset,
};

// The last CTA adds up what all have left.
KB_GLOBAL void sum_by_last(uint32_t* parts, uint32_t* counter, uint32_t* out, int fault) {
  const uint32_t cta = ptx::cta_index().x;
  if (ptx::thread_index() != 0) return;
  parts[cta] = cta + 1;
  ptx::fence(ptx::sem_acq_rel, ptx::scope_gpu);
  if (ptx::atom_relaxed_gpu_global_add_u32(counter, 1) + 1 != kCtas) return;
  ptx::fence(ptx::sem_acq_rel, ptx::scope_gpu);
  uint32_t sum = 0;
  for (uint32_t i = 0; i < kCtas; ++i) sum += parts[i];
  out[0] = sum;
  if (fault == kResets) *counter = 0;
}

// What the calls of a step keep: allocated once, of `words` words, zero if they are set.
uint32_t* workspace(size_t words, bool zero) {
  auto* memory = static_cast<uint32_t*>(rt::device_malloc(words * sizeof(uint32_t)));
  if (zero) rt::memset_async(memory, 0, words * sizeof(uint32_t), {});
  return memory;
}

template <typename Body>
int guarded_call(char* message, Body&& body) {
  return guarded(message, 256, body);
}

rt::LaunchConfig grid(uint32_t ctas, bool cooperative = false) {
  rt::LaunchConfig config{
      .grid = {ctas, 1, 1}, .threads = kThreads, .shared_bytes = sizeof(SharedStorage)};
  config.cooperative = cooperative;
  return config;
}

}  // namespace

KB_EXPORT int run_exchange(int fault, uint32_t* out, char* message) {
  return guarded_call(message, [&] {
    uint32_t* words = workspace(kWords + 1, true);
    rt::launch(exchange, grid(kCtas, true), words, words + kWords, out, fault);
    rt::device_free(words);
  });
}

KB_EXPORT int run_hand_on(int fault, uint32_t* out, char* message) {
  return guarded_call(message, [&] {
    uint32_t* words = workspace(kThreads + 4, true);
    rt::launch(hand_on, grid(3, true), words, words + kThreads, out, fault);
    rt::device_free(words);
  });
}

enum Content : int { kNothing = 0, kMemset, kCopied, kWritten, kHalfWritten, kGraph };

// out = a workspace that somebody has written, or nobody.
KB_EXPORT int run_workspace(int content, bool by_tile, uint32_t* out, char* message) {
  return guarded_call(message, [&] {
    constexpr size_t kBytes = kWords * sizeof(uint32_t);
    uint32_t* words = workspace(kWords, false);
    static uint32_t host[kWords] = {};
    if (content == kMemset) rt::memset_async(words, 0, kBytes, {});
    if (content == kCopied) rt::copy_to_device_async(words, host, kBytes, {});
    if (content == kWritten) rt::launch(write_words, grid(kCtas), words, kWords);
    if (content == kHalfWritten) rt::launch(write_words, grid(1), words, 8u);
    const auto use = [=](rt::Stream stream) {
      if (content == kGraph) rt::memset_async(words, 0, kBytes, stream);
      if (by_tile) {
        rt::launch(copy_tile, grid(1), words, out);
      } else {
        rt::launch(copy_words, grid(kCtas), words, out);
      }
    };
    if (content == kGraph) {
      rt::Graph graph(use);
      for (int i = 0; i < 2; ++i) graph.launch({});
    } else {
      use({});
    }
    rt::device_free(words);
  });
}

// Adds to an output.
KB_EXPORT int run_add(bool zeroed, float* out, char* message) {
  return guarded_call(message, [&] {
    if (zeroed) rt::memset_async(out, 0, kThreads * sizeof(float), {});
    rt::launch(add_words, grid(kCtas), out);
  });
}

KB_EXPORT int run_count(uint32_t* counters, char* message) {
  return guarded_call(message, [&] { rt::launch(count, grid(kCtas), counters); });
}

// A call of a step that keeps its workspace.
KB_EXPORT int run_sum(int fault, uint32_t* out, char* message) {
  return guarded_call(message, [&] {
    static uint32_t* kept[3] = {};
    uint32_t*& words = kept[fault];
    if (words == nullptr) words = workspace(kCtas + 1, true);
    if (fault == kMemsets) rt::memset_async(words + kCtas, 0, sizeof(uint32_t), {});
    rt::launch(sum_by_last, grid(kCtas), words, words + kCtas, out, fault);
  });
}
