// What the emulator's inline ptx functions call: threads, warps, barriers, fences and clusters (PTX
// ISA 9.1, 9.7.9 and 9.7.13), and the host side. Each takes the caller's address on entry, so a
// finding names the kernel's line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace kb {
struct CtaIndex;
struct TensorMap;
namespace rt {
struct LaunchConfig;
struct TensorMapTile;
}  // namespace rt
}  // namespace kb

namespace kb::emu {

struct BulkReduction;

// Kernel side.
void* shared_storage(size_t bytes, const char* pretty_function);
uint32_t smem_address(const void* pointer);

uint32_t thread_index();
CtaIndex cta_index();
CtaIndex cta_count();
uint32_t elect_sync(uint32_t members);
void bar_warp_sync(uint32_t members);
void bar_sync_all(uint32_t barrier = 0);
void bar_sync(uint32_t barrier, uint32_t threads);
void bar_arrive(uint32_t barrier, uint32_t threads);
void setmaxnreg(uint32_t count, bool increase);
enum class Shuffle : uint32_t { kXor, kIndex, kUp };
uint32_t shfl(Shuffle mode, uint32_t value, uint32_t operand, uint32_t members);
uint32_t vote_ballot(bool predicate, uint32_t members);
uint32_t redux_max(uint32_t value, uint32_t members);
uint32_t redux_add(uint32_t value, uint32_t members);

// Threads that an acquire, a release, an atomic or a fence pairs with: of the CTA, the cluster, the
// GPU. Narrower ones compare less.
enum class Scope : uint8_t { kCta, kCluster, kGpu, kSystem };

void mbarrier_init(void* bar, uint32_t count);
void mbarrier_inval(void* bar);
void mbarrier_arrive(void* bar, uint32_t count, bool release);
void mbarrier_arrive_remote(uint32_t bar, uint32_t count, bool release);
void mbarrier_arrive_drop(void* bar, bool release);
void mbarrier_arrive_expect_tx(void* bar, uint32_t bytes, bool release);
void mbarrier_arrive_expect_tx_remote(uint32_t bar, uint32_t bytes, bool release);
void mbarrier_expect_tx(void* bar, uint32_t bytes);
void mbarrier_expect_tx_remote(uint32_t bar, uint32_t bytes);
void mbarrier_complete_tx(void* bar, uint32_t bytes);
void mbarrier_complete_tx_remote(uint32_t bar, uint32_t bytes);
bool mbarrier_test_wait_parity(const void* bar, uint32_t parity, bool acquire, Scope scope);
void mbarrier_wait_parity(const void* bar, uint32_t parity, bool acquire, Scope scope);
void red_add_u32(uint32_t* dst, uint32_t value);
void global_wait_at_least(const uint32_t* word, uint32_t value);
uint32_t global_wait_changed(const uint32_t* word, uint32_t before, uint32_t mask);

void fence_mbarrier_init();
void fence_acq_rel(Scope scope);
// Makes the caller's generic writes, and those it has seen, visible to the async proxy.
void fence_proxy_async(bool shared, bool global);

void griddepcontrol_wait();
void griddepcontrol_launch_dependents();

uint32_t cluster_ctarank();
uint32_t cluster_nctarank();
uint32_t clusterid_x();
CtaIndex cluster_extent();
void barrier_cluster_arrive(bool release);
void barrier_cluster_wait();
uint32_t mapa(const void* pointer, uint32_t rank);
void st_shared_cluster(uint32_t address, uint32_t value);
uint32_t ld_shared_cluster(uint32_t address);
// 4, 8 or 16 bytes.
void st_async_shared_cluster(uint32_t address, const void* values, uint32_t bytes, uint32_t bar);
// Of one integer of 4 or 8 bytes.
void red_async_shared_cluster(uint32_t address, const void* value, const BulkReduction& reduction,
                              uint32_t bar);

// Host side.
int sm_count();
// Something else than a kernel was enqueued, and all before it waited for.
void stream_operation();
// And wrote there.
void host_wrote(void* pointer, size_t bytes);
void* device_malloc(size_t bytes);
void device_free(void* pointer);
void* pinned_malloc(size_t bytes);
void pinned_free(void* pointer);
void launch(const rt::LaunchConfig& config, std::function<void()> body);
int ctas_per_sm(uint32_t threads, uint32_t shared_bytes);

// Streams. An operation is done at once, or, while calls are queued (kb_emu_queue), by
// finish_queue.
void enqueue(std::function<void()> operation);
// Of the call that the host makes (kb_emu_call_stream); null if nobody has said.
const void* call_stream();
bool queued();
void finish_queue();
void note_pinned(const void* pointer, size_t bytes);
void forget_pinned(const void* pointer);
bool is_pinned(const void* pointer);

// What the caller of a step records (kb_emu_record) is done when it is replayed. Once a call has
// ended the recording, nothing more can be recorded.
bool caller_records();
void end_recording(const char* call);
const char* recording_ended_by();
void record(std::function<void()> operation);

}  // namespace kb::emu
