// Memory of the GPU is memory of the process. It begins with NaN: a kernel must not rely on it.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "order.hpp"
#include "state.hpp"

namespace kb::cuda {

namespace {

struct Allocation {
  size_t bytes;
  cudaMemoryType type;
  uint64_t number;
  bool registered;       // the program's own, which the GPU may reach, too
  bool retired = false;  // freed by its stream, while others may have work that uses it
  int gpu = current_gpu();
  Gpus open = 0;                 // as allocate has it
  cudaMemPool_t pool = nullptr;  // that it is of
  unsigned flags = 0;            // as cudaHostAlloc has been given them
};
// For ever: torch's tensors are freed when the process ends, too. And from several threads.
auto& allocated = *new std::map<char*, Allocation>;
std::mutex allocating;
uint64_t last_number = 0;
// Where the program has asked for each, by number; also of those that are freed.
auto& sites = *new std::map<uint64_t, const void*>;

// Before and behind an allocation there is none: what misses one does not hit another.
constexpr size_t kGuardBytes = 64 * 1024;
constexpr size_t kHostPage = 4096;

// By pool, its GPU and those that the program has let into it.
struct Pool {
  int gpu;
  Gpus let;
};
auto& pools = *new std::map<cudaMemPool_t, Pool>;

// The GPU whose kernel runs now.
std::pair<int, Gpus> running = {0, kAllGpus};

// What the running kernel's GPU lacks for memory of another one; empty if it may access it.
std::string lacks_for(const Allocation& memory) {
  const Gpus mine = only(running.first);
  if (memory.type != cudaMemoryTypeDevice) return "";
  if (memory.open != 0) {
    return (memory.open & mine) != 0 ? "" : "cuMemSetAccess has not given it access";
  }
  if (memory.gpu == running.first) return "";
  if (memory.pool != nullptr) {
    return (pools[memory.pool].let & mine) != 0
               ? ""
               : "cudaMemPoolSetAccess has not let it into the pool";
  }
  return (running.second & only(memory.gpu)) != 0
             ? ""
             : "cudaDeviceEnablePeerAccess(" + std::to_string(memory.gpu) +
                   ", 0) was not called while GPU " + std::to_string(running.first) +
                   " was current";
}

}  // namespace

OnGpu::OnGpu(int gpu, Gpus reached) : before_(std::exchange(running, {gpu, reached})) {
  tell_out_of_reach();
}
OnGpu::~OnGpu() {
  running = before_;
  tell_out_of_reach();
}

void tell_out_of_reach() {
  if (device.count == 1) return;
  const std::lock_guard lock(allocating);
  out_of_reach(nullptr, 0, {});
  for (const auto& [begin, each] : allocated) {
    const std::string lack = lacks_for(each);
    if (lack.empty()) continue;
    out_of_reach(begin, each.bytes,
                 "allocation " + std::to_string(each.number) + words_of_gpu(each.gpu) +
                     ", which GPU " + std::to_string(running.first) + " cannot access: " + lack);
  }
}

void keep_site(uint64_t number, const void* pc) {
  const std::lock_guard lock(allocating);
  sites[number] = pc;
}

cudaError_t allocate(void** address, size_t bytes, cudaMemoryType type, bool fresh, Gpus open) {
  // The host's pages are its own: they can be protected (host_access.cpp).
  const size_t alignment = type == cudaMemoryTypeDevice ? 256 : kHostPage;
  if (address == nullptr) return remembered(cudaErrorInvalidValue);
  if (refused_in_host_function()) return cudaErrorNotPermitted;
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  const size_t rounded = (bytes / alignment + 1) * alignment;
  auto* const guarded =
      static_cast<char*>(std::aligned_alloc(alignment, rounded + 2 * kGuardBytes));
  if (guarded == nullptr) return remembered(cudaErrorMemoryAllocation);
  *address = guarded + kGuardBytes;
  std::memset(*address, fresh_bytes(), rounded);
  const std::lock_guard lock(allocating);
  allocated[static_cast<char*>(*address)] = {bytes, type, ++last_number, false};
  allocated[static_cast<char*>(*address)].open = open;
  sites[last_number] = call_site();
  if (type == cudaMemoryTypeDevice && fresh) memory_made(*address);
  return cudaSuccess;
}

cudaError_t release(void* address) {
  if (address == nullptr) return cudaSuccess;
  const std::lock_guard lock(allocating);
  const auto found = allocated.find(static_cast<char*>(address));
  if (found == allocated.end() || found->second.registered) {
    return remembered(cudaErrorInvalidValue);
  }
  const size_t bytes = found->second.bytes;
  const cudaMemoryType type = found->second.type;
  const uint64_t number = found->second.number;
  memory_freed(address, bytes, number);
  allocated.erase(found);
  if (type == cudaMemoryTypeDevice || !orders()) {
    std::free(static_cast<char*>(address) - kGuardBytes);
    return cudaSuccess;
  }
  trap_freed(static_cast<char*>(address), (bytes / kHostPage + 1) * kHostPage,
             "allocation " + std::to_string(number));
  for (char* const each : kept_no_longer()) std::free(each - kGuardBytes);
  return cudaSuccess;
}

void mapped(void* address, size_t bytes, Gpus gpus) {
  const std::lock_guard lock(allocating);
  auto* const begin = static_cast<char*>(address);
  if (gpus != 0) {
    allocated[begin] = {bytes, cudaMemoryTypeDevice, ++last_number, true};
    allocated[begin].open = gpus;
    sites[last_number] = call_site();
  } else {
    const Allocation of = allocated[begin];
    memory_freed(begin, of.bytes, of.number);
    allocated.erase(begin);
  }
}

void release_retired() {
  std::vector<char*> all;
  {
    const std::lock_guard lock(allocating);
    for (const auto& [begin, each] : allocated) {
      if (each.retired) all.push_back(begin);
    }
  }
  for (char* const each : all) release(each);
}

Range range_of(const void* address) {
  auto* const byte = static_cast<char*>(const_cast<void*>(address));
  const std::lock_guard lock(allocating);
  const auto after = allocated.upper_bound(byte);
  if (after != allocated.begin()) {
    const auto& [begin, found] = *std::prev(after);
    if (byte < begin + found.bytes)
      return {begin, found.bytes, found.type, found.number, found.registered, found.gpu};
  }
  for (const auto& [number, module] : modules) {
    for (const auto& [name, variable] : module.variables) {
      auto* const begin = static_cast<char*>(variable.address);
      if (byte >= begin && byte < begin + variable.bytes) {
        return {begin, variable.bytes, cudaMemoryTypeDevice, 0, false, module.gpu, name};
      }
    }
  }
  return {};
}

bool is_reached(const void* address, size_t bytes) {
  const Range range = range_of(address);
  return range.begin != nullptr &&
         static_cast<const char*>(address) + bytes <= range.begin + range.bytes;
}

Range heap_of_kernels;

std::vector<Range> host_ranges() {
  std::vector<Range> all;
  const std::lock_guard lock(allocating);
  for (const auto& [begin, each] : allocated) {
    if (each.type == cudaMemoryTypeDevice) continue;
    all.push_back({begin, each.bytes, each.type, each.number, each.registered});
  }
  return all;
}

namespace {

// Whether a range that begins in memory of the GPU also ends there.
bool inside(const void* address, size_t bytes) {
  return range_of(address).begin == nullptr || is_reached(address, bytes);
}

}  // namespace

cudaError_t copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr || from == nullptr || !inside(to, bytes) || !inside(from, bytes)) {
    return cudaErrorInvalidValue;
  }
  touched(from, bytes, false);
  touched(to, bytes, true);
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

cudaError_t fill(void* to, int value, size_t bytes) {
  if (bytes != 0 && (to == nullptr || !inside(to, bytes))) return cudaErrorInvalidValue;
  touched(to, bytes, true);
  std::memset(to, value, bytes);
  return cudaSuccess;
}

namespace {

// A row behind the last one begins in no allocation, as memory of the host does.
bool rows_inside(const void* address, size_t pitch, size_t width, size_t rows) {
  return rows == 0 || width == 0 || inside(address, (rows - 1) * pitch + width);
}

// Whether rows can be copied so.
cudaError_t rows_status(const void* to, size_t to_pitch, const void* from, size_t from_pitch,
                        size_t width, size_t rows) {
  if (width > to_pitch || width > from_pitch) return cudaErrorInvalidPitchValue;
  const bool both =
      rows_inside(to, to_pitch, width, rows) && rows_inside(from, from_pitch, width, rows);
  return both ? cudaSuccess : cudaErrorInvalidValue;
}

// Rows of `width` bytes, `pitch` apart.
cudaError_t copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                      size_t rows) {
  const cudaError_t fits = rows_status(to, to_pitch, from, from_pitch, width, rows);
  if (fits != cudaSuccess) return fits;
  for (size_t row = 0; row < rows; ++row) {
    const cudaError_t status = copy(static_cast<char*>(to) + row * to_pitch,
                                    static_cast<const char*>(from) + row * from_pitch, width);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

cudaError_t fill_rows(void* to, size_t pitch, int value, size_t width, size_t rows) {
  if (!rows_inside(to, pitch, width, rows)) return cudaErrorInvalidValue;
  for (size_t row = 0; row < rows; ++row) {
    const cudaError_t status = fill(static_cast<char*>(to) + row * pitch, value, width);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace

namespace {

// The GPU whose memory it is; none for the host's.
Gpus gpus_of(const void* address) {
  const Range range = range_of(address);
  return range.type == cudaMemoryTypeDevice ? only(range.gpu) : 0;
}

}  // namespace

What copy_of(const void* from, size_t from_bytes, void* to, size_t to_bytes) {
  What what = of_gpus(gpus_of(from) | gpus_of(to));
  what.reaches = {{from, from_bytes, false}, {to, to_bytes, true}};
  return what;
}

What box_of(const cudaMemcpy3DParms& given) {
  const cudaMemcpy3DParms of = without_arrays(given);
  const Range from = range_of(of.srcPtr.ptr), to = range_of(of.dstPtr.ptr);
  return copy_of(from.begin, from.bytes, to.begin, to.bytes);
}

cudaError_t copy_box(const cudaMemcpy3DParms& given) {
  const cudaMemcpy3DParms of = without_arrays(given);
  if (of.dstPtr.ptr == nullptr || of.srcPtr.ptr == nullptr) return cudaErrorInvalidValue;
  for (size_t z = 0; z < of.extent.depth; ++z) {
    auto* const to = static_cast<char*>(of.dstPtr.ptr) + of.dstPos.x +
                     (of.dstPos.y + (of.dstPos.z + z) * of.dstPtr.ysize) * of.dstPtr.pitch;
    auto* const from = static_cast<char*>(of.srcPtr.ptr) + of.srcPos.x +
                       (of.srcPos.y + (of.srcPos.z + z) * of.srcPtr.ysize) * of.srcPtr.pitch;
    const cudaError_t status =
        copy_rows(to, of.dstPtr.pitch, from, of.srcPtr.pitch, of.extent.width, of.extent.height);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

namespace {

// CUDA's runtime API, synchronization behavior: a copy from the host's pageable memory has taken
// what is there when the call returns, one to it has ended then.
bool pageable(const void* address) {
  return range_of(address).begin == nullptr;
}

// CUDA programming guide, "Dynamic Global Memory Allocation and Operations": such memory cannot be
// used in calls of the runtime.
bool in_heap(const void* address) {
  const auto* const at = static_cast<const char*>(address);
  return at >= heap_of_kernels.begin && at < heap_of_kernels.begin + heap_of_kernels.bytes;
}

// CUDA runtime API, cudaMemcpy: pointers that do not match the direction. Pinned and managed memory
// is the host's and the GPU's.
bool mismatched(const void* to, const void* from, cudaMemcpyKind kind) {
  const auto fits = [](const void* address, bool on_gpu) {
    return on_gpu ? !pageable(address) : range_of(address).type != cudaMemoryTypeDevice;
  };
  if (in_heap(to) || in_heap(from)) return true;
  const bool from_gpu = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool to_gpu = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  return kind != cudaMemcpyDefault && !(fits(to, to_gpu) && fits(from, from_gpu));
}

cudaError_t not_matching(const void* to, const void* from) {
  const bool heap = in_heap(to) || in_heap(from);
  return remembered(cudaErrorInvalidValue,
                    heap ? "memory that a kernel has from malloc"
                         : "memory of the other side than its direction says");
}

cudaError_t copy_on(cudaStream_t stream, void* to, const void* from, size_t bytes) {
  const What what = copy_of(from, bytes, to, bytes);
  if (orders() && range_of(from).registered && !captures(stream) && !pageable(to)) {
    // It may share its pages with other memory of the host's, which cannot be protected.
    const auto* const first = static_cast<const char*>(from);
    const auto changed = [=, kept = std::vector<char>(first, first + bytes), pc = call_site()] {
      if (std::memcmp(from, kept.data(), bytes) != 0) {
        note_race(pc,
                  "what cudaMemcpyAsync reads was changed before it was read: nothing has made "
                  "the host wait");
      }
      return copy(to, from, bytes);
    };
    return submit(stream, changed, what);
  }
  if (captures(stream) || (!pageable(to) && !pageable(from))) {
    return submit(stream, [=] { return copy(to, from, bytes); }, what);
  }
  if (pageable(to) || from == nullptr) {
    return finish(enqueue(stream, [=] { return copy(to, from, bytes); }, of_gpus(what.gpus)));
  }
  const auto* const first = static_cast<const char*>(from);
  const auto kept_there = [to, kept = std::vector<char>(first, first + bytes)] {
    return copy(to, kept.data(), kept.size());
  };
  return submit(stream, kept_there, of_gpus(what.gpus));
}

cudaError_t copy_rows_on(cudaStream_t stream, void* to, size_t to_pitch, const void* from,
                         size_t from_pitch, size_t width, size_t rows) {
  const cudaError_t fits = rows_status(to, to_pitch, from, from_pitch, width, rows);
  if (fits != cudaSuccess) return remembered(fits);
  if (width == 0 || rows == 0) return cudaSuccess;
  const Work work = [=] { return copy_rows(to, to_pitch, from, from_pitch, width, rows); };
  const Gpus gpus = gpus_of(to) | gpus_of(from);
  if (!captures(stream) && pageable(to)) return finish(enqueue(stream, work, of_gpus(gpus)));
  if (!captures(stream) && pageable(from)) {
    std::vector<char> kept(width * rows);
    copy_rows(kept.data(), width, from, from_pitch, width, rows);
    const auto kept_there = [=, kept = std::move(kept)] {
      return copy_rows(to, to_pitch, kept.data(), width, width, rows);
    };
    return submit(stream, kept_there, of_gpus(gpus));
  }
  const size_t from_bytes = from_pitch * (rows - 1) + width;
  const size_t to_bytes = to_pitch * (rows - 1) + width;
  return submit(stream, work, copy_of(from, from_bytes, to, to_bytes));
}

cudaMemcpy3DParms box_between(const cudaMemcpy3DPeerParms& of) {
  return {of.srcArray, of.srcPos, of.srcPtr, of.dstArray,
          of.dstPos,   of.dstPtr, of.extent, cudaMemcpyDefault};
}

// Of hardware (two H200, CUDA 13.0): a stream fills memory of its device, and of that's peers.
bool fills(cudaStream_t stream, const void* to) {
  const Gpus of = gpus_of(to);
  return of == 0 || (of & reached_by(gpu_of(stream))) != 0;
}

cudaError_t not_filled(cudaStream_t stream, const void* to) {
  return remembered(cudaErrorInvalidValue, "memory" + words_of_gpu(range_of(to).gpu) +
                                               " in a stream" + words_of_gpu(gpu_of(stream)));
}

// Whether the host reaches it as well as the GPU does.
bool hosts(const void* address) {
  const cudaMemoryType type = range_of(address).type;
  return type == cudaMemoryTypeHost || type == cudaMemoryTypeManaged;
}

// By GPU, the pool from which its streams allocate.
auto& current_pools = *new std::map<int, cudaMemPool_t>;

cudaMemPool_t default_pool(int gpu) {
  static char each[kMostGpus];
  auto* const pool = reinterpret_cast<cudaMemPool_t>(&each[gpu]);
  pools.try_emplace(pool, Pool{gpu, only(gpu)});
  return pool;
}

cudaMemPool_t pool_of(int gpu) {
  const auto found = current_pools.find(gpu);
  return found != current_pools.end() ? found->second : default_pool(gpu);
}

// CUDA runtime API, stream-ordered allocation: the memory is there for what comes behind its
// allocation, until what comes ahead of its release.
cudaError_t allocate_on(cudaStream_t stream, void** address, size_t bytes,
                        cudaMemPool_t given = nullptr) {
  const cudaError_t status = allocate(address, bytes, cudaMemoryTypeDevice);
  if (status != cudaSuccess || bytes == 0) return status;
  {
    const std::lock_guard lock(allocating);
    Allocation& made = allocated[static_cast<char*>(*address)];
    made.pool = given != nullptr ? given : pool_of(gpu_of(stream));
    made.gpu = pools[made.pool].gpu;
  }
  if (captures(stream)) allocated_by_graph(*address);
  if (!orders()) return status;
  return submit(
      stream,
      [at = *address, bytes] {
        touched(at, bytes, true);
        return cudaSuccess;
      },
      of_memory(Kind::kAllocate, *address));
}

cudaError_t release_on(cudaStream_t stream, void* address) {
  // Until the graph is launched again.
  const bool stays = captures(stream) || freed_for_graphs(address);
  if (stays && !orders()) return cudaSuccess;
  if (!orders()) return submit(stream, [=] { return release(address); });
  return submit(
      stream,
      [address, stays] {
        const Range range = range_of(address);
        if (range.begin != address || address == nullptr) return release(address);
        touched(address, range.bytes, true);
        if (stays) return cudaSuccess;
        const std::lock_guard lock(allocating);
        allocated[range.begin].retired = true;
        return cudaSuccess;
      },
      of_memory(Kind::kFree, address));
}

// The place in a symbol's variable; null if there is none.
void* place_in(const void* symbol, size_t offset, size_t bytes) {
  const Variable* const variable = variable_of(symbol);
  if (variable == nullptr || offset + bytes > variable->bytes) return nullptr;
  return static_cast<char*>(variable->address) + offset;
}

// A copy or fill of the program has more bytes than it asks for: whether that is what it lacks.
const void* scaled_site = nullptr;
size_t scale = 1;

size_t scaled(size_t bytes) {
  return scaled_site != nullptr && call_site() == scaled_site ? bytes * scale : bytes;
}

constexpr size_t kPitch = 512;

// What programs have set of their pools; nothing is kept in a pool, so it changes nothing.
auto& pool_attributes = *new std::map<cudaMemPool_t, std::map<int, uint64_t>>;

// Of a pool, or of all memory.
size_t used_bytes(cudaMemPool_t pool = nullptr) {
  size_t used = 0;
  for (const auto& [address, each] : allocated) {
    if (pool == nullptr || (each.pool == pool && !each.retired)) used += each.bytes;
  }
  return used;
}

// CUDA runtime API, cudaMemPoolAttr: three switches, which are on, then figures of bytes.
cudaError_t pool_attribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value, bool set) {
  const std::lock_guard lock(allocating);
  const bool is_switch = attribute < cudaMemPoolAttrReleaseThreshold;
  const size_t bytes = is_switch ? sizeof(int) : sizeof(uint64_t);
  uint64_t found = is_switch;
  if (set) {
    found = 0;
    std::memcpy(&found, value, bytes);
    pool_attributes[pool][attribute] = found;
    return cudaSuccess;
  }
  const auto& known = pool_attributes[pool];
  if (const auto at = known.find(attribute); at != known.end()) {
    found = at->second;
  } else if (attribute > cudaMemPoolAttrReleaseThreshold) {
    found = used_bytes(pool);
  }
  std::memcpy(value, &found, bytes);
  return cudaSuccess;
}

}  // namespace

}  // namespace kb::cuda

using namespace kb::cuda;

extern "C" {

// ---- for the loader, and for torch's tensors ---------------------------------------------------

// Addresses and sizes of what is allocated for the GPU whose kernel runs, in the order in which it
// was; how much there is.
uint64_t kb_cudart_memory(uint64_t* addresses, uint64_t* sizes, uint64_t* numbers, uint64_t room) {
  const std::lock_guard lock(allocating);
  std::map<uint64_t, std::pair<char*, size_t>> in_order;
  for (const auto& [begin, each] : allocated) {
    if (lacks_for(each).empty()) in_order[each.number] = {begin, each.bytes};
  }
  uint64_t at = 0;
  for (const auto& [number, each] : in_order) {
    if (at == room) break;
    addresses[at] = reinterpret_cast<uint64_t>(each.first);
    numbers[at] = number;
    sizes[at++] = each.second;
  }
  return in_order.size();
}

// The library, and the place in it, where an allocation was asked for; null if nobody knows.
const char* kb_cudart_site(uint64_t number, uint64_t* offset) {
  const std::lock_guard lock(allocating);
  const auto found = sites.find(number);
  Dl_info info;
  if (found == sites.end() || found->second == nullptr) return nullptr;
  // A return address belongs to the instruction before it.
  const auto* const at = static_cast<const char*>(found->second) - 1;
  if (dladdr(at, &info) == 0) return nullptr;
  *offset = at - static_cast<const char*>(info.dli_fbase);
  return info.dli_fname;
}

void* kb_cudart_allocate(size_t bytes) {
  void* address = nullptr;
  allocate(&address, bytes, cudaMemoryTypeDevice);
  return address;
}

void kb_cudart_release(void* address) {
  release(address);
}

// ---- allocation --------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** address, size_t bytes) {
  KB_CALL;
  return allocate(address, bytes, cudaMemoryTypeDevice);
}
cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t stream) {
  KB_CALL;
  return allocate_on(stream, address, bytes);
}
cudaError_t cudaMallocFromPoolAsync(void** address, size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  KB_CALL;
  return allocate_on(stream, address, bytes, pool);
}
cudaError_t cudaMallocManaged(void** address, size_t bytes, unsigned) {
  KB_CALL;
  return allocate(address, bytes, cudaMemoryTypeManaged);
}
cudaError_t cudaMallocHost(void** address, size_t bytes) {
  KB_CALL;
  return allocate(address, bytes, cudaMemoryTypeHost);
}
cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned flags) {
  KB_CALL;
  const cudaError_t status = allocate(address, bytes, cudaMemoryTypeHost);
  const std::lock_guard lock(allocating);
  if (status == cudaSuccess && *address != nullptr) {
    allocated[static_cast<char*>(*address)].flags = flags;
  }
  return status;
}
cudaError_t cudaMallocPitch(void** address, size_t* pitch, size_t width, size_t height) {
  KB_CALL;
  *pitch = (width + kPitch - 1) / kPitch * kPitch;
  return allocate(address, *pitch * height, cudaMemoryTypeDevice);
}
cudaError_t cudaMalloc3D(cudaPitchedPtr* made, cudaExtent extent) {
  KB_CALL;
  *made = {nullptr, (extent.width + kPitch - 1) / kPitch * kPitch, extent.width, extent.height};
  return allocate(&made->ptr, made->pitch * extent.height * extent.depth, cudaMemoryTypeDevice);
}
// CUDA: frees wait for the device, and each frees what its own function has allocated.
// CUDA programming guide, "Stream Ordered Memory Allocator": cudaFree of such memory assumes that
// all accesses to it are complete, and performs no further synchronization.
static bool is_pooled(void* address) {
  const std::lock_guard lock(allocating);
  const auto found = allocated.find(static_cast<char*>(address));
  return found != allocated.end() && found->second.pool != nullptr;
}
static cudaError_t free_now(void* address, bool of_host) {
  const Range range = range_of(address);
  if (range.begin == address && address != nullptr &&
      (range.type == cudaMemoryTypeHost) != of_host) {
    return remembered(cudaErrorInvalidValue);
  }
  if (orders() && is_pooled(address)) return release_on(in_no_order(), address);
  range.type == cudaMemoryTypeDevice ? finish_gpu(range.gpu) : finish_all();
  return freed_for_graphs(address) ? cudaSuccess : release(address);
}
cudaError_t cudaFree(void* address) {
  KB_CALL;
  return free_now(address, false);
}
cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) {
  KB_CALL;
  return release_on(stream, address);
}
cudaError_t cudaFreeHost(void* address) {
  KB_CALL;
  return free_now(address, true);
}
cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned) {
  const std::lock_guard lock(allocating);
  allocated[static_cast<char*>(address)] = {bytes, cudaMemoryTypeHost, ++last_number, true};
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* address) {
  KB_CALL;
  finish_all();
  const std::lock_guard lock(allocating);
  const auto found = allocated.find(static_cast<char*>(address));
  if (found == allocated.end() || !found->second.registered) {
    return remembered(cudaErrorHostMemoryNotRegistered);
  }
  allocated.erase(found);
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** address, void* host, unsigned) {
  *address = host;
  return cudaSuccess;
}
cudaError_t cudaHostGetFlags(unsigned* flags, void* address) {
  KB_CALL;
  const std::lock_guard lock(allocating);
  const auto found = allocated.find(static_cast<char*>(address));
  if (found == allocated.end() || found->second.type != cudaMemoryTypeHost) {
    return remembered(cudaErrorInvalidValue);
  }
  *flags = found->second.flags;
  return cudaSuccess;
}

// ---- pools, which keep nothing -----------------------------------------------------------------

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int number) {
  KB_CALL;
  if (!has_gpu(number)) return remembered(cudaErrorInvalidDevice);
  const std::lock_guard lock(allocating);
  *pool = default_pool(number);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int number) {
  KB_CALL;
  if (!has_gpu(number)) return remembered(cudaErrorInvalidDevice);
  const std::lock_guard lock(allocating);
  *pool = pool_of(number);
  return cudaSuccess;
}
cudaError_t cudaDeviceSetMemPool(int number, cudaMemPool_t pool) {
  KB_CALL;
  if (!has_gpu(number)) return remembered(cudaErrorInvalidDevice);
  const std::lock_guard lock(allocating);
  current_pools[number] = pool;
  return cudaSuccess;
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* of) {
  KB_CALL;
  if (!has_gpu(of->location.id)) return remembered(cudaErrorInvalidDevice);
  const std::lock_guard lock(allocating);
  *pool = reinterpret_cast<cudaMemPool_t>(new char);
  pools[*pool] = {of->location.id, only(of->location.id)};
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  const std::lock_guard lock(allocating);
  pool_attributes.erase(pool);
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return pool_attribute(pool, attribute, value, true);
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return pool_attribute(pool, attribute, value, false);
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* all, size_t count) {
  KB_CALL;
  for (size_t at = 0; at < count; ++at) {
    if (!has_gpu(all[at].location.id)) return remembered(cudaErrorInvalidDevice);
  }
  const std::lock_guard lock(allocating);
  for (size_t at = 0; at < count; ++at) {
    const Gpus gpu = only(all[at].location.id);
    Gpus& let = pools[pool].let;
    let = all[at].flags == cudaMemAccessFlagsProtNone ? let & ~gpu : let | gpu;
  }
  return cudaSuccess;
}
cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t pool,
                                 cudaMemLocation* of) {
  KB_CALL;
  if (!has_gpu(of->id)) return remembered(cudaErrorInvalidDevice);
  const std::lock_guard lock(allocating);
  *flags = (pools[pool].let & only(of->id)) != 0 ? cudaMemAccessFlagsProtReadWrite
                                                 : cudaMemAccessFlagsProtNone;
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) {
  return cudaSuccess;
}

// ---- copies ------------------------------------------------------------------------------------

// CUDA runtime API, synchronization behavior: the host does not wait for copies within the device.
// Assumption: a copy from pageable memory has ended when the call returns, and not only been
// staged.
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  let_others_go_on();
  KB_CALL;
  bytes = scaled(bytes);
  if (bytes != 0 && mismatched(to, from, kind)) return not_matching(to, from);
  const Gpus gpus = gpus_of(to) | gpus_of(from);
  const Work work = [=] { return copy(to, from, bytes); };
  if (range_of(to).type == cudaMemoryTypeDevice && range_of(from).type == cudaMemoryTypeDevice) {
    return submit(nullptr, work, of_gpus(gpus));
  }
  return done_at_once(work, gpus);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  KB_CALL;
  bytes = scaled(bytes);
  if (bytes != 0 && mismatched(to, from, kind)) return not_matching(to, from);
  return copy_on(stream, to, from, bytes);
}
// CUDA runtime API, cudaMemcpyPeer: asynchronous with respect to the host.
cudaError_t cudaMemcpyPeer(void* to, int to_gpu, const void* from, int from_gpu, size_t bytes) {
  KB_CALL;
  if (!has_gpu(to_gpu) || !has_gpu(from_gpu)) return remembered(cudaErrorInvalidDevice);
  return copy_on(nullptr, to, from, bytes);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_gpu, const void* from, int from_gpu, size_t bytes,
                                cudaStream_t stream) {
  KB_CALL;
  if (!has_gpu(to_gpu) || !has_gpu(from_gpu)) return remembered(cudaErrorInvalidDevice);
  return copy_on(stream, to, from, bytes);
}
cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms* of, cudaStream_t stream) {
  KB_CALL;
  if (!has_gpu(of->srcDevice) || !has_gpu(of->dstDevice)) return remembered(cudaErrorInvalidDevice);
  const cudaMemcpy3DParms box = box_between(*of);
  return submit(stream, [box] { return copy_box(box); }, box_of(box));
}
cudaError_t cudaMemcpy3DPeer(const cudaMemcpy3DPeerParms* of) {
  KB_CALL;
  if (!has_gpu(of->srcDevice) || !has_gpu(of->dstDevice)) return remembered(cudaErrorInvalidDevice);
  return cudaMemcpy3DPeerAsync(of, nullptr);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  KB_CALL;
  if (mismatched(to, from, kind)) return not_matching(to, from);
  return done_at_once([=] { return copy_rows(to, to_pitch, from, from_pitch, width, height); },
                      gpus_of(to) | gpus_of(from));
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
  KB_CALL;
  if (mismatched(to, from, kind)) return not_matching(to, from);
  return copy_rows_on(stream, to, to_pitch, from, from_pitch, width, height);
}
cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* of) {
  KB_CALL;
  return done_at_once([of = *of] { return copy_box(of); }, box_of(*of).gpus);
}
cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* of, cudaStream_t stream) {
  KB_CALL;
  const Work work = [of = *of] { return copy_box(of); };
  const bool arrays = of->srcArray != nullptr || of->dstArray != nullptr;
  const bool waits = !arrays && (pageable(of->dstPtr.ptr) || pageable(of->srcPtr.ptr));
  return waits && !captures(stream) ? finish(enqueue(stream, work, of_gpus(box_of(*of).gpus)))
                                    : submit(stream, work, box_of(*of));
}
// CUDA runtime API, synchronization behavior: the host waits where the memory is its own, too.
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  KB_CALL;
  const cudaError_t status = cudaMemsetAsync(to, value, bytes, nullptr);
  return status == cudaSuccess && hosts(to) ? cudaStreamSynchronize(nullptr) : status;
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  KB_CALL;
  bytes = scaled(bytes);
  if (!fills(stream, to)) return not_filled(stream, to);
  return submit(stream, [=] { return fill(to, value, bytes); },
                {Kind::kTransfer, "", false, {{to, bytes, true}}});
}
cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  KB_CALL;
  const cudaError_t status = cudaMemset2DAsync(to, pitch, value, width, height, nullptr);
  return status == cudaSuccess && hosts(to) ? cudaStreamSynchronize(nullptr) : status;
}
cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream) {
  KB_CALL;
  if (!fills(stream, to)) return not_filled(stream, to);
  return submit(stream, [=] { return fill_rows(to, pitch, value, width, height); });
}

cudaError_t cudaMemset3DAsync(cudaPitchedPtr to, int value, cudaExtent extent,
                              cudaStream_t stream) {
  KB_CALL;
  if (!fills(stream, to.ptr)) return not_filled(stream, to.ptr);
  return submit(stream, [=] {
    for (size_t z = 0; z < extent.depth; ++z) {
      char* const slice = static_cast<char*>(to.ptr) + z * to.ysize * to.pitch;
      const cudaError_t status = fill_rows(slice, to.pitch, value, extent.width, extent.height);
      if (status != cudaSuccess) return status;
    }
    return cudaSuccess;
  });
}
cudaError_t cudaMemset3D(cudaPitchedPtr to, int value, cudaExtent extent) {
  KB_CALL;
  return cudaMemset3DAsync(to, value, extent, nullptr);
}

// ---- variables ---------------------------------------------------------------------------------

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  KB_CALL;
  *address = place_in(symbol, 0, 0);
  return *address != nullptr ? cudaSuccess : remembered(cudaErrorInvalidSymbol);
}
cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
  KB_CALL;
  const Variable* const variable = variable_of(symbol);
  if (variable == nullptr) return remembered(cudaErrorInvalidSymbol);
  *bytes = variable->bytes;
  return cudaSuccess;
}
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes,
                                    size_t offset, cudaMemcpyKind, cudaStream_t stream) {
  KB_CALL;
  void* const to = place_in(symbol, offset, bytes);
  if (to == nullptr) return remembered(cudaErrorInvalidSymbol);
  return copy_on(stream, to, from, bytes);
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                               cudaMemcpyKind kind) {
  KB_CALL;
  const cudaError_t status = cudaMemcpyToSymbolAsync(symbol, from, bytes, offset, kind, nullptr);
  return status == cudaSuccess ? cudaStreamSynchronize(nullptr) : status;
}
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset,
                                      cudaMemcpyKind, cudaStream_t stream) {
  KB_CALL;
  void* const from = place_in(symbol, offset, bytes);
  if (from == nullptr) return remembered(cudaErrorInvalidSymbol);
  return copy_on(stream, to, from, bytes);
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset,
                                 cudaMemcpyKind kind) {
  KB_CALL;
  const cudaError_t status = cudaMemcpyFromSymbolAsync(to, symbol, bytes, offset, kind, nullptr);
  return status == cudaSuccess ? cudaStreamSynchronize(nullptr) : status;
}

// ---- questions and hints -----------------------------------------------------------------------

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = size_t{1} << 34;
  const std::lock_guard lock(allocating);
  *free = *total - std::min(*total, used_bytes());
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  std::memset(attributes, 0, sizeof *attributes);
  const Range range = range_of(address);
  attributes->type = range.type;
  attributes->device = range.begin != nullptr ? range.gpu : cudaInvalidDeviceId;
  if (attributes->type != cudaMemoryTypeUnregistered) {
    attributes->devicePointer = const_cast<void*>(address);
  }
  if (attributes->type != cudaMemoryTypeDevice) {
    attributes->hostPointer = const_cast<void*>(address);
  }
  return cudaSuccess;
}
#if CUDART_VERSION >= 13000
cudaError_t cudaMemPrefetchAsync(const void*, size_t, cudaMemLocation, unsigned, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, cudaMemLocation) {
  return cudaSuccess;
}
#else
cudaError_t cudaMemPrefetchAsync(const void*, size_t, int, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, int) {
  return cudaSuccess;
}
#endif

// Copies and fills from there on have so many times their bytes.
void kb_cudart_scale(const void* site, size_t by) {
  scaled_site = site;
  scale = by;
}

}  // extern "C"
