// The host side of a step: memory, copies, streams, launches, tensor maps. The same calls on every
// executor; a failed one throws kb::rt::Error. Nothing here allocates or synchronizes behind the
// caller's back.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "ptx/types.cuh"

namespace kb::rt {

// A call that failed; what() is one line that names the call and the reason.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A CUDA stream; null is the default stream.
struct Stream {
  void* handle = nullptr;
};

// Streaming multiprocessors of the current device; the emulator's is an input (--sms).
int sm_count();

// Device memory; the address is a multiple of 256 (cudaMalloc, cudaFree).
void* device_malloc(size_t bytes);
void device_free(void* pointer);

// Page-locked host memory: asynchronous copies need it (cudaMallocHost, cudaFreeHost).
void* pinned_malloc(size_t bytes);
void pinned_free(void* pointer);

// Copies host memory to the device and waits (cudaMemcpy: on the legacy default stream).
void copy_to_device(void* dst, const void* src, size_t bytes);
// Copies device memory to the host and waits.
void copy_to_host(void* dst, const void* src, size_t bytes);
// Copies in stream order; src must be page-locked and unchanged until the copy is done.
void copy_to_device_async(void* dst, const void* src, size_t bytes, Stream stream);
// Sets every byte, in stream order.
void memset_async(void* dst, int value, size_t bytes, Stream stream);
void stream_synchronize(Stream stream);

// A tile of a tensor as the TMA sees it (cuTensorMapEncodeTiled).
//   element     type of the elements
//   rank        number of dimensions, 1 … 5; dimension 0 is contiguous
//   address     first element, 16-byte aligned; null for a template that the device will patch
//   dims        extent of each dimension in elements, 1 … 2^32
//   strides     bytes from one index of dimension i + 1 to the next, multiples of 16
//   box         extent of the tile in elements, 1 … 256; box[0] in bytes a multiple of 16, and at
//               most the swizzle's width
//   swizzle     how the tile is permuted in shared memory
struct TensorMapTile {
  TensorMapElement element;
  uint32_t rank;
  const void* address;
  uint64_t dims[5];
  uint64_t strides[4];
  uint32_t box[5];
  TensorMapSwizzle swizzle = TensorMapSwizzle::kNone;
};
// Encodes on the host; elements outside the tensor read as zero.
TensorMap encode_tensor_map(const TensorMapTile& tile);

// Memory that a kernel asks to keep in L2 (access policy window); what else it touches streams.
struct PersistingL2 {
  void* base = nullptr;
  size_t bytes = 0;
};

// How a kernel is launched.
//   grid           CTAs per dimension
//   threads        per CTA, in one dimension
//   shared_bytes   dynamic shared memory: sizeof of the kernel's SharedStorage
//   cluster        CTAs per cluster along x; grid.x is a multiple
//   cooperative    all CTAs are resident at once
//   dependent      programmatic dependent launch: may start before the previous kernel of the
//                  stream has ended, see ptx::griddepcontrol_wait
//   launch_control the kernel takes over CTAs by Cluster Launch Control: an executor without it
//                  starts the resident clusters only and hands out the rest; grid.y = grid.z = 1
//   persisting_l2  a hint to the cache
struct LaunchConfig {
  CtaIndex grid;
  uint32_t threads;
  uint32_t shared_bytes;
  Stream stream = {};
  uint32_t cluster = 1;
  bool cooperative = false;
  bool dependent = false;
  bool launch_control = false;
  PersistingL2 persisting_l2 = {};
};

// Launches `kernel` with arguments converted to its parameters' types. Also throws for a fault that
// the executor notices at once; others are reported by a later call.
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchConfig& config, Arguments&&... arguments);

// CTAs of the kernel that fit on one SM at once (cudaOccupancyMaxActiveBlocksPerMultiprocessor).
template <typename... Parameters>
int ctas_per_sm(void (*kernel)(Parameters...), uint32_t threads, uint32_t shared_bytes);

// Sets part of the device's L2 aside for lines that persist, as much of `bytes` as it allows:
// without, LaunchConfig::persisting_l2 has no effect. Not while a stream of the thread is recorded.
void reserve_persisting_l2(size_t bytes);

// Whether what is enqueued on the stream is being recorded, by the caller of the step.
bool recorded(Stream stream);

// Stream operations recorded once and launched as a whole (CUDA graph). To record, launch and
// destroy takes calls that do not go together with another recording: not while `recorded`.
class Graph {
 public:
  // `enqueue` puts the operations on the stream that it is called with.
  explicit Graph(std::function<void(Stream)> enqueue);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Enqueues them all; the first time they are recorded, kernel arguments included.
  void launch(Stream stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kb::rt

#include "rt.inl"
