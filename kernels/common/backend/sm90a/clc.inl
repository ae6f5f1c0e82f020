// sm_90a has no Cluster Launch Control.
#pragma once

namespace kb::ptx {

template <typename T>
KB_DEVICE void clusterlaunchcontrol_try_cancel(ClcResponse* response, Mbarrier* bar) {
  static_assert(kAbsent<T>, "clusterlaunchcontrol_try_cancel needs sm_100a");
}

template <typename T>
KB_DEVICE void clusterlaunchcontrol_try_cancel_multicast_cluster_all(ClcResponse* response,
                                                                     Mbarrier* bar) {
  static_assert(kAbsent<T>, "clusterlaunchcontrol_try_cancel_multicast_cluster_all needs sm_100a");
}

template <typename T>
KB_DEVICE bool clusterlaunchcontrol_query_cancel_is_canceled(const ClcResponse* response) {
  static_assert(kAbsent<T>, "clusterlaunchcontrol_query_cancel_is_canceled needs sm_100a");
  return {};
}

template <typename T>
KB_DEVICE CtaIndex clusterlaunchcontrol_query_cancel_get_first_ctaid(const ClcResponse* response) {
  static_assert(kAbsent<T>, "clusterlaunchcontrol_query_cancel_get_first_ctaid needs sm_100a");
  return {};
}

}  // namespace kb::ptx
