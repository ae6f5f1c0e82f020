// A tile through shared memory by TMA, with a tensor map that the driver's function encodes. The
// function is found as CUTLASS does it.
#include <cuda.h>

#include <cstdint>
#include <cstdio>

constexpr int kRows = 32, kColumns = 64, kTileRows = 16, kTileColumns = 32;

__device__ uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

__global__ void add_one(const __grid_constant__ CUtensorMap in,
                        const __grid_constant__ CUtensorMap out) {
  alignas(128) __shared__ float tile[kTileRows * kTileColumns];
  __shared__ uint64_t bar;
  const int x = blockIdx.x * kTileColumns, y = blockIdx.y * kTileRows;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&bar)));
    asm volatile("fence.mbarrier_init.release.cluster;");
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&bar)),
        "r"(static_cast<uint32_t>(sizeof tile))
        : "memory");
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(tile)),
        "l"(&in), "r"(x), "r"(y), "r"(shared_address(&bar))
        : "memory");
  }
  __syncthreads();
  asm volatile(
      "{\n.reg .pred p;\nwaiting:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\n@!p bra waiting;\n}" ::"r"(
          shared_address(&bar))
      : "memory");
  for (int i = threadIdx.x; i < kTileRows * kTileColumns; i += blockDim.x) tile[i] += 1;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(
            &out),
        "r"(x), "r"(y), "r"(shared_address(tile))
        : "memory");
    asm volatile("cp.async.bulk.commit_group;");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}

bool encode(CUtensorMap* map, float* data, cuuint32_t columns) {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                   &found);
  if (found != cudaDriverEntryPointSuccess) return false;
  const cuuint64_t dims[] = {kColumns, kRows}, strides[] = {kColumns * sizeof(float)};
  const cuuint32_t box[] = {columns, kTileRows}, steps[] = {1, 1};
  return reinterpret_cast<Encode>(function)(
             map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, data, dims, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

int main() {
  static float host[kRows * kColumns];
  for (int i = 0; i < kRows * kColumns; ++i) host[i] = float(i);
  float *in, *out;
  cudaMalloc(&in, sizeof host);
  cudaMalloc(&out, sizeof host);
  cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice);
  CUtensorMap from, to;
  if (!encode(&from, in, kTileColumns) || !encode(&to, out, kTileColumns)) return 1;
  // 12 bytes a row: the driver wants a multiple of 16.
  CUtensorMap none;
  if (encode(&none, in, 3)) return 2;
  add_one<<<dim3(kColumns / kTileColumns, kRows / kTileRows), 128>>>(from, to);
  if (cudaDeviceSynchronize() != cudaSuccess) return 3;
  cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
  for (int i = 0; i < kRows * kColumns; ++i) {
    if (host[i] != float(i) + 1) return 4;
  }
  return 0;
}
