// Work by Cluster Launch Control: a CTA takes over the index of one that has not started, for
// kernels without clusters. One answer is on its way at a time:
//
//   one thread    request_cta
//   every thread  take_cta; a barrier; then one thread may request again
//
// Until an answer grants nothing: a CTA that has read it must not ask again (PTX ISA 9.1, 9.7.13).
#pragma once

#include "ptx/clc.cuh"
#include "ptx/fence.cuh"
#include "wait.cuh"

namespace kb {

// In shared memory.
struct LaunchControl {
  ClcResponse response;
  Mbarrier answered;  // its phase is complete after 1 arrival of who asks and the answer's bytes
};

// What a CTA may work on next.
struct NextCta {
  bool granted;
  uint32_t index;  // along x
};

// By one thread, before a CTA barrier or its own first request.
KB_DEVICE void init_launch_control(LaunchControl& control) {
  ptx::mbarrier_init(&control.answered, 1);
  ptx::fence_mbarrier_init_release_cluster();  // the answer's bytes count at cluster scope
}

// By one thread, after every thread has taken the last answer.
KB_DEVICE void request_cta(LaunchControl& control) {
  ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, &control.answered,
                                 sizeof(ClcResponse));
  ptx::clusterlaunchcontrol_try_cancel(&control.response, &control.answered);
}

// Waits for an answer; `phase`: its number's parity, the first is 0. Fenced, because the next
// answer comes by the async proxy to the bytes that this thread has read.
KB_DEVICE NextCta take_cta(const LaunchControl& control, uint32_t phase) {
  mbarrier_wait_parity(&control.answered, phase);
  NextCta next{ptx::clusterlaunchcontrol_query_cancel_is_canceled(&control.response), 0};
  if (next.granted) {
    next.index = ptx::clusterlaunchcontrol_query_cancel_get_first_ctaid(&control.response).x;
  }
  ptx::fence_proxy_async(ptx::space_shared_cta);
  return next;
}

}  // namespace kb
