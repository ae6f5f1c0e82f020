// Streams and events. What a stream captures becomes nodes of a graph (graphs.cpp).
#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "order.hpp"
#include "state.hpp"

namespace kb::cuda {

namespace {

std::map<CUstream_st*, std::unique_ptr<CUstream_st>> streams;

// A stream that a program has made; null for the default ones.
CUstream_st* own(cudaStream_t stream) {
  KB_ONE_CALL;
  const auto found = streams.find(stream);
  return found != streams.end() ? found->second.get() : nullptr;
}

cudaError_t stream_made(cudaStream_t* stream, unsigned flags, int priority) {
  KB_ONE_CALL;
  auto made = std::make_unique<CUstream_st>();
  made->flags = flags;
  made->priority = priority;
  *stream = made.get();
  open_stream(*stream, (flags & cudaStreamNonBlocking) == 0);
  streams[*stream] = std::move(made);
  return cudaSuccess;
}

cudaError_t capture_event(CUstream_st& stream, cudaEvent_t event, bool records) {
  cudaGraphNode_t node;
  const cudaError_t status = add_event_node(&node, stream.capture, stream.captured.data(),
                                            stream.captured.size(), event, records);
  stream.captured = {node};
  return status;
}

// Into a graph that the program has made, or a new one; `after`: nodes that come first.
cudaError_t begin_capture(cudaStream_t stream, cudaGraph_t graph,
                          std::vector<const CUgraphNode_st*> after) {
  CUstream_st* const made = own(stream);
  if (made == nullptr) return remembered(cudaErrorStreamCaptureUnsupported);
  if (made->capture != nullptr) return remembered(cudaErrorIllegalState);
  made->adds = graph != nullptr;
  made->capture = made->adds ? graph : new CUgraph_st;
  made->captured = std::move(after);
  return cudaSuccess;
}

// CUDA runtime API, cudaStreamWaitEvent: what a capture that has ended has recorded is no work.
bool is_of_past_capture(const CUevent_st& event) {
  return event.capture != nullptr &&
         std::none_of(streams.begin(), streams.end(),
                      [&event](const auto& each) { return each.second->capture == event.capture; });
}

// CUDA runtime API, cudaEventElapsedTime: a resolution of around 0.5 us.
constexpr double kResolvedMs = 5e-4;

}  // namespace

double now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

bool captures(cudaStream_t stream) {
  const CUstream_st* const made = own(stream);
  return made != nullptr && made->capture != nullptr;
}

cudaError_t submit(cudaStream_t stream, Work work, What what) {
  KB_ONE_CALL;
  if (captures(stream)) {
    CUstream_st& made = *own(stream);
    cudaGraphNode_t node;
    const cudaError_t status = add_node(&node, made.capture, made.captured.data(),
                                        made.captured.size(), std::move(work), std::move(what));
    made.captured = {node};
    return status;
  }
  const Task task = enqueue(stream, std::move(work), std::move(what));
  const bool waits = current_at_once && (stream == nullptr || stream == current_stream);
  return waits || done_before_return() ? finish(task) : cudaSuccess;
}

}  // namespace kb::cuda

using namespace kb::cuda;

extern "C" {

// ---- streams -----------------------------------------------------------------------------------

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return stream_made(stream, 0, 0);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return stream_made(stream, flags, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return stream_made(stream, flags, priority);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  KB_CALL;
  KB_ONE_CALL;
  close_stream(stream);
  return streams.erase(stream) != 0 ? cudaSuccess : remembered(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  let_others_go_on();
  KB_CALL;
  if (captures(stream)) return remembered(cudaErrorStreamCaptureUnsupported);
  return finish(end_of(stream));
}
// Who asks once is told that it is not ready; who asks again and again waits.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return first_asked(last_of(stream)) ? cudaErrorNotReady : cudaStreamSynchronize(stream);
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  const CUstream_st* const made = own(stream);
  *flags = made != nullptr ? made->flags : 0;
  return cudaSuccess;
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  const CUstream_st* const made = own(stream);
  *priority = made != nullptr ? made->priority : 0;
  return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* number) {
  *number = gpu_of(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned) {
  KB_CALL;
  return submit(stream,
                host_function([=] { callback(stream, cudaSuccess, data); },
                              captures(stream) ? nullptr : data),
                kHostFunction);
}
cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void*, size_t, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaStreamSetAttribute(cudaStream_t, cudaStreamAttrID, const cudaStreamAttrValue*) {
  return cudaSuccess;
}
cudaError_t cudaStreamGetAttribute(cudaStream_t, cudaStreamAttrID, cudaStreamAttrValue* value) {
  std::memset(value, 0, sizeof *value);
  return cudaSuccess;
}
cudaError_t cudaStreamCopyAttributes(cudaStream_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* number) {
  *number = reinterpret_cast<unsigned long long>(named(stream));
  return cudaSuccess;
}

// A stream that waits for what another captures captures, too.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  KB_CALL;
  CUstream_st* const made = own(stream);
  if (flags == cudaEventWaitExternal && captures(stream)) return capture_event(*made, event, false);
  if (is_of_past_capture(*event)) return remembered(cudaErrorCapturedEvent);
  if (made != nullptr && event->capture != nullptr) {
    made->capture = event->capture;
    made->captured.insert(made->captured.end(), event->captured.begin(), event->captured.end());
  } else {
    // CUDA runtime API, cudaErrorStreamCaptureIsolation: a graph depends on nothing outside of it.
    if (captures(stream) && event->recorded) return remembered(cudaErrorStreamCaptureIsolation);
    wait_before_next(stream, event->task);
  }
  return cudaSuccess;
}

// ---- events ------------------------------------------------------------------------------------

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st;
  (*event)->timed = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
// CUDA programming guide, "Stream and Event Behavior": recorded in streams of its own device only,
// and compared with events of that; whoever likes waits for it.
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  let_others_go_on();
  KB_CALL;
  if (event->gpu != gpu_of(stream)) {
    return remembered(
        cudaErrorInvalidResourceHandle,
        "an event" + words_of_gpu(event->gpu) + " in a stream" + words_of_gpu(gpu_of(stream)));
  }
  const CUstream_st* const made = own(stream);
  event->capture = made != nullptr ? made->capture : nullptr;
  if (event->capture != nullptr) event->captured = made->captured;
  event->recorded = true;
  if (event->capture != nullptr) return cudaSuccess;
  What record{Kind::kNothing};
  record.passes = !event->timed;
  event->task = enqueue(
      stream,
      [at_ms = event->at_ms] {
        *at_ms = now_ms();
        return cudaSuccess;
      },
      std::move(record));
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  if (flags == cudaEventRecordExternal && captures(stream)) {
    return capture_event(*own(stream), event, true);
  }
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  let_others_go_on();
  KB_CALL;
  if (event->capture != nullptr) return remembered(cudaErrorCapturedEvent);
  return finish(event->task);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->capture != nullptr) return remembered(cudaErrorCapturedEvent);
  return first_asked(event->task) ? cudaErrorNotReady : finish(event->task);
}
// The emulation's time, and at least what CUDA resolves: programs divide by it.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  KB_CALL;
  for (const cudaEvent_t each : {start, end}) {
    if (each == nullptr || !each->recorded || !each->timed) {
      return remembered(cudaErrorInvalidResourceHandle);
    }
    if (is_pending(each->task)) return remembered(cudaErrorNotReady);
  }
  if (start->gpu != end->gpu) return remembered(cudaErrorInvalidResourceHandle);
  const double passed_ms = *end->at_ms - *start->at_ms;
  *milliseconds = static_cast<float>(passed_ms < 0 ? passed_ms : std::max(passed_ms, kResolvedMs));
  return cudaSuccess;
}

// ---- capture -----------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return begin_capture(stream, nullptr, {});
}
#if CUDART_VERSION >= 13000
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t* after, const cudaGraphEdgeData*,
                                          size_t count, cudaStreamCaptureMode) {
  return begin_capture(stream, graph, {after, after + count});
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** after, const cudaGraphEdgeData** edges,
                                     size_t* count) {
  *status = captures(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  if (!captures(stream)) return cudaSuccess;
  CUstream_st& made = *own(stream);
  if (id != nullptr) *id = reinterpret_cast<uintptr_t>(made.capture);
  if (graph != nullptr) *graph = made.capture;
  if (after != nullptr) *after = const_cast<cudaGraphNode_t*>(made.captured.data());
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = made.captured.size();
  return cudaSuccess;
}
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* after,
                                                const cudaGraphEdgeData*, size_t count,
                                                unsigned flags) {
  if (!captures(stream)) return remembered(cudaErrorIllegalState);
  std::vector<const CUgraphNode_st*>& captured = own(stream)->captured;
  if (flags == cudaStreamSetCaptureDependencies) captured.clear();
  captured.insert(captured.end(), after, after + count);
  return cudaSuccess;
}
#endif
// CUDA programming guide, "Cross-stream Dependencies and Events": streams that are forked to have
// to be joined.
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  KB_CALL;
  cudaGraph_t unnamed;  // as the program knows it, of a capture into a graph that is there
  if (graph == nullptr) graph = &unnamed;
  CUstream_st* const made = own(stream);
  if (made == nullptr || made->capture == nullptr) return remembered(cudaErrorIllegalState);
  *graph = made->capture;
  std::set<const CUgraphNode_st*> joined;
  std::vector<const CUgraphNode_st*> open = made->captured;
  while (!open.empty()) {
    const CUgraphNode_st* const node = open.back();
    open.pop_back();
    if (joined.insert(node).second) open.insert(open.end(), node->after.begin(), node->after.end());
  }
  bool all = true;
  for (auto& [handle, each] : streams) {
    if (each->capture != *graph) continue;
    for (const CUgraphNode_st* node : each->captured) all = all && joined.count(node) != 0;
    each->capture = nullptr;
    each->captured.clear();
  }
  if (all) return cudaSuccess;
  if (!made->adds) delete std::exchange(*graph, nullptr);
  return remembered(cudaErrorStreamCaptureUnjoined);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = captures(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}

}  // extern "C"
