// Graphs: captured, or made of nodes. A launch gives their work to its stream, one piece after
// another, in an order that the dependencies allow and no program can rely on.
#include <algorithm>
#include <vector>

#include "order.hpp"
#include "state.hpp"

namespace kb::cuda {

namespace {

using Nodes = std::vector<const CUgraphNode_st*>;

bool among(const Nodes& nodes, const CUgraphNode_st* node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

size_t number_of(const CUgraph_st& graph, const CUgraphNode_st* node) {
  const auto found = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                  [node](const auto& each) { return each.get() == node; });
  return static_cast<size_t>(found - graph.nodes.begin());
}

// One chain of nodes as far as it goes, then the next: `reverse` begins with the last one. So a
// dependency that is missing shows in one of the two orders, if it is between two chains.
std::vector<size_t> ordered(const CUgraph_st& graph, bool reverse) {
  Nodes left, done;
  for (const auto& node : graph.nodes) left.push_back(node.get());
  if (reverse) std::reverse(left.begin(), left.end());
  std::vector<size_t> order;
  while (!left.empty()) {
    const auto ready = [&done](const CUgraphNode_st* node) {
      return std::all_of(node->after.begin(), node->after.end(),
                         [&done](const CUgraphNode_st* each) { return among(done, each); });
    };
    const auto continues = [&](const CUgraphNode_st* node) {
      return !done.empty() && among(node->after, done.back()) && ready(node);
    };
    auto next = std::find_if(left.begin(), left.end(), continues);
    if (next == left.end()) next = std::find_if(left.begin(), left.end(), ready);
    done.push_back(*next);
    order.push_back(number_of(graph, *next));
    left.erase(next);
  }
  return order;
}

void keep(CUgraphExec_st& executable, const CUgraph_st& graph) {
  for (const bool reverse : {false, true}) executable.orders[reverse] = ordered(graph, reverse);
  executable.steps.clear();
  for (const auto& node : graph.nodes) {
    CUgraphExec_st::Step& step = executable.steps.emplace_back();
    step = {node->work, node->what, node->asked, {}};
    for (const CUgraphNode_st* each : node->after) step.after.push_back(number_of(graph, each));
  }
}

}  // namespace

cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph, const CUgraphNode_st* const* after,
                     size_t count, Work work, What what) {
  Nodes nodes(after, after + count);
  Asked asked = asked_now(what.kernel);
  graph->nodes.push_back(std::make_unique<CUgraphNode_st>(
      CUgraphNode_st{std::move(work), std::move(nodes), std::move(what), std::move(asked)}));
  *node = graph->nodes.back().get();
  return cudaSuccess;
}

}  // namespace kb::cuda

using namespace kb::cuda;

extern "C" {

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
  *graph = new CUgraph_st;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphClone(cudaGraph_t* made, cudaGraph_t graph) {
  auto* const copy = new CUgraph_st;
  for (const auto& node : graph->nodes) {
    auto& own = copy->nodes.emplace_back(std::make_unique<CUgraphNode_st>(*node));
    for (const CUgraphNode_st*& each : own->after) {
      each = copy->nodes[number_of(*graph, each)].get();
    }
  }
  *made = copy;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  for (size_t at = 0; nodes != nullptr && at < *count && at < graph->nodes.size(); ++at) {
    nodes[at] = graph->nodes[at].get();
  }
  *count = graph->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* after, size_t count,
                                   const cudaKernelNodeParams* of) {
  KB_CALL;
  if (of->kernelParams == nullptr) return not_here("cudaGraphAddKernelNode with extra");
  const Form form{of->gridDim, of->blockDim, {1, 1, 1}, of->sharedMemBytes, false};
  Work work;
  const cudaError_t status = prepared(&work, kernel_of(of->func), form, of->kernelParams);
  if (status != cudaSuccess) return status;
  return add_node(node, graph, after, count, std::move(work),
                  {Kind::kLaunch, kernel_of(of->func)->name});
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph,
                                     const cudaGraphNode_t* after, size_t count, void* to,
                                     const void* from, size_t bytes, cudaMemcpyKind) {
  KB_CALL;
  return add_node(node, graph, after, count, [=] { return copy(to, from, bytes); });
}
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* after, size_t count,
                                   const cudaMemsetParams* of) {
  KB_CALL;
  return add_node(node, graph, after, count, [of = *of] {
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
cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                 const cudaGraphNode_t* after, size_t count,
                                 const cudaHostNodeParams* of) {
  KB_CALL;
  return add_node(node, graph, after, count, [of = *of] {
    of.fn(of.userData);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                  const cudaGraphNode_t* after, size_t count) {
  return add_node(node, graph, after, count, [] { return cudaSuccess; }, {Kind::kNothing});
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long) {
  *executable = new CUgraphExec_st;
  keep(**executable, *graph);
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
  keep(*executable, *graph);
  return cudaSuccess;
}
#endif
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  const std::vector<size_t>& order = executable->orders[executable->launches++ % 2];
  if (!captures(stream)) {
    enqueue_nodes(*executable, order, stream);
    return cudaSuccess;
  }
  for (const size_t at : order) {
    const cudaError_t status =
        submit(stream, executable->steps[at].work, executable->steps[at].what);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

}  // extern "C"
