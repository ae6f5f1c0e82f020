#pragma once

#include "runtime/api_tensor.hpp"

namespace kb::ptx {

template <typename T>
KB_DEVICE void clusterlaunchcontrol_try_cancel(ClcResponse* response, Mbarrier* bar) {
  emu::try_cancel(response, bar, false);
}

template <typename T>
KB_DEVICE void clusterlaunchcontrol_try_cancel_multicast_cluster_all(ClcResponse* response,
                                                                     Mbarrier* bar) {
  emu::try_cancel(response, bar, true);
}

template <typename T>
KB_DEVICE bool clusterlaunchcontrol_query_cancel_is_canceled(const ClcResponse* response) {
  return emu::query_is_canceled(response);
}

template <typename T>
KB_DEVICE CtaIndex clusterlaunchcontrol_query_cancel_get_first_ctaid(const ClcResponse* response) {
  return emu::query_first_ctaid(response);
}

}  // namespace kb::ptx
