// What the files of the CUDA runtime that stands in share. Types and signatures are those of nvcc's
// own headers.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace kb::cuda {

// A kernel of a module: what CUfunction and cudaFunction_t point to.
struct Kernel {
  int module;
  std::string name;
  std::vector<uint32_t> offsets;  // of parameters
  std::vector<uint32_t> sizes;
  uint32_t static_shared;
  uint32_t most_threads;
  uint32_t dynamic_limit = 48 * 1024;
};

struct Variable {
  void* address;
  size_t bytes;
};

// PTX that was loaded, by a library's image or by the program.
struct Module {
  int number;
  std::map<std::string, Kernel> kernels;
  std::map<std::string, Variable> variables;
};

struct Form {
  dim3 grid, block, cluster{1, 1, 1};
  size_t shared = 0;
  bool cooperative = false;
  bool programmatic = false;  // may begin before the launch ahead of it has ended
};

// Launches a kernel by the module's number and its name; returns a cudaError_t. `how`: 1 for
// cooperative, 2 for programmatic, or both.
using Launch = int (*)(int module, const char* name, const unsigned* grid, const unsigned* block,
                       const unsigned* cluster, uint64_t shared, int how, void** arguments);
// Says what a program has asked for that is not here.
using Missing = void (*)(const char* what);
// Loads PTX: the number of the module, or -1.
using LoadPtx = int (*)(const char* text);
// The same with the PTX in a fat binary of nvcc's.
using LoadImage = int (*)(const void* image);

struct Device {
  int arch = 0;  // 90 for 9.0
  int sms = 0;
  int shared_bytes = 0;  // that a CTA can have at most
};

extern Launch launch_kernel;
extern Missing missing;
extern LoadPtx load_ptx;
extern LoadImage load_image;
extern Device device;
extern std::map<int, Module> modules;

// Remembers a failure for cudaGetLastError.
cudaError_t remembered(cudaError_t status);
// The same of a launch whose status `<<<>>>` drops.
cudaError_t launch_refused(const Kernel* kernel, cudaError_t status);
// An answer to what is not here: it is named in the end.
cudaError_t not_here(const std::string& what);

// Does something on a stream: when somebody waits for it (queue.cpp), or when the graph is launched
// that the stream captures.
using Work = std::function<cudaError_t()>;
// `what` names it, where somebody has forgotten to wait for it.
cudaError_t submit(cudaStream_t stream, Work work, std::string what = "a copy");
bool captures(cudaStream_t stream);
// A node of a graph, which comes after others of it.
cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph, const CUgraphNode_st* const* after,
                     size_t count, Work work);

// A piece of work, by its number; 0 for none.
using Task = uint64_t;
void open_stream(cudaStream_t stream, bool blocking);
void close_stream(cudaStream_t stream);
Task enqueue(cudaStream_t stream, Work work, std::string what = "");
// A piece that does nothing, behind what the stream has.
Task mark(cudaStream_t stream);
// What is given to the stream next waits for the task.
void wait_before_next(cudaStream_t stream, Task task);
// Does what is pending of a task and of what it waits for; the last failure, which is remembered.
cudaError_t finish(Task task);
cudaError_t finish_all();
// On the default stream, with the host waiting for it.
cudaError_t done_at_once(Work work);
// The stream that callers mean by the current one. With `at_once`, what is given to it is done by
// then: torch's operations come behind it, and take no part in this queue.
extern cudaStream_t current_stream;
extern bool current_at_once;
// What is pending and has a name; it is dropped.
std::string dropped();

// The kernel of a host's stub, a cudaKernel_t or a cudaFunction_t; null if it is none.
Kernel* kernel_of(const void* function);

// A launch to make now or later, with what the arguments are now.
cudaError_t prepared(Work* work, Kernel* kernel, const Form& form, void** arguments);
cudaError_t launch(Kernel* kernel, const Form& form, void** arguments, cudaStream_t stream);
cudaError_t launch_with(const cudaLaunchConfig_t& config, Kernel* kernel, void** arguments);
// How many CTAs of a kernel an SM of the emulator holds: one, if it fits.
int resident_blocks(const Kernel& kernel, int threads, size_t shared);

cudaError_t allocate(void** address, size_t bytes, cudaMemoryType type);
cudaError_t release(void* address);
// The range of an allocation or variable that an address is in.
struct Range {
  char* begin = nullptr;
  size_t bytes = 0;
  cudaMemoryType type = cudaMemoryTypeUnregistered;
};
Range range_of(const void* address);
cudaError_t copy(void* to, const void* from, size_t bytes);
cudaError_t fill(void* to, int value, size_t bytes);
// The variable that a host's symbol stands for; null if it is none.
Variable* variable_of(const void* symbol);

cudaError_t device_attribute(int* value, int attribute);

}  // namespace kb::cuda

struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
};
struct CUgraphNode_st {
  kb::cuda::Work work;
  std::vector<const CUgraphNode_st*> after;
};
struct CUstream_st {
  CUgraph_st* capture = nullptr;
  std::vector<const CUgraphNode_st*> captured;  // what its next node comes after
  unsigned flags = 0;
  int priority = 0;
};
struct CUevent_st {
  CUgraph_st* capture = nullptr;
  std::vector<const CUgraphNode_st*> captured;  // of its stream when it was recorded
  bool recorded = false;
  kb::cuda::Task task = 0;
};
struct CUgraphExec_st {
  std::vector<kb::cuda::Work> orders[2];  // the works, in two orders that the graph allows
  size_t launches = 0;
};
