#pragma once

#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "runtime/api_core.hpp"
#include "runtime/api_tma.hpp"

// Device memory is host memory that the emulator knows the bounds of; everything on a stream is
// done when the call returns.
namespace kb::rt {

inline int sm_count() {
  return emu::sm_count();
}
inline void* device_malloc(size_t bytes) {
  return emu::device_malloc(bytes);
}
inline void device_free(void* pointer) {
  emu::device_free(pointer);
}
inline void* pinned_malloc(size_t bytes) {
  return emu::pinned_malloc(bytes);
}
inline void pinned_free(void* pointer) {
  emu::pinned_free(pointer);
}
inline void copy_to_device(void* dst, const void* src, size_t bytes) {
  std::memcpy(dst, src, bytes);
}
inline void copy_to_host(void* dst, const void* src, size_t bytes) {
  std::memcpy(dst, src, bytes);
}
inline void copy_to_device_async(void* dst, const void* src, size_t bytes, Stream) {
  std::memcpy(dst, src, bytes);
}
inline void memset_async(void* dst, int value, size_t bytes, Stream) {
  std::memset(dst, value, bytes);
}
inline void stream_synchronize(Stream) {}

inline TensorMap encode_tensor_map(const TensorMapTile& tile) {
  return emu::encode_tensor_map(tile);
}

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchConfig& config, Arguments&&... arguments) {
  std::tuple<std::decay_t<Parameters>...> bound(std::forward<Arguments>(arguments)...);
  emu::launch(config, [kernel, &bound] {
    std::apply([kernel](auto&... each) { kernel(each...); }, bound);
  });
}

template <typename... Parameters>
int ctas_per_sm(void (*)(Parameters...), uint32_t threads, uint32_t shared_bytes) {
  return emu::ctas_per_sm(threads, shared_bytes);
}

inline void reserve_persisting_l2(size_t) {}

inline bool recorded(Stream) {
  return false;
}

struct Graph::State {
  std::function<void(Stream)> enqueue;
};
inline Graph::Graph(std::function<void(Stream)> enqueue) : state_(new State{std::move(enqueue)}) {}
inline Graph::~Graph() = default;
inline void Graph::launch(Stream stream) {
  state_->enqueue(stream);
}

}  // namespace kb::rt
