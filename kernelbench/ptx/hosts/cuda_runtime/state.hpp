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
#include <mutex>
#include <string>
#include <utility>
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
  unsigned most_cluster =
      8;  // CUDA driver API, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
};

struct Variable {
  void* address;
  size_t bytes;
};

// PTX that was loaded, by a library's image or by the program.
struct Module {
  int gpu = 0;  // of its variables
  int number;
  std::map<std::string, Kernel> kernels;
  std::map<std::string, Variable> variables;
};

struct Form {
  dim3 grid, block, cluster{1, 1, 1};
  size_t shared = 0;
  bool cooperative = false;
  bool programmatic = false;  // may begin before the launch ahead of it has ended
  bool in_default = false;    // in the default stream
};

// Launches a kernel by the module's number and its name; returns a cudaError_t. `how`: the sum of 1
// for cooperative, 2 for programmatic, 4 for in the default stream.
using Launch = int (*)(int module, const char* name, const unsigned* grid, const unsigned* block,
                       const unsigned* cluster, uint64_t shared, int how, void** arguments);
// Says what a program has asked for that is not here.
using Missing = void (*)(const char* what);
// Loads PTX: the number of the module, or -1.
using LoadPtx = int (*)(const char* text);
// The same with the PTX in a fat binary of nvcc's.
// The parts of an image that is to be linked, up to null; null if there are none.
using LoadImage = int (*)(const void* image, const void* const* parts);

// Loads a module once more, with variables of its own: its number, or -1.
using LoadAgain = int (*)(int module);

// How many CTAs of a kernel the GPU holds at once; `shared`: dynamic.
using Resident = unsigned (*)(int module, const char* name, unsigned threads, uint64_t shared,
                              unsigned cluster);

// Compiles the text in a folder; `words`: its name, then NVRTC's options, a line each. It leaves
// `log` there, and `ptx`; 0 if it could.
using CompileText = int (*)(const char* folder, const char* words);

// Fourier transforms of `batch` packed arrays, without a factor. `way`: -1 and 1 for complex ones,
// -2 from real and 2 to real numbers; `extents`: of the transform.
using Transform = int (*)(int way, int batch, int rank, const int* extents, const double* from,
                          double* to);

// Each of the GPUs that there are.
struct Device {
  int arch = 0;  // 90 for 9.0
  int sms = 0;
  int shared_bytes = 0;  // that a CTA can have at most
  int count = 1;
  double limit_s = 0;  // of a schedule; 0: none
};

extern Launch launch_kernel;
extern Missing missing;
// Told of a kernel that is asked for and has no PTX.
extern Missing machine_code_only;
extern LoadPtx load_ptx;
extern LoadImage load_image;
extern LoadAgain load_again;
extern Resident resident;
extern CompileText compile_text;
extern Transform transform;
extern Device device;
// Of a program: what is pending then is done, but host functions are not called.
extern bool main_has_ended;
extern std::map<int, Module> modules;

// Threads of the host make their calls one after another: what a call changes is whole before the
// next one begins, and kernels of one of them run at a time.
class OneCall {
 public:
  void lock() {
    mutex_.lock();
    ++depth_;
  }
  void unlock() {
    --depth_;
    mutex_.unlock();
  }
  // By the thread that makes one: as often as it has locked, and again.
  size_t let_go() {
    const size_t times = depth_;
    for (size_t i = 0; i < times; ++i) unlock();
    return times;
  }
  void take(size_t times) {
    for (size_t i = 0; i < times; ++i) lock();
  }

 private:
  std::recursive_mutex mutex_;
  size_t depth_ = 0;
};
extern OneCall one_call;
#define KB_ONE_CALL const std::lock_guard locked(kb::cuda::one_call)

// GPUs by their numbers, a bit each: at most so many.
using Gpus = uint64_t;
constexpr int kMostGpus = 64;
constexpr Gpus only(int gpu) {
  return Gpus{1} << gpu;
}
constexpr Gpus kAllGpus = ~Gpus{0};
// Of the calling thread.
int current_gpu();
bool has_gpu(int number);
// Of the driver: each GPU has one. -1 for what is none.
// What new memory is filled with.
int fresh_bytes();
CUcontext context_of(int gpu);
int gpu_of_context(CUcontext context);
// Whose memory kernels of a GPU may access: its own, and that of peers whose access is enabled.
Gpus reached_by(int gpu);
// The GPU of a stream, and of the default stream the current one.
int gpu_of(cudaStream_t stream);
// ` of GPU 1`, if there are several.
std::string words_of_gpu(int gpu);

// Remembers a failure for cudaGetLastError, and for reports.
cudaError_t remembered(cudaError_t status, const std::string& why = {});
// The same of a kernel, or call, whose status the program may never ask for.
cudaError_t launch_refused(const std::string& name, cudaError_t status,
                           const std::string& why = {});
// An answer to what is not here: it is named in the end.
cudaError_t not_here(const std::string& what);
// A function of this library by its name; null if it has none.
void* own_function(const char* name);

// Does something on a stream: when somebody waits for it (queue.cpp), or when the graph is launched
// that the stream captures.
using Work = std::function<cudaError_t()>;
// What it is, as the emulator numbers the kinds of operations.
enum class Kind { kNothing, kLaunch, kTransfer, kAllocate, kFree };
// Memory that a piece of work may access.
struct Reach {
  const void* at;
  size_t bytes;
  bool writes;
};
struct KernelCall {
  Kernel* kernel;
  Form form;
  std::vector<std::vector<char>> kept;  // of the arguments
  std::vector<void*> values;            // where they are
  int gpu;
  Gpus reached;  // when the launch was asked for
};
struct What {
  Kind kind = Kind::kTransfer;
  std::string kernel = {};
  bool programmatic = false;  // may begin before the launch ahead of it has ended
  std::vector<Reach> reaches = {};
  bool calls_host = false;
  std::shared_ptr<KernelCall> call = {};  // of a launch
  // Of a graph's node: an event of whoever launches it.
  cudaEvent_t records = nullptr;
  cudaEvent_t waits = nullptr;
  // Those whose memory it is of: in a default stream it is in order with theirs.
  Gpus gpus = 0;
  void* memory = nullptr;      // that it allocates or frees
  const void* word = nullptr;  // that it writes for a stream to wait for
  uint64_t value = 0;          // which it gets then
  // Of a wait for a word: whether its value is right now, and the call.
  std::function<bool()> ready;
  const void* waits_at = nullptr;
  bool passes = false;  // a launch behind it may begin early behind the launch before it
};
inline What of_memory(Kind kind, void* memory) {
  What what;
  what.kind = kind;
  what.memory = memory;
  return what;
}
// A graph allocates that. The program frees it: whether it is a graph's, which may be launched
// again now, with the memory where it was.
void allocated_by_graph(void* memory);
bool freed_for_graphs(void* memory);
inline What of_gpus(Gpus gpus) {
  What what;
  what.gpus = gpus;
  return what;
}
// Who asked for it: the call of the program, or the kernel, and where.
struct Asked {
  std::string name;
  const void* pc = nullptr;
};
Asked asked_now(const std::string& kernel);
cudaError_t submit(cudaStream_t stream, Work work, What what = {});
bool captures(cudaStream_t stream);
// A node of a graph, which comes after others of it.
cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph, const CUgraphNode_st* const* after,
                     size_t count, Work work, What what = {});
cudaError_t add_event_node(cudaGraphNode_t* node, cudaGraph_t graph,
                           const CUgraphNode_st* const* after, size_t count, cudaEvent_t event,
                           bool records);

// A piece of work, by its number; 0 for none.
using Task = uint64_t;
void open_stream(cudaStream_t stream, bool blocking);
void close_stream(cudaStream_t stream);
// One that nothing waits for and that waits for nothing: what is there comes after what the host
// knows to be over.
cudaStream_t in_no_order();
Task enqueue(cudaStream_t stream, Work work, What what = {});
// A piece that does nothing, behind what the stream has.
Task mark(cudaStream_t stream);
// What is given to the stream next waits for the task.
void wait_before_next(cudaStream_t stream, Task task);
// Does what is pending of a task and of what it waits for; the last failure, which is remembered.
cudaError_t finish(Task task);
// Whether a task is pending that nobody has asked for before: then it is not ready yet.
bool first_asked(Task task);
// Whether what was asked for last has to be done before its call returns.
bool done_before_return();
bool is_pending(Task task);
// The default stream by any of its names, or the calling thread's own one.
cudaStream_t named(cudaStream_t stream);
// While one is there, the default stream is the calling thread's own.
struct PerThread {
  PerThread();
  ~PerThread();
  PerThread(const PerThread&) = delete;
  PerThread& operator=(const PerThread&) = delete;

 private:
  bool before_;
};
// The last task of a stream; 0 if it has had none.
Task last_of(cudaStream_t stream);
// What the host waits for that waits for a stream.
Task end_of(cudaStream_t stream);
cudaError_t finish_all();
// What is pending of one GPU, and what that waits for.
cudaError_t finish_gpu(int gpu);
// Does what is pending, for a host that polls memory and knows nothing of it.
void do_unseen();
// CUDA runtime API, cudaLaunchHostFunc: "The host function must not make any CUDA API calls".
bool refused_in_host_function();
// Whether all that was asked for is done, seen or not.
bool nothing_to_do();
// Main ends here and now, also from another thread. Returns where main is not there to be left.
void leave_main(int status);
// Likewise, if the process has been told to end: what was found until then counts.
void leave_if_told();
// A word that streams wait for, of 4 or 8 bytes.
struct Word {
  const void* at;
  size_t bytes;
  uint64_t now() const;
};
// What is done now has written it; `hands_on`: with what comes before that.
void word_written(const Word& word, uint64_t before, bool hands_on);
// What is done now waits until its value is right; what is pending and writes it is done meanwhile.
cudaError_t wait_for_word(const Word& word, const std::function<bool(uint64_t)>& is_right,
                          const void* pc);
// The nodes of a conditional node's body, within that node, which is done now: behind `after`, to
// which they are added.
cudaError_t do_nodes_within(CUgraphExec_st& body, std::vector<Task>& after);
// What such a node decides by, behind `after` likewise; `line`: 0 before it has decided.
uint32_t condition_within(const uint32_t* value, const Asked& asked, uint32_t& line,
                          std::vector<Task>& after);
// The nodes of a graph, in an order that it allows; `stream` goes on behind all of them.
void enqueue_nodes(CUgraphExec_st& executable, const std::vector<size_t>& order,
                   cudaStream_t stream);
// On the default stream, with the host waiting for it.
cudaError_t done_at_once(Work work, Gpus gpus = 0);
// The stream that callers mean by the current one. With `at_once`, what is given to it is done by
// then: torch's operations come behind it, and take no part in this queue.
extern cudaStream_t current_stream;
extern bool current_at_once;
// What is pending and has a name; it is dropped.
std::string dropped();

// The kernel of a host's stub, a cudaKernel_t or a cudaFunction_t; null if it is none.
Kernel* kernel_of(const void* function);

// As another GPU has it, whose variables are its own.
Kernel* kernel_on(Kernel* kernel, int gpu);
// A launch to make now or later, with what the arguments are now.
cudaError_t prepared(Work* work, What* what, Kernel* kernel, const Form& form, void** arguments,
                     int gpu = current_gpu());
// The host's function that stands for a kernel, or the kernel itself.
const void* function_of(const Kernel* kernel);
cudaError_t launch(Kernel* kernel, const Form& form, void** arguments, cudaStream_t stream);
// Makes what the kernel that has just ended has launched, and what that launches (children.cpp).
cudaError_t launch_children(const Kernel& parent, int gpu);
struct Child {
  Work work;
  What what;
  std::pair<uint64_t, uint64_t> line;  // those of one come one after another
  bool tail = false;                   // behind the kernel and all others
  const void* word = nullptr;          // for what the thread that launches it knows
};
// Does them within what is done now (queue.cpp).
cudaError_t do_within_running(const std::vector<Child>& children, int gpu,
                              const std::string& words);
cudaError_t launch_with(const cudaLaunchConfig_t& config, Kernel* kernel, void** arguments);
// How many CTAs of a kernel an SM of the emulator holds: one, if it fits.
int resident_blocks(const Kernel& kernel, int threads, size_t shared);

// Bytes from which kernels take memory by malloc: CUDA's default.
constexpr size_t kHeapBytes = size_t{8} << 20;
// Where the program has asked for something, by number (kb_cudart_site).
void keep_site(uint64_t number, const void* pc);
// `fresh`: it holds nothing before the program has written there.
// `open`: for these GPUs, whatever is enabled; none: for its own one and its peers.
cudaError_t allocate(void** address, size_t bytes, cudaMemoryType type, bool fresh = true,
                     Gpus open = 0);
cudaError_t release(void* address);
// Memory of the GPU that this library has not taken from the heap, for these GPUs; none: it is no
// longer there.
void mapped(void* address, size_t bytes, Gpus gpus);
// While one is there, kernels of a GPU are run.
class OnGpu {
 public:
  OnGpu(int gpu, Gpus reached);
  ~OnGpu();
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

 private:
  std::pair<int, Gpus> before_;
};
// Frees what its stream has freed, when nothing is pending that could use it.
void release_retired();
// The range of an allocation or variable that an address is in.
struct Range {
  char* begin = nullptr;
  size_t bytes = 0;
  cudaMemoryType type = cudaMemoryTypeUnregistered;
  uint64_t number = 0;  // of the allocation; 0 for a variable
  bool registered = false;
  int gpu = 0;
  std::string variable;  // its name, if it is one
};
Range range_of(const void* address);
// Whether all of it is in one allocation, or variable.
bool is_reached(const void* address, size_t bytes);
// What the host and the GPU reach.
std::vector<Range> host_ranges();
// That kernels take from by malloc; empty if none does.
extern Range heap_of_kernels;
cudaError_t copy(void* to, const void* from, size_t bytes);
cudaError_t fill(void* to, int value, size_t bytes);
cudaError_t copy_box(const cudaMemcpy3DParms& of);
// What such a copy, or one of bytes or rows, may access: of a box the whole allocations.
What copy_of(const void* from, size_t from_bytes, void* to, size_t to_bytes);
What box_of(const cudaMemcpy3DParms& of);
// The same copy with arrays as pitched memory, in bytes; null where the box is not in an array.
cudaMemcpy3DParms without_arrays(cudaMemcpy3DParms of);
// The variable that a host's symbol stands for on the current GPU; null if it is none.
Variable* variable_of(const void* symbol);

cudaError_t device_attribute(int* value, int attribute);

// By a clock that never goes back.
double now_ms();

// The driver's numbers of errors are the runtime's, as far as this library answers with any.
inline CUresult result(cudaError_t status) {
  return static_cast<CUresult>(status);
}

}  // namespace kb::cuda

struct Conditional;
// A word that kernels set (cudaGraphSetConditional), with what launches give it first, if anything.
struct Condition {
  uint32_t* value;
  uint32_t first;
  bool is_given;
};
struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
  std::vector<Condition> conditions;
};
struct CUgraphNode_st {
  kb::cuda::Work work;
  std::vector<const CUgraphNode_st*> after;
  kb::cuda::What what;
  kb::cuda::Asked asked;
  bool inner = false;  // of a child graph, which the program knows as one node
  bool whole = false;  // that node
  std::shared_ptr<Conditional> conditional = {};
  const CUgraphNode_st* ahead = nullptr;  // the launch whose end it need not wait for
};
// What a conditional node decides by, and what it chooses from.
struct Conditional {
  uint32_t* value;
  int type;  // a cudaGraphConditionalNodeType
  std::vector<std::unique_ptr<CUgraph_st>> bodies;
  std::vector<cudaGraph_t> handles;  // the same, for the program
};
struct CUstream_st {
  CUgraph_st* capture = nullptr;
  std::vector<const CUgraphNode_st*> captured;  // what its next node comes after
  bool adds = false;                            // to a graph that the program has made
  unsigned flags = 0;
  int priority = 0;
};
struct CUevent_st {
  CUgraph_st* capture = nullptr;
  std::vector<const CUgraphNode_st*> captured;  // of its stream when it was recorded
  bool recorded = false;
  bool timed = true;
  int gpu = kb::cuda::current_gpu();
  kb::cuda::Task task = 0;
  // When its stream came there; shared with the work that is pending.
  std::shared_ptr<double> at_ms = std::make_shared<double>(0);
};
struct CUgraphExec_st {
  struct Step {
    kb::cuda::Work work;
    kb::cuda::What what;
    kb::cuda::Asked asked;
    std::vector<size_t> after;             // steps
    size_t ahead = SIZE_MAX;               // of these the one whose end it need not wait for
    const CUgraphNode_st* node = nullptr;  // of the graph that was instantiated
    uint32_t line = 0;  // of its launches, one behind the other; 0 before the first
    kb::cuda::Task last = 0;
  };
  std::vector<Step> steps;
  std::vector<size_t> orders[2];  // that the graph allows
  std::vector<Condition> conditions;
  bool frees = false;  // what is left of its last launch, when it is launched again
  size_t launches = 0;
  kb::cuda::Task last = 0;  // the end of its last launch
};
