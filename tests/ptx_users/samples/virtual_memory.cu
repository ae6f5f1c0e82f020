// Addresses are reserved, memory is mapped there.
#include <cuda.h>

#include "sample.h"
__global__ void fill(int* data) {
  data[threadIdx.x] = threadIdx.x;
}
int main() {
  CHECK(cudaFree(nullptr));
  CUmemAllocationProp prop = {};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED, prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  size_t size;
  if (cuMemGetAllocationGranularity(&size, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM)) return 1;
  CUdeviceptr at;
  CUmemGenericAllocationHandle handle;
  if (cuMemAddressReserve(&at, size, 0, 0, 0) || cuMemCreate(&handle, size, &prop, 0)) return 1;
  CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  if (cuMemMap(at, size, 0, handle, 0) || cuMemSetAccess(at, size, &access, 1)) return 1;
  fill<<<1, 32>>>(reinterpret_cast<int*>(at));
  int here[32];
  CHECK(cudaMemcpy(here, reinterpret_cast<int*>(at), 128, cudaMemcpyDeviceToHost));
  if (cuMemUnmap(at, size) || cuMemRelease(handle) || cuMemAddressFree(at, size)) return 1;
  return verdict(here[31] == 31);
}
