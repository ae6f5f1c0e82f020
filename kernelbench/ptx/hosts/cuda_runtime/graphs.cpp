// Graphs: captured, or made of nodes. A launch gives their work to its stream, one piece after
// another, in an order that the dependencies allow and no program can rely on.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "order.hpp"
#include "state.hpp"

namespace kb::cuda {

namespace {

using Nodes = std::vector<const CUgraphNode_st*>;

// cudaGraphNodeTypeConditional and cudaGraphConditionalNodeType, which old headers lack.
constexpr auto kConditional = static_cast<cudaGraphNodeType>(13);
constexpr int kWhile = 1, kSwitch = 2;
// Rounds of a while node, and those after which it may not take longer than a schedule.
constexpr int kMostRounds = 4'000, kManyRounds = 100;

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

// What graphs allocate, and what of it nothing has freed.
std::set<void*> of_graphs, live_of_graphs;

// CUDA programming guide, "Graph Memory Nodes": a graph whose allocations are not freed cannot be
// launched again, but with cudaGraphInstantiateFlagAutoFreeOnLaunch.
bool takes_memory(const CUgraphExec_st& executable) {
  std::set<void*> left;
  for (const CUgraphExec_st::Step& step : executable.steps) {
    if (step.what.kind == Kind::kAllocate) left.insert(step.what.memory);
  }
  const auto live = [](void* each) { return live_of_graphs.count(each) != 0; };
  if (!executable.frees && std::any_of(left.begin(), left.end(), live)) return false;
  live_of_graphs.insert(left.begin(), left.end());
  for (const CUgraphExec_st::Step& step : executable.steps) {
    if (step.what.kind == Kind::kFree) live_of_graphs.erase(step.what.memory);
  }
  return true;
}

void keep(CUgraphExec_st& executable, const CUgraph_st& graph);

// CUDA runtime API, cudaConditionalNodeParams: a body for each value of a switch node; of an if
// node one for all but 0, and another one for 0; of a while node one, as long as it is not 0.
void make_conditional(CUgraphExec_st::Step& step, const Conditional& node) {
  auto bodies = std::make_shared<std::vector<CUgraphExec_st>>(node.bodies.size());
  step.what.reaches = {{node.value, sizeof *node.value, false}};
  for (size_t i = 0; i < bodies->size(); ++i) {
    keep((*bodies)[i], *node.bodies[i]);
    for (const CUgraphExec_st::Step& each : (*bodies)[i].steps) {
      const auto& inner = each.what.reaches;
      step.what.reaches.insert(step.what.reaches.end(), inner.begin(), inner.end());
    }
  }
  const auto line = std::make_shared<uint32_t>(0);
  step.work = [bodies, line, value = node.value, type = node.type, asked = step.asked] {
    std::vector<Task> after;
    const auto begun = std::chrono::steady_clock::now();
    for (int round = 0;; ++round) {
      const uint32_t found = condition_within(value, asked, *line, after);
      size_t chosen = found != 0 ? 0 : 1;
      if (type == kSwitch) chosen = found;
      if (chosen >= bodies->size()) return cudaSuccess;
      const cudaError_t status = do_nodes_within((*bodies)[chosen], after);
      if (status != cudaSuccess || type != kWhile) return status;
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
      const bool slow = device.limit_s > 0 && taken.count() > device.limit_s;
      if (round != kMostRounds && !(slow && round >= kManyRounds)) continue;
      std::string text = "a while node: its condition is not 0 after ";
      text += slow ? std::to_string(round) + " rounds and the time of a schedule (--timeout)"
                   : "4,000 rounds";
      host_found(true, asked.pc, text);
      return cudaErrorLaunchFailure;
    }
  };
}

void keep(CUgraphExec_st& executable, const CUgraph_st& graph) {
  executable.conditions = graph.conditions;
  for (const bool reverse : {false, true}) executable.orders[reverse] = ordered(graph, reverse);
  const std::vector<CUgraphExec_st::Step> before = std::move(executable.steps);
  executable.steps.clear();
  for (const auto& node : graph.nodes) {
    const size_t at = executable.steps.size();
    CUgraphExec_st::Step& step = executable.steps.emplace_back();
    step.work = node->work;
    step.what = node->what;
    step.asked = node->asked;
    // An update keeps the names of the steps: the nodes of the first graph.
    step.node = at < before.size() ? before[at].node : node.get();
    for (const CUgraphNode_st* each : node->after) step.after.push_back(number_of(graph, each));
    if (node->ahead != nullptr) step.ahead = number_of(graph, node->ahead);
    if (node->conditional) make_conditional(step, *node->conditional);
  }
}

// CUDA programming guide, "Whole Graph Update": nodes match by the order in which they were made,
// and have the same dependencies.
bool matches(const CUgraphExec_st& executable, const CUgraph_st& graph) {
  if (executable.steps.size() != graph.nodes.size()) return false;
  for (size_t at = 0; at < graph.nodes.size(); ++at) {
    std::vector<size_t> after;
    for (const CUgraphNode_st* each : graph.nodes[at]->after) {
      after.push_back(number_of(graph, each));
    }
    const CUgraphExec_st::Step& step = executable.steps[at];
    if (!std::is_permutation(after.begin(), after.end(), step.after.begin(), step.after.end()) ||
        graph.nodes[at]->what.kind != step.what.kind)
      return false;
  }
  return true;
}

// The step of a node; null if the executable graph has none.
CUgraphExec_st::Step* step_of(CUgraphExec_st& executable, const CUgraphNode_st* node) {
  const auto found = std::find_if(executable.steps.begin(), executable.steps.end(),
                                  [node](const auto& each) { return each.node == node; });
  return found != executable.steps.end() ? &*found : nullptr;
}

// What a node does.
struct Doing {
  Work work = [] { return cudaSuccess; };
  What what = {Kind::kNothing};
};
cudaError_t kernel_work(Doing* doing, const cudaKernelNodeParams& of) {
  if (of.kernelParams == nullptr) return not_here("a kernel node with extra");
  const Form form{of.gridDim, of.blockDim, {1, 1, 1}, of.sharedMemBytes, false};
  return prepared(&doing->work, &doing->what, kernel_of(of.func), form, of.kernelParams);
}
// Whether the memory was there when the node was made, and is no longer.
bool has_gone(const Range& then, const void* pc, const char* does) {
  if (then.number == 0 || range_of(then.begin).number == then.number) return false;
  host_found(false, pc,
             std::string("a graph's copy ") + does + " allocation " + std::to_string(then.number) +
                 ", which the program has freed");
  return true;
}
Doing copy_work(void* to, const void* from, size_t bytes) {
  const Range source = range_of(from), target = range_of(to);
  const void* const pc = call_site();
  return {[=] {
            if (has_gone(source, pc, "reads") || has_gone(target, pc, "writes")) {
              return cudaErrorInvalidValue;
            }
            return copy(to, from, bytes);
          },
          copy_of(from, bytes, to, bytes)};
}
Doing copy_work(const cudaMemcpy3DParms& given) {
  return {[of = given] { return copy_box(of); }, box_of(given)};
}
Doing fill_work(const cudaMemsetParams& given) {
  const size_t last_row = given.height == 0 ? 0 : (given.height - 1) * given.pitch;
  const Reach reach{given.dst, last_row + given.width * given.elementSize, true};
  return {[of = given] {
            for (size_t row = 0; row < of.height; ++row) {
              for (size_t at = 0; at < of.width; ++at) {
                char* const to = static_cast<char*>(of.dst) + row * of.pitch + at * of.elementSize;
                const cudaError_t status = copy(to, &of.value, of.elementSize);
                if (status != cudaSuccess) return status;
              }
            }
            return cudaSuccess;
          },
          {Kind::kTransfer, {}, false, {reach}}};
}
Doing host_work(const cudaHostNodeParams& given) {
  return {host_function([of = given] { of.fn(of.userData); }, nullptr), kHostFunction};
}

// What an executable graph's node, or a graph's, does from its next launch on.
template <typename Node>
cudaError_t set_work(Node* node, Doing doing) {
  if (node == nullptr) return remembered(cudaErrorInvalidValue);
  node->work = std::move(doing.work);
  node->what = std::move(doing.what);
  return cudaSuccess;
}

// What a node comes after, of nodes that the program knows: those of a child graph are one.
[[maybe_unused]] void known_before(const CUgraphNode_st& node,
                                   std::set<const CUgraphNode_st*>& found) {
  for (const CUgraphNode_st* before : node.after) {
    if (before->inner) {
      known_before(*before, found);
    } else {
      found.insert(before);
    }
  }
}

// Those that the program knows, or of them those that come after none; how many, without room.
cudaError_t nodes_of(cudaGraph_t graph, bool roots, cudaGraphNode_t* nodes, size_t* count) {
  size_t known = 0;
  for (const auto& node : graph->nodes) {
    if (node->inner || (roots && !node->after.empty())) continue;
    if (nodes != nullptr && known < *count) nodes[known] = node.get();
    ++known;
  }
  *count = nodes != nullptr ? std::min(known, *count) : known;
  return cudaSuccess;
}

cudaGraphNodeType type_of(const What& what) {
  if (what.records != nullptr) return cudaGraphNodeTypeEventRecord;
  if (what.waits != nullptr) return cudaGraphNodeTypeWaitEvent;
  if (what.calls_host) return cudaGraphNodeTypeHost;
  switch (what.kind) {
    case Kind::kLaunch:
      return cudaGraphNodeTypeKernel;
    case Kind::kAllocate:
      return cudaGraphNodeTypeMemAlloc;
    case Kind::kFree:
      return cudaGraphNodeTypeMemFree;
    case Kind::kNothing:
      return cudaGraphNodeTypeEmpty;
    default:
      return what.reaches.size() == 1 ? cudaGraphNodeTypeMemset : cudaGraphNodeTypeMemcpy;
  }
}

cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                     size_t count, Doing doing) {
  return kb::cuda::add_node(node, graph, after, count, std::move(doing.work),
                            std::move(doing.what));
}

#if CUDART_VERSION >= 13000
// CUDA runtime API, cudaGraphDependencyType: a programmatic edge is like the attribute of a launch
// that may begin early; of both its ports.
void edge(CUgraphNode_st& to, const CUgraphNode_st* from, const cudaGraphEdgeData& of) {
  if (of.type != cudaGraphDependencyTypeProgrammatic || to.what.call == nullptr) return;
  to.ahead = from;
  to.what.programmatic = to.what.call->form.programmatic = true;
}
#endif

}  // namespace

void allocated_by_graph(void* memory) {
  KB_ONE_CALL;
  of_graphs.insert(memory);
}

bool freed_for_graphs(void* memory) {
  KB_ONE_CALL;
  live_of_graphs.erase(memory);
  return of_graphs.count(memory) != 0;
}

cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph, const CUgraphNode_st* const* after,
                     size_t count, Work work, What what) {
  Nodes nodes(after, after + count);
  Asked asked = asked_now(what.kernel);
  graph->nodes.push_back(std::make_unique<CUgraphNode_st>(
      CUgraphNode_st{std::move(work), std::move(nodes), std::move(what), std::move(asked)}));
  *node = graph->nodes.back().get();
  return cudaSuccess;
}

// CUDA runtime API, cudaEventRecordWithFlags and cudaStreamWaitEvent: an external event is that of
// whoever launches the graph.
cudaError_t add_event_node(cudaGraphNode_t* node, cudaGraph_t graph,
                           const CUgraphNode_st* const* after, size_t count, cudaEvent_t event,
                           bool records) {
  What what{Kind::kNothing};
  (records ? what.records : what.waits) = event;
  const auto work = [at_ms = event->at_ms, records] {
    if (records) *at_ms = now_ms();
    return cudaSuccess;
  };
  return add_node(node, graph, after, count, work, std::move(what));
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
  const auto decides = [](const auto& node) { return node->conditional != nullptr; };
  if (std::any_of(graph->nodes.begin(), graph->nodes.end(), decides)) {
    return remembered(cudaErrorNotSupported, "the graph has conditional nodes");
  }
  auto* const copy = new CUgraph_st;
  for (const auto& node : graph->nodes) {
    auto& own = copy->nodes.emplace_back(std::make_unique<CUgraphNode_st>(*node));
    for (const CUgraphNode_st*& each : own->after) {
      each = copy->nodes[number_of(*graph, each)].get();
    }
    if (own->ahead != nullptr) own->ahead = copy->nodes[number_of(*graph, own->ahead)].get();
  }
  *made = copy;
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return nodes_of(graph, false, nodes, count);
}
cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return nodes_of(graph, true, nodes, count);
}

#if CUDART_VERSION >= 13000
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                              cudaGraphEdgeData* data, size_t* count) {
  size_t known = 0;
  for (const auto& node : graph->nodes) {
    if (node->inner) continue;
    std::set<const CUgraphNode_st*> all;
    known_before(*node, all);
    for (const CUgraphNode_st* before : all) {
      if (from != nullptr && known < *count) {
        from[known] = const_cast<CUgraphNode_st*>(before);
        to[known] = node.get();
        if (data != nullptr) data[known] = {};
      }
      ++known;
    }
  }
  *count = from != nullptr ? std::min(known, *count) : known;
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes,
                                         cudaGraphEdgeData* data, size_t* count) {
  std::set<const CUgraphNode_st*> all;
  known_before(*node, all);
  const size_t room = std::exchange(*count, all.size());
  if (nodes == nullptr) return cudaSuccess;
  *count = std::min(*count, room);
  std::fill_n(nodes, room, nullptr);
  size_t at = 0;
  for (const CUgraphNode_st* each : all) {
    if (at == *count) break;
    if (data != nullptr) data[at] = {};
    nodes[at++] = const_cast<CUgraphNode_st*>(each);
  }
  return cudaSuccess;
}
#endif
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* after, size_t count,
                                   const cudaKernelNodeParams* of) {
  KB_CALL;
  Doing doing;
  const cudaError_t status = kernel_work(&doing, *of);
  return status == cudaSuccess ? add_node(node, graph, after, count, std::move(doing)) : status;
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph,
                                     const cudaGraphNode_t* after, size_t count, void* to,
                                     const void* from, size_t bytes, cudaMemcpyKind) {
  KB_CALL;
  return add_node(node, graph, after, count, copy_work(to, from, bytes));
}
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* after, size_t count,
                                   const cudaMemsetParams* of) {
  KB_CALL;
  return add_node(node, graph, after, count, fill_work(*of));
}
cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                 const cudaGraphNode_t* after, size_t count,
                                 const cudaHostNodeParams* of) {
  KB_CALL;
  return add_node(node, graph, after, count, host_work(*of));
}
cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                   const cudaGraphNode_t* after, size_t count,
                                   const cudaMemcpy3DParms* of) {
  KB_CALL;
  return add_node(node, graph, after, count, copy_work(*of));
}
cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                        const cudaGraphNode_t* after, size_t count,
                                        cudaEvent_t event) {
  return add_event_node(node, graph, after, count, event, true);
}
cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                      const cudaGraphNode_t* after, size_t count,
                                      cudaEvent_t event) {
  return add_event_node(node, graph, after, count, event, false);
}
// Its nodes are those of the graph, between what it comes after and a node that does nothing.
cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                       const cudaGraphNode_t* after, size_t count,
                                       cudaGraph_t child) {
  KB_CALL;
  std::map<const CUgraphNode_st*, cudaGraphNode_t> copies;
  std::vector<cudaGraphNode_t> ends(after, after + count);
  for (const auto& each : child->nodes) {
    auto& own = graph->nodes.emplace_back(std::make_unique<CUgraphNode_st>(*each));
    own->inner = true;
    copies[each.get()] = own.get();
    ends.push_back(own.get());
  }
  for (const auto& [of, own] : copies) {
    for (const CUgraphNode_st*& each : own->after) each = copies[each];
    if (own->ahead != nullptr) own->ahead = copies[own->ahead];
    if (own->after.empty()) own->after.assign(after, after + count);
  }
  const cudaError_t status =
      add_node(node, graph, ends.data(), ends.size(), [] { return cudaSuccess; }, {Kind::kNothing});
  if (status == cudaSuccess) (*node)->whole = true;
  return status;
}
// The memory is there from now on; the graph's order is that of its use.
cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                     const cudaGraphNode_t* after, size_t count,
                                     cudaMemAllocNodeParams* of) {
  KB_CALL;
  const cudaError_t status = allocate(&of->dptr, of->bytesize, cudaMemoryTypeDevice);
  if (status != cudaSuccess) return status;
  allocated_by_graph(of->dptr);
  return add_node(
      node, graph, after, count,
      [at = of->dptr, bytes = of->bytesize] {
        touched(at, bytes, true);
        return cudaSuccess;
      },
      of_memory(Kind::kAllocate, of->dptr));
}
// What comes behind in other streams, and nothing orders, is a race with it. The memory stays for
// the next launch.
cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                    const cudaGraphNode_t* after, size_t count, void* address) {
  KB_CALL;
  return add_node(
      node, graph, after, count,
      [address] {
        const Range range = range_of(address);
        if (range.begin != address) return cudaErrorInvalidValue;
        touched(address, range.bytes, true);
        return cudaSuccess;
      },
      of_memory(Kind::kFree, address));
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  *type = node->whole ? cudaGraphNodeTypeGraph : type_of(node->what);
  if (node->conditional) *type = kConditional;
  return cudaSuccess;
}
#if CUDART_VERSION >= 13000
cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                     const cudaGraphNode_t* to, const cudaGraphEdgeData* edges,
                                     size_t count) {
  for (size_t at = 0; edges != nullptr && at < count; ++at) edge(*to[at], from[at], edges[at]);
#else
cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from,
                                     const cudaGraphNode_t* to, size_t count) {
#endif
  for (size_t at = 0; at < count; ++at) {
    // Those of a child graph have its node behind them.
    for (const auto& each : graph->nodes) {
      if (each->inner && among(to[at]->after, each.get())) each->after.push_back(from[at]);
    }
    to[at]->after.push_back(from[at]);
  }
  return cudaSuccess;
}
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph,
                                  const cudaGraphNode_t* after, size_t count) {
  return add_node(node, graph, after, count, [] { return cudaSuccess; }, {Kind::kNothing});
}

#if CUDART_VERSION >= 13000
cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* handle, cudaGraph_t graph,
                                             unsigned first, unsigned flags) {
  KB_CALL;
  void* value;
  const cudaError_t status = allocate(&value, sizeof(uint32_t), cudaMemoryTypeDevice);
  if (status != cudaSuccess) return status;
  graph->conditions.push_back(
      {static_cast<uint32_t*>(value), first, (flags & cudaGraphCondAssignDefault) != 0});
  *handle = reinterpret_cast<cudaGraphConditionalHandle>(value);
  return cudaSuccess;
}
cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                             const cudaGraphEdgeData* edges, size_t count,
                             cudaGraphNodeParams* of) {
  KB_CALL;
  const auto add = [&](Doing doing) {
    return add_node(node, graph, after, count, std::move(doing));
  };
  switch (of->type) {
    case cudaGraphNodeTypeKernel: {
      const auto& kernel = of->kernel;
      Doing doing;
      const cudaError_t status =
          kernel_work(&doing, {kernel.func, kernel.gridDim, kernel.blockDim, kernel.sharedMemBytes,
                               kernel.kernelParams, kernel.extra});
      if (status != cudaSuccess) return status;
      const cudaError_t added = add(std::move(doing));
      for (size_t i = 0; edges != nullptr && i < count; ++i) edge(**node, after[i], edges[i]);
      return added;
    }
    case cudaGraphNodeTypeMemcpy:
      return add(copy_work(of->memcpy.copyParams));
    case cudaGraphNodeTypeMemset: {
      const auto& fill = of->memset;
      return add(
          fill_work({fill.dst, fill.pitch, fill.value, fill.elementSize, fill.width, fill.height}));
    }
    case cudaGraphNodeTypeHost:
      return add(host_work({of->host.fn, of->host.userData}));
    case cudaGraphNodeTypeGraph:
      return cudaGraphAddChildGraphNode(node, graph, after, count, of->graph.graph);
    case cudaGraphNodeTypeEmpty:
      return add({});
    case cudaGraphNodeTypeWaitEvent:
      return add_event_node(node, graph, after, count, of->eventWait.event, false);
    case cudaGraphNodeTypeEventRecord:
      return add_event_node(node, graph, after, count, of->eventRecord.event, true);
    case cudaGraphNodeTypeMemAlloc: {
      cudaMemAllocNodeParams memory{};
      memory.bytesize = of->alloc.bytesize;
      const cudaError_t status = cudaGraphAddMemAllocNode(node, graph, after, count, &memory);
      of->alloc.dptr = memory.dptr;
      return status;
    }
    case cudaGraphNodeTypeMemFree:
      return cudaGraphAddMemFreeNode(node, graph, after, count, of->free.dptr);
    case cudaGraphNodeTypeConditional: {
      const auto made = std::make_shared<Conditional>();
      made->value = reinterpret_cast<uint32_t*>(of->conditional.handle);
      made->type = of->conditional.type;
      for (unsigned i = 0; i < of->conditional.size; ++i) {
        made->bodies.push_back(std::make_unique<CUgraph_st>());
        made->handles.push_back(made->bodies.back().get());
      }
      of->conditional.phGraph_out = made->handles.data();
      Doing doing;
      doing.what.kind = Kind::kTransfer;
      const cudaError_t status = add(std::move(doing));
      (*node)->conditional = made;
      return status;
    }
    default:
      return not_here("cudaGraphAddNode of this type");
  }
}
#endif

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long flags) {
  *executable = new CUgraphExec_st;
  (*executable)->frees = (flags & cudaGraphInstantiateFlagAutoFreeOnLaunch) != 0;
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
  KB_CALL;
  *result = {};
  if (!matches(*executable, *graph)) {
    result->result = cudaGraphExecUpdateErrorTopologyChanged;
    return remembered(cudaErrorGraphExecUpdateFailure);
  }
  result->result = cudaGraphExecUpdateSuccess;
  keep(*executable, *graph);
  return cudaSuccess;
}
#endif
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  KB_CALL;
  if (!captures(stream) && !takes_memory(*executable)) {
    return remembered(cudaErrorInvalidValue,
                      "memory that its last launch has allocated is not freed");
  }
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

// ---- other parameters --------------------------------------------------------------------------

cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const cudaKernelNodeParams* of) {
  Doing doing;
  const cudaError_t status = kernel_work(&doing, *of);
  return status == cudaSuccess ? set_work(node, std::move(doing)) : status;
}
cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* of) {
  if (node->what.call == nullptr) return remembered(cudaErrorInvalidValue);
  KernelCall& call = *node->what.call;
  *of = {};
  of->func = const_cast<void*>(function_of(call.kernel));
  of->gridDim = call.form.grid;
  of->blockDim = call.form.block;
  of->sharedMemBytes = static_cast<unsigned>(call.form.shared);
  of->kernelParams = call.values.data();
  return cudaSuccess;
}
cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void* to, const void* from,
                                           size_t bytes, cudaMemcpyKind) {
  return set_work(node, copy_work(to, from, bytes));
}
cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node, const cudaMemsetParams* of) {
  return set_work(node, fill_work(*of));
}
cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node, const cudaHostNodeParams* of) {
  return set_work(node, host_work(*of));
}
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* of) {
  Doing doing;
  const cudaError_t status = kernel_work(&doing, *of);
  return status == cudaSuccess ? set_work(step_of(*executable, node), std::move(doing)) : status;
}
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t executable, cudaGraphNode_t node,
                                               void* to, const void* from, size_t bytes,
                                               cudaMemcpyKind) {
  return set_work(step_of(*executable, node), copy_work(to, from, bytes));
}
cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const cudaMemcpy3DParms* of) {
  return set_work(step_of(*executable, node), copy_work(*of));
}
cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                             const cudaMemsetParams* of) {
  return set_work(step_of(*executable, node), fill_work(*of));
}
cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t executable, cudaGraphNode_t node,
                                           const cudaHostNodeParams* of) {
  return set_work(step_of(*executable, node), host_work(*of));
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

}  // extern "C"
