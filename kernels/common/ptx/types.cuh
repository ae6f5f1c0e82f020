// Operand types of the ptx layer, and the tags that stand for a PTX modifier.
#pragma once

#include "../kb.cuh"

namespace kb {

// Opaque barrier object in shared memory (PTX ISA 9.1, 9.7.13.15).
struct alignas(8) Mbarrier {
  uint64_t state;
};

// Opaque TMA descriptor, laid out as the driver's CUtensorMap. The driver asks for 64-byte
// alignment; tensormap.replace and cp_fenceproxy for 128.
struct alignas(128) TensorMap {
  uint64_t opaque[16];
};
static_assert(sizeof(TensorMap) == 128);

// The place of a T in the shared memory of some CTA of the cluster, from ptx::mapa. A type of its
// own, so that a local pointer cannot be passed where PTX wants a shared::cluster address.
template <typename T>
struct ClusterAddress {
  uint32_t bits;
};

// Bit r stands for the CTA with cluster rank r.
struct ClusterMask {
  uint16_t bits;
};

// L2 eviction policy, from ptx::createpolicy_*: a hint, never needed for correctness.
struct CachePolicy {
  uint64_t bits;
};

// The 16 opaque bytes that answer a Cluster Launch Control request.
struct alignas(16) ClcResponse {
  uint64_t opaque[2];
};

// Index of a CTA in the grid.
struct CtaIndex {
  uint32_t x, y, z;
};

// Operands of tensormap.replace; the numbers are PTX's, not the driver's enumeration.
enum class TensorMapElement : uint32_t {
  kU8 = 0,
  kU16 = 1,
  kU32 = 2,
  kS32 = 3,
  kU64 = 4,
  kS64 = 5,
  kF16 = 6,
  kF32 = 7,
  kF32Ftz = 8,
  kF64 = 9,
  kBf16 = 10,
};
enum class TensorMapInterleave : uint32_t { kNone = 0, k16B = 1, k32B = 2 };
enum class TensorMapSwizzle : uint32_t { kNone = 0, k32B = 1, k64B = 2, k128B = 3 };
enum class TensorMapFill : uint32_t { kZero = 0, kNan = 1 };

}  // namespace kb

namespace kb::ptx {

struct SemRelaxed {};
struct SemAcquire {};
struct SemRelease {};
struct SemAcqRel {};
inline constexpr SemRelaxed sem_relaxed{};
inline constexpr SemAcquire sem_acquire{};
inline constexpr SemRelease sem_release{};
inline constexpr SemAcqRel sem_acq_rel{};

struct ScopeCta {};
struct ScopeCluster {};
struct ScopeGpu {};
inline constexpr ScopeCta scope_cta{};
inline constexpr ScopeCluster scope_cluster{};
inline constexpr ScopeGpu scope_gpu{};

struct SpaceSharedCta {};
struct SpaceSharedCluster {};
struct SpaceGlobal {};
inline constexpr SpaceSharedCta space_shared_cta{};
inline constexpr SpaceSharedCluster space_shared_cluster{};
inline constexpr SpaceGlobal space_global{};

// How many CTAs take part in a tcgen05 operation; one value per kernel.
template <int kCtas>
struct CtaGroup {
  static_assert(kCtas == 1 || kCtas == 2, "cta_group is 1 or 2");
};
inline constexpr CtaGroup<1> cta_group_1{};
inline constexpr CtaGroup<2> cta_group_2{};

// What the MMA's buffer of A does: keep what it loads, use what was kept, use it a last time, or
// neither (the default). A hint: results do not depend on it.
struct CollectorAFill {};
struct CollectorAUse {};
struct CollectorALastuse {};
struct CollectorADiscard {};
inline constexpr CollectorAFill collector_a_fill{};
inline constexpr CollectorAUse collector_a_use{};
inline constexpr CollectorALastuse collector_a_lastuse{};
inline constexpr CollectorADiscard collector_a_discard{};

}  // namespace kb::ptx
