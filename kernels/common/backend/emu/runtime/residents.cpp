// Clusters on the OS thread that runs them: their shared memory and stacks, and the state that each
// begins with.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "launch.hpp"
#include "runner.hpp"

namespace kb::emu {

Resources::Resources(uint32_t threads, uint32_t ctas)
    : threads(threads), ctas(ctas), stacks(threads) {
  // One CTA's shared memory per stride; everything behind it stays unmapped and faults.
  mapped = (ctas + 2) * kSharedStride;
  void* memory =
      mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mapping = static_cast<std::byte*>(memory);
  const size_t beyond = reinterpret_cast<uintptr_t>(mapping) % kSharedStride;
  std::byte* const windows = mapping + (kSharedStride - beyond);
  for (uint32_t i = 0; i < ctas; ++i) {
    const size_t bytes = (kSharedBase + kMaxSharedBytes + 4095) / 4096 * 4096;
    if (mprotect(windows + i * kSharedStride, bytes, PROT_READ | PROT_WRITE) != 0) {
      throw std::bad_alloc();
    }
  }
  shared = windows + kSharedBase;
}

Resources::~Resources() {
  if (mapping != nullptr) munmap(mapping, mapped);
}

Runner::Runner(Launch& launch, std::unique_ptr<Resources> resources, uint32_t clusters,
               uint32_t threads, uint32_t ctas)
    : launch_(launch), roomy_(clusters), threads_(threads), ctas_(ctas) {
  add_home(std::move(resources));
}

// A fiber for each thread of the clusters that are resident at a time.
void Runner::add_home(std::unique_ptr<Resources> resources) {
  Home& home = homes_.emplace_back();
  home.fibers.resize(resources->threads);
  for (size_t i = 0; i < home.fibers.size(); ++i) home.fibers[i].stack = resources->stacks.at(i);
  home.resources = std::move(resources);
}

void Runner::give_back_resources() {
  for (Home& home : homes_) give_back(std::move(home.resources));
}

bool Runner::owns_stack_guard(const void* address) const {
  return std::any_of(homes_.begin(), homes_.end(), [address](const Home& home) {
    return home.resources->stacks.in_guard(address);
  });
}

// Whether an address lies in the mapping of shared memory: a fault there is beyond some CTA's end.
bool Runner::owns_shared_guard(const void* address) const {
  const auto* byte = static_cast<const std::byte*>(address);
  return std::any_of(homes_.begin(), homes_.end(), [byte](const Home& home) {
    const Resources& resources = *home.resources;
    return byte >= resources.mapping && byte < resources.mapping + resources.mapped;
  });
}

// Starts one more cluster beside those that run; false if `id` is none.
bool Runner::start_another(int64_t id) {
  if (id < 0) return false;
  start(static_cast<uint32_t>(id));
  // Another warp may be the one that waits.
  const auto warps = static_cast<uint32_t>(warps_.size());
  if (checking()) held_up_ = choose(2 * warps, warps);
  return true;
}

// A cluster's CTAs start together (PTX ISA 9.1, 2.2). Its draws depend on the seed, the launch and
// its id only.
void Runner::start(uint32_t id) {
  progressed();
  const size_t slot = started_++;
  if (slot >= clusters_.size()) clusters_.emplace_back();
  const size_t extra = slot < roomy_ ? 0 : slot - roomy_ + 1;
  Launch& launch = launch_.grid_of(id);
  const uint32_t threads = launch.threads * launch.cluster;
  if (extra >= homes_.size()) add_home(resources_for(threads_, ctas_));
  Home& home = homes_[extra];
  const size_t place = extra == 0 ? slot : 0;
  Cluster& cluster = clusters_[slot];
  cluster.launch = &launch;
  cluster.id = id;
  cluster.shared_base = home.resources->shared + place * ctas_ * kSharedStride;
  uint64_t seed = options().seed * 0x2545f4914f6cdd1du + launch.number * 0x9e3779b1u + id;
  split_mix(seed);
  cluster.random_state = seed;
  cluster.barrier = {};
  cluster.next_copy = 0;
  cluster.grid_waits.clear();
  const uint32_t warps = (launch.threads + kWarpSize - 1) / kWarpSize;
  const uint32_t components = threads + 2 * warps * launch.cluster + kCopySlots;
  cluster.components = (components + kClockPart - 1) / kClockPart * kClockPart;
  cluster.live_threads = threads;
  if (checking()) cluster.accesses.clear();
  if (cluster.ctas.size() != launch.cluster) {
    cluster.ctas.clear();
    cluster.ctas.resize(launch.cluster);
  }
  for (uint32_t rank = 0; rank < launch.cluster; ++rank) {
    Cta& cta = cluster.ctas[rank];
    cta.cluster = &cluster;
    cta.rank = rank;
    start_memory(cta);
    start_threads(cta, &home.fibers[place * threads_]);
    start_tma(cta);
    start_tensor(cta);
  }
  live_ += threads;
}

// PTX: 5.1: shared memory is not initialized, and keeps nothing from an earlier CTA.
// Fresh shared memory, barriers and, when checking, shadows. Memory of a CTA that has gone may be
// used again: it holds a pattern that is NaN in every float format.
void Runner::start_memory(Cta& cta) {
  Cluster& cluster = *cta.cluster;
  const Launch& launch = *cluster.launch;
  cta.index = launch.cta_index(cluster.id, cta.rank);
  cta.shared = cluster.shared_base + cta.rank * kSharedStride;
  cta.shared_bytes = launch.shared_bytes;
  cta.shared_type = nullptr;
  std::memset(cta.shared, 0xff, launch.shared_bytes);
  cta.barrier_index.assign(kMaxSharedBytes / 8, 0);
  cta.barriers.clear();
  for (NamedBarrier& barrier : cta.named) barrier = {};
  if (!checking()) {
    cta.shared_shadow.reset();
    cta.tmem_shadow.reset();
    return;
  }
  const uint32_t cells = kMaxSharedBytes / 4;
  if (!cta.shared_shadow) {
    cta.shared_shadow = std::make_unique<Shadow>(cta, Shadow::Space::kShared, cells);
    cta.tmem_shadow = std::make_unique<Shadow>(cta, Shadow::Space::kTmem, 512 * 8);
  }
  cta.shared_shadow->reset();
  cta.tmem_shadow->reset();
  cta.async_view.resize(kMaxSharedBytes);
  cta.async_differs.assign(cells, 0);
}

// Warps and threads, each thread with a fiber from `fibers` on and a clock that knows of nothing
// but itself. The clocks' components: the cluster's threads, by rank; then pipes; then copies.
void Runner::start_threads(Cta& cta, Fiber* fibers) {
  const uint32_t count = cta.cluster->launch->threads;
  cta.live_threads = count;
  cta.pending = 0;
  cta.triggered = false;
  const uint32_t warps = (count + kWarpSize - 1) / kWarpSize;
  cta.warps.clear();
  cta.warps.resize(warps);
  cta.threads.clear();
  cta.threads.resize(count);
  for (uint32_t w = 0; w < warps; ++w) {
    Warp& warp = cta.warps[w];
    warp.cta = &cta;
    warp.index = w;
    warp.count = std::min(kWarpSize, count - w * kWarpSize);
    warp.number = static_cast<uint32_t>(warps_.size());
    warps_.push_back(&warp);
    awake_.resize(warps_.size() / 64 + 1);
    may_run(warp.number);
  }
  for (uint32_t t = 0; t < count; ++t) {
    Thread& thread = cta.threads[t];
    thread.cta = &cta;
    thread.index = t;
    thread.lane = t % kWarpSize;
    thread.warp = &cta.warps[t / kWarpSize];
    if (thread.lane == 0) thread.warp->threads = &thread;
    thread.component = cta.rank * count + t;
    thread.fiber = &fibers[thread.component];
    if (checking()) {
      thread.knows.seen.at.assign(cta.cluster->components, 0);
      thread.knows.published.at.assign(cta.cluster->components, 0);
      thread.knows.seen.at[thread.component] = 1;
    }
    prepare(*thread.fiber, [] { current_runner->thread_main(); });
  }
}

}  // namespace kb::emu
