// Functions that only sm_90a has.
#include "every_function.cuh"
#include "ptx/wgmma.cuh"

EVERY(wgmma_fence) {
  ptx::wgmma_fence();
}
EVERY(wgmma_commit_group) {
  ptx::wgmma_commit_group();
}
EVERY(wgmma_wait_group) {
  ptx::wgmma_wait_group<1>();
}

template <int kCount>
KB_DEVICE void load(const Arguments& a, float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) d[i] = a.sums[i];
}

template <int kCount>
KB_DEVICE void store(const Arguments& a, const float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) a.sums[i] = d[i];
}

template <int kCount>
KB_DEVICE void e4m3(const Arguments& a) {
  const uint32_t fragment[4] = {a.u, a.v, a.w, a.u};
  float d[kCount];
  load(a, d);
  ptx::wgmma_fence(d);
  ptx::wgmma_mma_async_f32_e4m3_e4m3(d, a.a, a.b, a.x != 0);
  ptx::wgmma_mma_async_f32_e4m3_e4m3(d, fragment, a.b, true);
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>(d);
  store(a, d);
}
template <int kCount>
KB_DEVICE void e4m3_up_to(const Arguments& a) {
  if constexpr (kCount > 4) e4m3_up_to<kCount - 4>(a);
  e4m3<kCount>(a);
}
EVERY(wgmma_mma_async_f32_e4m3_e4m3) {
  e4m3_up_to<128>(a);
}

template <int kCount>
KB_DEVICE void f16(const Arguments& a) {
  const uint32_t fragment[4] = {a.u, a.v, a.w, a.u};
  float d[kCount];
  load(a, d);
  ptx::wgmma_fence(d);
  ptx::wgmma_mma_async_f32_f16_f16(d, a.a, a.b, a.x != 0);
  ptx::wgmma_mma_async_f32_f16_f16(d, fragment, a.b, true);
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>(d);
  store(a, d);
}
template <int kCount>
KB_DEVICE void f16_up_to(const Arguments& a) {
  if constexpr (kCount > 4) f16_up_to<kCount - 4>(a);
  f16<kCount>(a);
}
EVERY(wgmma_mma_async_f32_f16_f16) {
  f16_up_to<128>(a);
}
