// The PTX text of each tag, substituted into asm by the "C" constraint.
#pragma once

namespace kb::ptx::detail {

template <typename Tag>
struct Text;

template <>
struct Text<SemRelaxed> {
  static constexpr char kValue[] = "relaxed";
};
template <>
struct Text<SemAcquire> {
  static constexpr char kValue[] = "acquire";
};
template <>
struct Text<SemRelease> {
  static constexpr char kValue[] = "release";
};
template <>
struct Text<SemAcqRel> {
  static constexpr char kValue[] = "acq_rel";
};
template <>
struct Text<ScopeCta> {
  static constexpr char kValue[] = "cta";
};
template <>
struct Text<ScopeCluster> {
  static constexpr char kValue[] = "cluster";
};
template <>
struct Text<ScopeGpu> {
  static constexpr char kValue[] = "gpu";
};
template <>
struct Text<SpaceSharedCta> {
  static constexpr char kValue[] = "shared::cta";
};
template <>
struct Text<SpaceSharedCluster> {
  static constexpr char kValue[] = "shared::cluster";
};
template <>
struct Text<SpaceGlobal> {
  static constexpr char kValue[] = "global";
};
template <>
struct Text<CollectorAFill> {
  static constexpr char kValue[] = "fill";
};
template <>
struct Text<CollectorAUse> {
  static constexpr char kValue[] = "use";
};
template <>
struct Text<CollectorALastuse> {
  static constexpr char kValue[] = "lastuse";
};
template <>
struct Text<CollectorADiscard> {
  static constexpr char kValue[] = "discard";
};

}  // namespace kb::ptx::detail
