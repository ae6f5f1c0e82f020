#pragma once

#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ptx_frontend/step_kernels.hpp"
#include "runtime/api_core.hpp"
#include "runtime/api_tma.hpp"

// Device memory is host memory that the emulator knows the bounds of; what is on a stream is done
// when the call returns, unless calls are queued (runtime/queue.cpp) or a graph is recorded.
namespace kb::rt {

namespace detail {

using Operation = std::function<void()>;
// Where operations go while a graph is recorded, as by cudaStreamBeginCapture; null otherwise.
inline thread_local std::vector<Operation>* recording = nullptr;

// Calls that CUDA does not permit while the thread or the caller records a stream.
inline void refuse_while_recording(const char* call) {
  if (recording == nullptr && !emu::caller_records()) return;
  emu::end_recording(call);
  throw Error(std::string(call) + ": not permitted while a stream is recorded");
}

// torch's streams are in no order with the default one (CUDA programming guide, "Default Stream":
// cudaStreamNonBlocking), nor with each other, and steps have no events.
inline bool is_elsewhere(Stream stream) {
  return emu::call_stream() != nullptr && stream.handle != emu::call_stream();
}
template <typename Do>
void enqueue(Stream stream, Do operation) {
  if (is_elsewhere(stream)) {
    throw Error("an operation on another stream than the call's: nothing puts the two in order");
  }
  if (recording != nullptr) {
    recording->emplace_back(std::move(operation));
    return;
  }
  if (!emu::caller_records()) return emu::enqueue(std::move(operation));
  if (const char* call = emu::recording_ended_by(); *call != 0) {
    throw Error(std::string("the caller's recording has been ended by ") + call);
  }
  emu::record(std::move(operation));
}

}  // namespace detail

inline int sm_count() {
  return emu::sm_count();
}
inline void* device_malloc(size_t bytes) {
  detail::refuse_while_recording("cudaMalloc");
  return emu::device_malloc(bytes);
}
inline void device_free(void* pointer) {
  detail::refuse_while_recording("cudaFree");
  emu::device_free(pointer);
}
inline void* pinned_malloc(size_t bytes) {
  detail::refuse_while_recording("cudaMallocHost");
  return emu::pinned_malloc(bytes);
}
inline void pinned_free(void* pointer) {
  detail::refuse_while_recording("cudaFreeHost");
  emu::pinned_free(pointer);
}
inline void copy_to_device(void* dst, const void* src, size_t bytes) {
  detail::refuse_while_recording("cudaMemcpy");
  emu::finish_queue();
  emu::stream_operation();
  emu::host_wrote(dst, bytes);
  std::memcpy(dst, src, bytes);
}
inline void copy_to_host(void* dst, const void* src, size_t bytes) {
  detail::refuse_while_recording("cudaMemcpy");
  emu::finish_queue();
  emu::stream_operation();
  std::memcpy(dst, src, bytes);
}
inline void copy_to_device_async(void* dst, const void* src, size_t bytes, Stream stream) {
  if (!emu::queued() || detail::recording != nullptr || emu::is_pinned(src)) {
    return detail::enqueue(stream, [=] {
      emu::stream_operation();
      emu::host_wrote(dst, bytes);
      std::memcpy(dst, src, bytes);
    });
  }
  const auto* first = static_cast<const unsigned char*>(src);
  detail::enqueue(stream, [dst, staged = std::vector<unsigned char>(first, first + bytes)] {
    emu::stream_operation();
    emu::host_wrote(dst, staged.size());
    std::memcpy(dst, staged.data(), staged.size());
  });
}
inline void memset_async(void* dst, int value, size_t bytes, Stream stream) {
  detail::enqueue(stream, [=] {
    emu::stream_operation();
    emu::host_wrote(dst, bytes);
    std::memset(dst, value, bytes);
  });
}
inline void stream_synchronize(Stream stream) {
  detail::refuse_while_recording("cudaStreamSynchronize");
  if (detail::is_elsewhere(stream)) return;
  emu::finish_queue();
  emu::stream_operation();
}

inline TensorMap encode_tensor_map(const TensorMapTile& tile) {
  return emu::encode_tensor_map(tile);
}

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchConfig& config, Arguments&&... arguments) {
  std::tuple<std::decay_t<Parameters>...> bound(std::forward<Arguments>(arguments)...);
  detail::enqueue(config.stream, [kernel, config, bound]() mutable {
    emu::launch(config, emu::kernel_body(kernel, bound));
  });
}

template <typename... Parameters>
int ctas_per_sm(void (*)(Parameters...), uint32_t threads, uint32_t shared_bytes) {
  return emu::ctas_per_sm(threads, shared_bytes);
}

inline void reserve_persisting_l2(size_t bytes) {
  static size_t reserved = 0;
  if (bytes <= reserved) return;
  detail::refuse_while_recording("cudaDeviceSetLimit");
  reserved = bytes;
}

inline bool recorded(Stream) {
  return detail::recording != nullptr || emu::caller_records();
}

struct Graph::State {
  std::function<void(Stream)> enqueue;
  std::vector<detail::Operation> operations;
  // An executable graph that is destroyed ends every recording, without a word.
  ~State() {
    if (!enqueue) emu::end_recording("cudaGraphExecDestroy");
  }
};
inline Graph::Graph(std::function<void(Stream)> enqueue)
    : state_(new State{std::move(enqueue), {}}) {}
inline Graph::~Graph() = default;
inline void Graph::launch(Stream stream) {
  if (state_->enqueue) {
    detail::refuse_while_recording("cudaGraphInstantiate");
    detail::recording = &state_->operations;
    try {
      state_->enqueue(stream);
    } catch (...) {
      detail::recording = nullptr;
      state_->operations.clear();
      throw;
    }
    detail::recording = nullptr;
    state_->enqueue = nullptr;
  }
  for (const detail::Operation& operation : state_->operations) detail::enqueue(stream, operation);
}

}  // namespace kb::rt
