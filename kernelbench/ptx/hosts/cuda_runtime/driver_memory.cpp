// Memory by the driver's functions, and virtual memory: addresses are reserved, and memory is
// mapped there.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "order.hpp"
#include "state.hpp"

namespace kb::cuda {

namespace {

CUdeviceptr number_of(void* address) {
  return reinterpret_cast<CUdeviceptr>(address);
}
void* pointer_of(CUdeviceptr number) {
  return reinterpret_cast<void*>(number);
}

// Numbers of two or four bytes, one behind the other.
template <typename Value>
CUresult fill_with(CUdeviceptr to, Value value, size_t count, CUstream stream) {
  return result(submit(stream, [=] {
    for (size_t at = 0; at < count; ++at) {
      const cudaError_t status = copy(pointer_of(to + sizeof value * at), &value, sizeof value);
      if (status != cudaSuccess) return status;
    }
    return cudaSuccess;
  }));
}

// What cuMemCreate has made: a file without a name, so that it can be mapped more than once.
struct Physical {
  int file;
  size_t bytes;
  unsigned users;  // its handle, and its mappings
};
struct Mapping {
  Physical* memory;
  size_t bytes;
  Gpus gpus;  // cuMemSetAccess
};
struct Run {
  size_t bytes;
  Gpus gpus;
  bool operator==(const Run&) const = default;
};
constexpr size_t kGranularity = size_t{2} << 20;
std::map<CUdeviceptr, size_t> reserved;  // bytes
std::map<CUdeviceptr, Mapping> mappings;
std::map<CUdeviceptr, Run> runs;  // mappings side by side, as one allocation each

void let_go(Physical* of) {
  if (--of->users > 0) return;
  close(of->file);
  delete of;
}

// After a change within a reservation: what is accessible and side by side is one allocation.
void list_runs(CUdeviceptr address) {
  const auto reservation = std::prev(reserved.upper_bound(address));
  const CUdeviceptr end = reservation->first + reservation->second;
  std::map<CUdeviceptr, Run> now;
  for (auto at = mappings.lower_bound(reservation->first); at != mappings.end() && at->first < end;
       ++at) {
    const auto& [memory, size, gpus] = at->second;
    if (gpus == 0) continue;
    const auto last = now.empty() ? now.end() : std::prev(now.end());
    const bool beside = last != now.end() && last->first + last->second.bytes == at->first &&
                        last->second.gpus == gpus;
    Run& run = beside ? last->second : now[at->first];
    run = {run.bytes + size, gpus};
  }
  for (auto at = runs.lower_bound(reservation->first); at != runs.end() && at->first < end;) {
    const auto same = now.find(at->first);
    if (same != now.end() && same->second == at->second) {
      now.erase(same);
      ++at;
    } else {
      mapped(pointer_of(at->first), at->second.bytes, 0);
      at = runs.erase(at);
    }
  }
  for (const auto& [begin, run] : now) mapped(pointer_of(begin), run.bytes, run.gpus);
  runs.merge(now);
}

bool is_reserved(CUdeviceptr address, size_t bytes) {
  const auto after = reserved.upper_bound(address);
  if (after == reserved.begin()) return false;
  const auto& [begin, size] = *std::prev(after);
  return address + bytes <= begin + size;
}

// The mappings that a range is made of; nothing unless it is made of whole ones.
std::vector<CUdeviceptr> mappings_of(CUdeviceptr address, size_t bytes) {
  std::vector<CUdeviceptr> found;
  const CUdeviceptr end = address + bytes;
  while (address < end) {
    const auto at = mappings.find(address);
    if (at == mappings.end() || address + at->second.bytes > end) return {};
    found.push_back(address);
    address += at->second.bytes;
  }
  return found;
}

}  // namespace

}  // namespace kb::cuda

using namespace kb::cuda;

extern "C" {

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  void* made = nullptr;
  const cudaError_t status = allocate(&made, bytes, cudaMemoryTypeDevice);
  *address = number_of(made);
  return result(status);
}
CUresult cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned) {
  void* made = nullptr;
  const cudaError_t status = allocate(&made, bytes, cudaMemoryTypeManaged);
  *address = number_of(made);
  return result(status);
}
CUresult cuMemFree(CUdeviceptr address) {
  return result(cudaFree(pointer_of(address)));
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  KB_CALL;
  return result(cudaMemcpy(pointer_of(to), from, bytes, cudaMemcpyDefault));
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  KB_CALL;
  return result(cudaMemcpy(to, pointer_of(from), bytes, cudaMemcpyDefault));
}
CUresult cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  KB_CALL;
  return result(cudaMemcpy(pointer_of(to), pointer_of(from), bytes, cudaMemcpyDefault));
}
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  KB_CALL;
  return result(cudaMemcpyAsync(pointer_of(to), from, bytes, cudaMemcpyDefault, stream));
}
CUresult cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  KB_CALL;
  return result(cudaMemcpyAsync(to, pointer_of(from), bytes, cudaMemcpyDefault, stream));
}
CUresult cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count) {
  KB_CALL;
  return result(cudaMemset(pointer_of(to), value, count));
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  KB_CALL;
  return result(cudaMemsetAsync(pointer_of(to), value, count, stream));
}
CUresult cuMemsetD16(CUdeviceptr to, unsigned short value, size_t count) {
  KB_CALL;
  return fill_with(to, value, count, nullptr);
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  KB_CALL;
  return fill_with(to, value, count, stream);
}
CUresult cuMemsetD32(CUdeviceptr to, unsigned value, size_t count) {
  KB_CALL;
  return fill_with(to, value, count, nullptr);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  KB_CALL;
  return fill_with(to, value, count, stream);
}
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  KB_CALL;
  return result(cudaMemcpy(pointer_of(to), pointer_of(from), bytes, cudaMemcpyDefault));
}
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  KB_CALL;
  return result(
      cudaMemcpyAsync(pointer_of(to), pointer_of(from), bytes, cudaMemcpyDefault, stream));
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  KB_CALL;
  return cuMemcpyAsync(to, from, bytes, stream);
}
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, size_t bytes) {
  KB_CALL;
  return result(cudaMemcpyPeer(pointer_of(to), gpu_of_context(to_context), pointer_of(from),
                               gpu_of_context(from_context), bytes));
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t bytes, CUstream stream) {
  KB_CALL;
  return result(cudaMemcpyPeerAsync(pointer_of(to), gpu_of_context(to_context), pointer_of(from),
                                    gpu_of_context(from_context), bytes, stream));
}
CUresult cuMemAllocHost(void** address, size_t bytes) {
  KB_CALL;
  return result(cudaMallocHost(address, bytes));
}
CUresult cuMemHostAlloc(void** address, size_t bytes, unsigned flags) {
  KB_CALL;
  return result(cudaHostAlloc(address, bytes, flags));
}
CUresult cuMemFreeHost(void* address) {
  return result(cudaFreeHost(address));
}
CUresult cuMemHostRegister(void* address, size_t bytes, unsigned flags) {
  return result(cudaHostRegister(address, bytes, flags));
}
CUresult cuMemHostUnregister(void* address) {
  return result(cudaHostUnregister(address));
}
CUresult cuMemHostGetDevicePointer(CUdeviceptr* address, void* host, unsigned) {
  *address = number_of(host);
  return CUDA_SUCCESS;
}
CUresult cuMemAllocPitch(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                         unsigned) {
  KB_CALL;
  void* made = nullptr;
  const cudaError_t status = cudaMallocPitch(&made, pitch, width, height);
  *address = number_of(made);
  return result(status);
}
CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  KB_CALL;
  void* made = nullptr;
  const cudaError_t status = cudaMallocAsync(&made, bytes, stream);
  *address = number_of(made);
  return result(status);
}
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  KB_CALL;
  return result(cudaFreeAsync(pointer_of(address), stream));
}
CUresult cuMemGetInfo(size_t* free, size_t* total) {
  return result(cudaMemGetInfo(free, total));
}
CUresult cuMemGetAddressRange(CUdeviceptr* begin, size_t* bytes, CUdeviceptr address) {
  const Range range = range_of(pointer_of(address));
  if (range.begin == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (begin != nullptr) *begin = number_of(range.begin);
  if (bytes != nullptr) *bytes = range.bytes;
  return CUDA_SUCCESS;
}

// ---- virtual memory ----------------------------------------------------------------------------
// CUDA driver API, virtual memory management: mapped memory can be accessed after cuMemSetAccess,
// and lives as long as its handle or a mapping of it.

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *bytes = kGranularity;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long) {
  KB_ONE_CALL;
  if (bytes == 0 || bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  const size_t aligned = std::max(alignment, kGranularity);
  void* const found =
      mmap(nullptr, bytes + aligned, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = (number_of(found) + aligned - 1) / aligned * aligned;
  reserved[*address] = bytes;
  return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  KB_ONE_CALL;
  const auto found = reserved.find(address);
  const auto first = mappings.lower_bound(address);
  if (found == reserved.end() || found->second != bytes ||
      (first != mappings.end() && first->first < address + bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  munmap(pointer_of(address), bytes);
  reserved.erase(found);
  return CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp*,
                     unsigned long long) {
  if (bytes == 0 || bytes % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  const int file = memfd_create("kernelbench", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  void* const whole = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (whole == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  std::memset(whole, fresh_bytes(), bytes);  // as other memory of the GPU begins
  munmap(whole, bytes);
  *handle = reinterpret_cast<CUmemGenericAllocationHandle>(new Physical{file, bytes, 1});
  return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  KB_ONE_CALL;
  let_go(reinterpret_cast<Physical*>(handle));
  return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  KB_ONE_CALL;
  auto* const memory = reinterpret_cast<Physical*>(handle);
  if (bytes == 0 || offset + bytes > memory->bytes || !is_reserved(address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  void* const at = mmap(pointer_of(address), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                        memory->file, static_cast<off_t>(offset));
  if (at == MAP_FAILED) return CUDA_ERROR_INVALID_VALUE;
  ++memory->users;
  mappings[address] = {memory, bytes, 0};
  return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access,
                        size_t count) {
  KB_CALL;
  const std::vector<CUdeviceptr> found = mappings_of(address, bytes);
  if (found.empty()) return CUDA_ERROR_INVALID_VALUE;
  for (size_t at = 0; at < count; ++at) {
    if (!has_gpu(access[at].location.id)) return CUDA_ERROR_INVALID_DEVICE;
    const Gpus gpu = only(access[at].location.id);
    const bool there = access[at].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    for (const CUdeviceptr each : found) {
      Gpus& gpus = mappings[each].gpus;
      gpus = there ? gpus | gpu : gpus & ~gpu;
    }
  }
  list_runs(address);
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  KB_ONE_CALL;
  const std::vector<CUdeviceptr> found = mappings_of(address, bytes);
  if (found.empty()) return CUDA_ERROR_INVALID_VALUE;
  finish_all();
  for (const CUdeviceptr each : found) {
    let_go(mappings[each].memory);
    mappings.erase(each);
  }
  list_runs(address);
  mmap(pointer_of(address), bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return CUDA_SUCCESS;
}

}  // extern "C"
