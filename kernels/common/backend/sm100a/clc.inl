#pragma once

namespace kb::ptx {

template <typename T>
KB_DEVICE void clusterlaunchcontrol_try_cancel(ClcResponse* response, Mbarrier* bar) {
  // clang-format off
  asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta"
               ".mbarrier::complete_tx::bytes.b128 "
               "[%0], [%1];"
               :: "r"(smem_address(response)), "r"(smem_address(bar)) : "memory");
  // clang-format on
}

template <typename T>
KB_DEVICE void clusterlaunchcontrol_try_cancel_multicast_cluster_all(ClcResponse* response,
                                                                     Mbarrier* bar) {
  // clang-format off
  asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
               ".multicast::cluster::all.b128 [%0], [%1];"
               :: "r"(smem_address(response)), "r"(smem_address(bar)) : "memory");
  // clang-format on
}

template <typename T>
KB_DEVICE bool clusterlaunchcontrol_query_cancel_is_canceled(const ClcResponse* response) {
  uint32_t canceled;
  // clang-format off
  asm volatile("{.reg .pred p; .reg .b128 answer; ld.shared.b128 answer, [%1]; "
               "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, answer; "
               "selp.b32 %0, 1, 0, p;}"
               : "=r"(canceled) : "r"(smem_address(response)) : "memory");
  // clang-format on
  return canceled != 0;
}

template <typename T>
KB_DEVICE CtaIndex clusterlaunchcontrol_query_cancel_get_first_ctaid(const ClcResponse* response) {
  CtaIndex first;
  // clang-format off
  asm volatile("{.reg .b128 answer; ld.shared.b128 answer, [%3]; "
               "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%0, %1, %2, _}, "
               "answer;}"
               : "=r"(first.x), "=r"(first.y), "=r"(first.z)
               : "r"(smem_address(response)) : "memory");
  // clang-format on
  return first;
}

}  // namespace kb::ptx
