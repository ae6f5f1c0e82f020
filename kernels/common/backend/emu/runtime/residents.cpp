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
  shared_mapping = (ctas + 1) * kSharedStride;
  void* memory =
      mmap(nullptr, shared_mapping, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* base = static_cast<std::byte*>(memory) + kSharedStride / 2;
  for (uint32_t i = 0; i < ctas; ++i) {
    const size_t bytes = (kMaxSharedBytes + 4095) / 4096 * 4096;
    if (mprotect(base + i * kSharedStride, bytes, PROT_READ | PROT_WRITE) != 0) {
      throw std::bad_alloc();
    }
  }
  shared = base;
}

Resources::~Resources() {
  if (shared != nullptr) munmap(shared - kSharedStride / 2, shared_mapping);
}

// A fiber for each thread of the clusters that are resident at a time.
Runner::Runner(Launch& launch, std::unique_ptr<Resources> resources, uint32_t clusters)
    : launch_(launch), resources_(std::move(resources)), clusters_(clusters) {
  fibers_.resize(resources_->threads);
  for (size_t i = 0; i < fibers_.size(); ++i) fibers_[i].stack = resources_->stacks.at(i);
}

// Whether an address lies in the mapping of shared memory: a fault there is beyond some CTA's end.
bool Runner::owns_shared_guard(const void* address) const {
  const auto* byte = static_cast<const std::byte*>(address);
  const std::byte* low = resources_->shared - kSharedStride / 2;
  return byte >= low && byte < low + resources_->shared_mapping;
}

// A cluster's CTAs start together (PTX ISA 9.1, 2.2). Its draws depend on the seed, the launch and
// its id only.
void Runner::start(Cluster& cluster, uint32_t id, size_t slot) {
  cluster.launch = &launch_;
  cluster.id = id;
  cluster.shared_base = resources_->shared + slot * launch_.cluster * kSharedStride;
  uint64_t seed = options().seed * 0x2545f4914f6cdd1du + launch_.number * 0x9e3779b1u + id;
  split_mix(seed);
  cluster.random_state = seed;
  cluster.barrier = {};
  cluster.next_copy = 0;
  cluster.grid_waits.clear();
  const uint32_t warps = (launch_.threads + kWarpSize - 1) / kWarpSize;
  const uint32_t threads = launch_.threads * launch_.cluster;
  cluster.components = threads + 2 * warps * launch_.cluster + kCopySlots;
  cluster.live_threads = threads;
  forget_accesses(cluster);
  if (cluster.ctas.size() != launch_.cluster) {
    cluster.ctas.clear();
    cluster.ctas.resize(launch_.cluster);
  }
  for (uint32_t rank = 0; rank < launch_.cluster; ++rank) {
    Cta& cta = cluster.ctas[rank];
    cta.cluster = &cluster;
    cta.rank = rank;
    start_memory(cta);
    start_threads(cta, &fibers_[slot * threads]);
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
  cta.index = launch_.cta_index(cluster.id, cta.rank);
  cta.shared = cluster.shared_base + cta.rank * kSharedStride;
  cta.shared_bytes = launch_.shared_bytes;
  cta.shared_type = nullptr;
  std::memset(cta.shared, 0xff, launch_.shared_bytes);
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
  cta.live_threads = launch_.threads;
  cta.pending = 0;
  cta.triggered = false;
  const uint32_t warps = (launch_.threads + kWarpSize - 1) / kWarpSize;
  cta.warps.clear();
  cta.warps.resize(warps);
  cta.threads.clear();
  cta.threads.resize(launch_.threads);
  for (uint32_t w = 0; w < warps; ++w) {
    Warp& warp = cta.warps[w];
    warp.cta = &cta;
    warp.index = w;
    warp.count = std::min(kWarpSize, launch_.threads - w * kWarpSize);
    warps_.push_back(&warp);
  }
  for (uint32_t t = 0; t < launch_.threads; ++t) {
    Thread& thread = cta.threads[t];
    thread.cta = &cta;
    thread.index = t;
    thread.lane = t % kWarpSize;
    thread.warp = &cta.warps[t / kWarpSize];
    if (thread.lane == 0) thread.warp->threads = &thread;
    thread.component = cta.rank * launch_.threads + t;
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
