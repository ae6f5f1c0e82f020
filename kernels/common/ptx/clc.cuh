// Cluster Launch Control: PTX ISA 9.1, 9.7.13 (clusterlaunchcontrol). A running cluster takes over
// the work of one that has not started.
#pragma once

#include "address.cuh"

namespace kb::ptx {

// PTX: clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128
//      [response], [bar];
// sm_100a · one thread. Asks for the next cluster of the grid. The answer arrives by the async
// proxy and takes 16 bytes off the phase of bar; who acquires it may read the response. Between
// reading it and reusing its bytes: fence_proxy_async. Not after an observed failure.
template <typename T = Target>
KB_DEVICE void clusterlaunchcontrol_try_cancel(ClcResponse* response, Mbarrier* bar);

// PTX: clusterlaunchcontrol.try_cancel.async.shared::cta
//      .mbarrier::complete_tx::bytes.multicast::cluster::all.b128
//      [response], [bar];
// sm_100a · one thread of one CTA of the cluster. The answer and the 16 bytes go to the same
// offsets in every CTA of the cluster, none of which may have exited.
template <typename T = Target>
KB_DEVICE void clusterlaunchcontrol_try_cancel_multicast_cluster_all(ClcResponse* response,
                                                                     Mbarrier* bar);

// PTX: ld.shared.b128 answer, [response];
//      clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 canceled, answer;
// sm_100a · any thread that has acquired the response. True: the cluster's work is ours. False:
// nothing is left, or the request was declined. A generic read of the response.
template <typename T = Target>
KB_DEVICE bool clusterlaunchcontrol_query_cancel_is_canceled(const ClcResponse* response);

// PTX: ld.shared.b128 answer, [response];
//      clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {x, y, z, _}, answer;
// sm_100a · any thread, after is_canceled was true; undefined otherwise. Index of the canceled
// cluster's first CTA: a CTA adds its own position in the cluster.
template <typename T = Target>
KB_DEVICE CtaIndex clusterlaunchcontrol_query_cancel_get_first_ctaid(const ClcResponse* response);

}  // namespace kb::ptx

#include "clc.inl"
