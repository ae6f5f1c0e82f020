// What the checker believes beyond the letter of the PTX ISA: one kernel for each assumption. A
// fault would show now and then: each tries it many times. The planted variant does on purpose, and
// whatever the hardware's order, what the assumption rules out: that the probe sees it is the proof
// that it can refute. No planted variant waits for what may not come.
#include "parity.cuh"
#include "ptx/cluster.cuh"
#include "ptx/fence.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/pdl.cuh"
#include "ptx/red.cuh"
#include "ptx/tensormap.cuh"
#include "ptx/tma.cuh"
#include "ptx/warp.cuh"
#include "wait.cuh"

using ptx::scope_cta;
using ptx::sem_release;

inline constexpr uint32_t kRounds = 64;

// ---- reads-before-async: loads, an arrival, and a copy that overwrites what was read

inline constexpr uint32_t kReaders = 128;

struct Refilled {
  alignas(128) uint32_t words[kReaders];
  Mbarrier full;
  Mbarrier empty;
};

// out[thread of the grid]: rounds in which it has read something else than its round's word.
// Planted: it loads when the next copy has come.
template <bool kPlanted>
KB_GLOBAL void KB_LAUNCH_BOUNDS(32 + kReaders, 1) refilled(const uint32_t* in, uint32_t* out) {
  Refilled& shared = shared_storage<Refilled>();
  const uint32_t thread = ptx::thread_index();
  if (thread == 0) {
    ptx::mbarrier_init(&shared.full, 1);
    ptx::mbarrier_init(&shared.empty, kReaders);
    ptx::fence_mbarrier_init_release_cluster();
  }
  ptx::bar_sync();
  uint32_t wrong = 0;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const uint32_t* source = in + round * kReaders;
    if (thread >= 32) {
      mbarrier_wait_parity(&shared.full, round % 2);
      uint32_t value = shared.words[thread - 32];
      ptx::mbarrier_arrive(sem_release, scope_cta, &shared.empty);
      if (kPlanted && round + 1 < kRounds) {
        mbarrier_wait_parity(&shared.full, (round + 1) % 2);
        value = shared.words[thread - 32];
      }
      if (value != source[thread - 32]) ++wrong;
    } else if (thread == 0) {
      mbarrier_wait_parity(&shared.empty, round % 2 ^ 1);
      ptx::mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.full, sizeof shared.words);
      ptx::cp_async_bulk_shared_global(shared.words, source, sizeof shared.words, &shared.full);
    }
  }
  if (thread >= 32) out[ptx::cta_index().x * kReaders + thread - 32] = wrong;
}
template <bool kPlanted>
void refill(const Case& test) {
  const auto ctas = static_cast<uint32_t>(test.out_bytes / 4 / kReaders);
  rt::launch(refilled<kPlanted>,
             {.grid = {ctas, 1, 1}, .threads = 32 + kReaders, .shared_bytes = sizeof(Refilled)},
             test.in, test.out);
}
PARITY_CASE(refilled) {
  refill<false>(test);
}
PARITY_CASE(refilled_planted) {
  refill<true>(test);
}

// ---- copies-at-cta-scope: a copy that the other CTA of the cluster issues, and a wait at scope
// cta

// out[thread of the pair]: as above. Planted: it loads before the copy is issued.
template <bool kPlanted>
KB_GLOBAL void KB_LAUNCH_BOUNDS(kReaders, 1) multicast(const uint32_t* in, uint32_t* out) {
  Refilled& shared = shared_storage<Refilled>();
  const uint32_t thread = ptx::thread_index();
  const uint32_t rank = ptx::cluster_ctarank();
  if (thread == 0) {
    ptx::mbarrier_init(&shared.full, 1);
    ptx::fence_mbarrier_init_release_cluster();
  }
  uint32_t wrong = 0;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const uint32_t* source = in + round * kReaders;
    if (thread == 0) {
      ptx::mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.full, sizeof shared.words);
    }
    const uint32_t before = shared.words[thread];
    ptx::fence_proxy_async(ptx::space_shared_cta);
    ptx::barrier_cluster_arrive(sem_release);
    ptx::barrier_cluster_wait(ptx::sem_acquire);
    if (thread == 0 && rank == round % 2) {
      ptx::cp_async_bulk_shared_global(shared.words, source, sizeof shared.words, &shared.full,
                                       ClusterMask{3});
    }
    mbarrier_wait_parity(&shared.full, round % 2);
    const uint32_t value = kPlanted ? before : shared.words[thread];
    if (value != source[thread]) ++wrong;
  }
  ptx::barrier_cluster_arrive(sem_release);
  ptx::barrier_cluster_wait(ptx::sem_acquire);
  out[rank * kReaders + thread] = wrong;
}
template <bool kPlanted>
void copy_to_pair(const Case& test) {
  rt::launch(
      multicast<kPlanted>,
      {.grid = {2, 1, 1}, .threads = kReaders, .shared_bytes = sizeof(Refilled), .cluster = 2},
      test.in, test.out);
}
PARITY_CASE(multicast) {
  copy_to_pair<false>(test);
}
PARITY_CASE(multicast_planted) {
  copy_to_pair<true>(test);
}

// ---- dependent-stores: the last CTA to count itself stores what all have read, without a fence

inline constexpr uint32_t kPatience = 1000;

KB_DEVICE void store_first(uint32_t* counter, uint32_t* word) {
  if (ptx::cta_index().x == 0) {
    *word = 1;
  } else {
    for (uint32_t i = 0; i < kPatience; ++i) {
      if (ptx::atom_relaxed_gpu_global_add_u32(counter, 0) != 0) break;
    }
  }
  ptx::fence(ptx::sem_acq_rel, ptx::scope_gpu);
}

// out[CTA][round]: what it has read, 0 if no store went before. Planted: the first CTA stores
// before it counts itself, and the others read when it has counted itself or a while has passed.
template <bool kPlanted>
KB_GLOBAL void KB_LAUNCH_BOUNDS(32, 1)
    stored_by_last(uint32_t* counters, uint32_t* words, uint32_t* out) {
  if (ptx::thread_index() != 0) return;
  const uint32_t ctas = ptx::cta_count().x;
  for (uint32_t round = 0; round < kRounds; ++round) {
    if constexpr (kPlanted) store_first(&counters[round], &words[round]);
    const uint32_t seen = words[round];
    ptx::fence(ptx::sem_acq_rel, ptx::scope_gpu);
    if (ptx::atom_relaxed_gpu_global_add_u32(&counters[round], 1) == ctas - 1) words[round] = 1;
    out[ptx::cta_index().x * kRounds + round] = seen;
  }
}
template <bool kPlanted>
void store_by_last(const Case& test) {
  const auto ctas = static_cast<uint32_t>(test.out_bytes / 4 / kRounds);
  constexpr size_t kBytes = 2 * kRounds * sizeof(uint32_t);
  auto* words = static_cast<uint32_t*>(rt::device_malloc(kBytes));
  rt::memset_async(words, 0, kBytes, {});
  rt::launch(stored_by_last<kPlanted>, {.grid = {ctas, 1, 1}, .threads = 32, .shared_bytes = 0},
             words, words + kRounds, test.out);
  rt::device_free(words);
}
PARITY_CASE(stored_by_last) {
  store_by_last<false>(test);
}
PARITY_CASE(stored_by_last_planted) {
  store_by_last<true>(test);
}

// ---- plain-meeting-loads: a plain load of a word that atomics of all CTAs change

inline constexpr uint32_t kBothHalves = 0x10001;

// out[CTA][round]: 0 if both halves of what it has loaded are alike, and no more than were added.
// Planted: the halves are added one after the other, and it loads between.
template <bool kPlanted>
KB_GLOBAL void KB_LAUNCH_BOUNDS(32, 1) loaded_plainly(uint32_t* word, uint32_t* out) {
  if (ptx::thread_index() != 0) return;
  const uint32_t most = ptx::cta_count().x * kRounds;
  for (uint32_t round = 0; round < kRounds; ++round) {
    constexpr uint32_t kAdded = kPlanted ? 1 : kBothHalves;
    ptx::atom_relaxed_gpu_global_add_u32(word, kAdded);
    const uint32_t seen = *word;
    if constexpr (kPlanted) ptx::atom_relaxed_gpu_global_add_u32(word, kBothHalves - kAdded);
    const bool whole = (seen >> 16) == (seen & 0xffff) && (seen >> 16) <= most;
    out[ptx::cta_index().x * kRounds + round] = whole ? 0 : seen;
  }
}
template <bool kPlanted>
void load_plainly(const Case& test) {
  const auto ctas = static_cast<uint32_t>(test.out_bytes / 4 / kRounds);
  auto* word = static_cast<uint32_t*>(rt::device_malloc(sizeof(uint32_t)));
  rt::memset_async(word, 0, sizeof(uint32_t), {});
  rt::launch(loaded_plainly<kPlanted>, {.grid = {ctas, 1, 1}, .threads = 32, .shared_bytes = 0},
             word, test.out);
  rt::device_free(word);
}
PARITY_CASE(loaded_plainly) {
  load_plainly<false>(test);
}
PARITY_CASE(loaded_plainly_planted) {
  load_plainly<true>(test);
}

// ---- triggers-hand-on: a grid reads, before it waits, what its predecessor has waited for

KB_GLOBAL void write_value(uint32_t* word, uint32_t value) {
  word[ptx::cta_index().x * 32 + ptx::thread_index()] = value;
}
// Planted: it lets its dependents start and takes its time before it writes.
KB_GLOBAL void write_late(uint32_t* word, uint32_t* passed, uint32_t value) {
  ptx::griddepcontrol_launch_dependents();
  if (ptx::thread_index() == 0) {
    for (uint32_t i = 0; i < 64; ++i) ptx::atom_relaxed_gpu_global_add_u32(passed, 1);
  }
  ptx::bar_warp_sync();
  word[ptx::cta_index().x * 32 + ptx::thread_index()] = value;
}
template <bool kPlanted>
KB_GLOBAL void wait_and_trigger(uint32_t* unused) {
  if (!kPlanted) ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  if (kPlanted) ptx::griddepcontrol_wait();
  unused[ptx::cta_index().x * 32 + ptx::thread_index()] = 1;
}
KB_GLOBAL void read_first(const uint32_t* word, uint32_t* out) {
  const uint32_t i = ptx::cta_index().x * 32 + ptx::thread_index();
  out[i] = word[i];
  ptx::griddepcontrol_wait();
}
// out[round][thread of the grid]: the round's value. Planted: the trigger comes before the wait,
// and what is waited for late.
template <bool kPlanted>
void hand_on(const Case& test) {
  constexpr uint32_t kCtas = 8;
  constexpr size_t kBytes = (2 * kCtas * 32 + 1) * sizeof(uint32_t);
  auto* words = static_cast<uint32_t*>(rt::device_malloc(kBytes));
  rt::memset_async(words, 0, kBytes, {});
  const rt::LaunchConfig first{.grid = {kCtas, 1, 1}, .threads = 32, .shared_bytes = 0};
  rt::LaunchConfig dependent = first;
  dependent.dependent = true;
  for (uint32_t round = 0; round < kRounds; ++round) {
    if constexpr (kPlanted) {
      rt::launch(write_late, first, words, words + 2 * kCtas * 32, round + 1);
    } else {
      rt::launch(write_value, first, words, round + 1);
    }
    rt::launch(wait_and_trigger<kPlanted>, dependent, words + kCtas * 32);
    rt::launch(read_first, dependent, words, test.out + round * kCtas * 32);
  }
  rt::device_free(words);
}
PARITY_CASE(handed_on) {
  hand_on<false>(test);
}
PARITY_CASE(handed_on_planted) {
  hand_on<true>(test);
}

// ---- groups-cover-loads: a tensor map is changed once bulk groups have been waited for, though
// the copies that use it complete on an mbarrier

inline constexpr uint32_t kMapRows = 8;
inline constexpr uint32_t kMapWords = kMapRows * 32;

struct Mapped {
  alignas(1024) uint32_t words[kMapWords];
  alignas(128) TensorMap map;
  Mbarrier bar;
};

// out: the input, a matrix a round. Planted: the map is changed before the copy that uses it.
template <bool kPlanted>
KB_GLOBAL void KB_LAUNCH_BOUNDS(32, 1)
    changed_after_group(KB_GRID_CONSTANT(TensorMap) map, TensorMap* slot, const uint32_t* in,
                        uint32_t* out) {
  Mapped& shared = shared_storage<Mapped>();
  const uint32_t lane = ptx::thread_index();
  if (lane == 0) {
    ptx::mbarrier_init(&shared.bar, 1);
    ptx::fence_mbarrier_init_release_cluster();
    shared.map = map;
  }
  for (uint32_t round = 0; round <= kRounds; ++round) {
    if (lane == 0) {
      ptx::cp_async_bulk_wait_group_read<0>();
      ptx::tensormap_replace_global_address(ptx::space_shared_cta, &shared.map,
                                            in + (round + kPlanted) % kRounds * kMapWords);
    }
    ptx::bar_warp_sync();
    ptx::tensormap_cp_fenceproxy(slot, &shared.map);
    ptx::bar_warp_sync();
    if (round > 0) {  // the round before: its copy may have come before or after the change
      mbarrier_wait_parity(&shared.bar, (round - 1) % 2);
      for (uint32_t i = lane; i < kMapWords; i += 32) {
        out[(round - 1) * kMapWords + i] = shared.words[i];
      }
      ptx::fence_proxy_async(ptx::space_shared_cta);
      ptx::bar_warp_sync();
    }
    if (lane == 0 && round < kRounds) {
      ptx::fence_proxy_tensormap_generic_acquire_gpu(slot);
      ptx::mbarrier_arrive_expect_tx(sem_release, scope_cta, &shared.bar, 4 * kMapWords);
      ptx::cp_async_bulk_tensor_2d_shared_global(shared.words, slot, 0, 0, &shared.bar);
      ptx::cp_async_bulk_commit_group();
    }
  }
}
template <bool kPlanted>
void change_after_group(const Case& test) {
  const TensorMap map = rt::encode_tensor_map({.element = TensorMapElement::kU8,
                                               .rank = 2,
                                               .address = test.in,
                                               .dims = {128, kMapRows},
                                               .strides = {128},
                                               .box = {128, kMapRows}});
  auto* slot = static_cast<TensorMap*>(rt::device_malloc(sizeof(TensorMap)));
  rt::launch(changed_after_group<kPlanted>,
             {.grid = {1, 1, 1}, .threads = 32, .shared_bytes = sizeof(Mapped)}, map, slot, test.in,
             test.out);
  rt::device_free(slot);
}
PARITY_CASE(changed_after_group) {
  change_after_group<false>(test);
}
PARITY_CASE(changed_after_group_planted) {
  change_after_group<true>(test);
}
