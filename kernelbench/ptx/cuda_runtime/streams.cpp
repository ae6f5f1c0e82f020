// Streams, events and graphs. What a stream captures is given to the stream on which the graph is
// launched, in the same order.
#include <vector>

#include "state.hpp"

namespace kb::cuda {

namespace {

std::map<CUstream_st*, std::unique_ptr<CUstream_st>> streams;

// A stream that a program has made; null for the default ones.
CUstream_st* own(cudaStream_t stream) {
  const auto found = streams.find(stream);
  return found != streams.end() ? found->second.get() : nullptr;
}

cudaError_t stream_made(cudaStream_t* stream, unsigned flags, int priority) {
  auto made = std::make_unique<CUstream_st>();
  made->flags = flags;
  made->priority = priority;
  *stream = made.get();
  open_stream(*stream, (flags & cudaStreamNonBlocking) == 0);
  streams[*stream] = std::move(made);
  return cudaSuccess;
}

cudaError_t node_added(cudaGraphNode_t* node, cudaGraph_t graph, Work work) {
  graph->nodes.push_back(std::make_unique<CUgraphNode_st>(std::move(work)));
  *node = graph->nodes.back().get();
  return cudaSuccess;
}

void keep_works(CUgraphExec_st* executable, const CUgraph_st& graph) {
  executable->works.clear();
  for (const auto& node : graph.nodes) executable->works.push_back(node->work);
}

}  // namespace

bool captures(cudaStream_t stream) {
  const CUstream_st* const made = own(stream);
  return made != nullptr && made->capture != nullptr;
}

cudaError_t submit(cudaStream_t stream, Work work, std::string what) {
  if (captures(stream)) {
    cudaGraphNode_t node;
    return node_added(&node, own(stream)->capture, std::move(work));
  }
  const Task task = enqueue(stream, std::move(work), std::move(what));
  return current_at_once && stream == current_stream ? finish(task) : cudaSuccess;
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
  close_stream(stream);
  return streams.erase(stream) != 0 ? cudaSuccess : remembered(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (captures(stream)) return remembered(cudaErrorStreamCaptureUnsupported);
  return finish(mark(stream));
}
// Who asks again and again waits.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return cudaStreamSynchronize(stream);
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
cudaError_t cudaStreamGetDevice(cudaStream_t, int* number) {
  *number = 0;
  return cudaSuccess;
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data,
                                  unsigned) {
  return submit(stream, [=] {
    callback(stream, cudaSuccess, data);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void*, size_t, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaStreamSetAttribute(cudaStream_t, cudaStreamAttrID, const cudaStreamAttrValue*) {
  return cudaSuccess;
}

// A stream that waits for what another captures captures, too.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  CUstream_st* const made = own(stream);
  if (made != nullptr && event->capture != nullptr) {
    made->capture = event->capture;
  } else {
    wait_before_next(stream, event->task);
  }
  return cudaSuccess;
}

// ---- events ------------------------------------------------------------------------------------

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const CUstream_st* const made = own(stream);
  event->capture = made != nullptr ? made->capture : nullptr;
  event->recorded = true;
  if (event->capture == nullptr) event->task = mark(stream);
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return finish(event->task);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return finish(event->task);
}
// No time of a GPU: a number that no rate can be made of by division by zero.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (!start->recorded || !end->recorded) return remembered(cudaErrorInvalidResourceHandle);
  *milliseconds = __builtin_nanf("");
  return cudaSuccess;
}

// ---- graphs ------------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  CUstream_st* const made = own(stream);
  if (made == nullptr) return remembered(cudaErrorStreamCaptureUnsupported);
  if (made->capture != nullptr) return remembered(cudaErrorIllegalState);
  made->capture = new CUgraph_st;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  CUstream_st* const made = own(stream);
  if (made == nullptr || made->capture == nullptr) return remembered(cudaErrorIllegalState);
  *graph = made->capture;
  for (auto& [handle, each] : streams) {
    if (each->capture == *graph) each->capture = nullptr;
  }
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = captures(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
  *graph = new CUgraph_st;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  for (size_t at = 0; nodes != nullptr && at < *count && at < graph->nodes.size(); ++at) {
    nodes[at] = graph->nodes[at].get();
  }
  *count = graph->nodes.size();
  return cudaSuccess;
}

// A node comes after those that it depends on, so that the order in which they are added will do.
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*,
                                   size_t, const cudaKernelNodeParams* of) {
  if (of->kernelParams == nullptr) return not_here("cudaGraphAddKernelNode with extra");
  const Form form{of->gridDim, of->blockDim, {1, 1, 1}, of->sharedMemBytes, false};
  Work work;
  const cudaError_t status = prepared(&work, kernel_of(of->func), form, of->kernelParams);
  return status == cudaSuccess ? node_added(node, graph, std::move(work)) : status;
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph,
                                     const cudaGraphNode_t*, size_t, void* to, const void* from,
                                     size_t bytes, cudaMemcpyKind) {
  return node_added(node, graph, [=] { return copy(to, from, bytes); });
}
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*,
                                   size_t, const cudaMemsetParams* of) {
  return node_added(node, graph, [of = *of] {
    for (size_t row = 0; row < of.height; ++row) {
      for (size_t at = 0; at < of.width; ++at) {
        char* const to = static_cast<char*>(of.dst) + row * of.pitch + at * of.elementSize;
        const cudaError_t status = copy(to, &of.value, of.elementSize);
        if (status != cudaSuccess) return status;
      }
    }
    return cudaSuccess;
  });
}
cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*,
                                 size_t, const cudaHostNodeParams* of) {
  return node_added(node, graph, [of = *of] {
    of.fn(of.userData);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*,
                                  size_t) {
  return node_added(node, graph, [] { return cudaSuccess; });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long) {
  *executable = new CUgraphExec_st;
  keep_works(*executable, *graph);
  return cudaSuccess;
}
#if CUDART_VERSION >= 12000
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(executable, graph, flags);
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* result) {
  *result = {};
  result->result = cudaGraphExecUpdateSuccess;
  keep_works(executable, *graph);
  return cudaSuccess;
}
#endif
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  for (const Work& work : executable->works) {
    const cudaError_t status = submit(stream, work);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

}  // extern "C"
