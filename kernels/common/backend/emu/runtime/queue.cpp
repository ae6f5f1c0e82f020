// What is on a stream and not yet done. A GPU starts an operation some time after the host has
// enqueued it, when the host may be calls ahead: what the host changes meanwhile, it changes under
// the operation. CUDA programming guide, asynchronous concurrent execution; for copies, the CUDA
// runtime API's "API synchronization behavior": from pageable memory a copy is staged before the
// call returns, from page-locked memory it is not.
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <string>

#include "api_core.hpp"
#include "grids.hpp"

namespace kb::emu {

namespace {

bool queueing = false;
const void* stream_of_call = nullptr;
std::deque<std::function<void()>> operations;
// What ended one of them; the rest was dropped, as after a sticky error.
std::string failure;
// Bytes of page-locked memory by its address.
std::map<uintptr_t, size_t> pinned;

}  // namespace

const void* call_stream() {
  return stream_of_call;
}

bool queued() {
  return queueing;
}

void enqueue(std::function<void()> operation) {
  if (!queueing) return operation();
  operations.push_back(std::move(operation));
}

void finish_queue() {
  while (!operations.empty() && failure.empty()) {
    const std::function<void()> next = std::move(operations.front());
    operations.pop_front();
    try {
      next();
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }
  operations.clear();
  host_waited();
}

void note_pinned(const void* pointer, size_t bytes) {
  pinned[reinterpret_cast<uintptr_t>(pointer)] = bytes;
}

void forget_pinned(const void* pointer) {
  pinned.erase(reinterpret_cast<uintptr_t>(pointer));
}

bool is_pinned(const void* pointer) {
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  auto found = pinned.upper_bound(at);
  return found != pinned.begin() && at - (--found)->first < found->second;
}

}  // namespace kb::emu

#define KB_EMU_EXPORT extern "C" __attribute__((visibility("default")))

// Calls are made on this stream from now on.
KB_EMU_EXPORT void kb_emu_call_stream(const void* stream) {
  kb::emu::stream_of_call = stream;
}

// From now on operations wait for kb_emu_finish, or for a call that waits for the stream.
KB_EMU_EXPORT void kb_emu_queue() {
  kb::emu::queueing = true;
}

// Does what is left, and no longer queues; 0, or 1 and why in `message`.
KB_EMU_EXPORT int kb_emu_finish(char* message, uint64_t size) {
  kb::emu::finish_queue();
  kb::emu::queueing = false;
  std::snprintf(message, size, "%s", kb::emu::failure.c_str());
  const bool failed = !kb::emu::failure.empty();
  kb::emu::failure.clear();
  return failed ? 1 : 0;
}
