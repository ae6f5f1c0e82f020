// Boxes of tensors of every type that a tensor map can have here, by their bytes.
#include <cuda.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

constexpr int kRows = 16, kPitch = 96, kBoxRows = 8, kBoxBytes = 32;

__device__ uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

__global__ void copy_box(const __grid_constant__ CUtensorMap in, int x, int y, uint8_t* out) {
  alignas(128) __shared__ uint8_t box[kBoxRows * kBoxBytes];
  __shared__ uint64_t bar;
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&bar)));
    asm volatile("fence.mbarrier_init.release.cluster;");
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&bar)),
        "r"(static_cast<uint32_t>(sizeof box))
        : "memory");
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(box)),
        "l"(&in), "r"(x), "r"(y), "r"(shared_address(&bar))
        : "memory");
  }
  __syncthreads();
  asm volatile(
      "{\n.reg .pred p;\nwaiting:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\n@!p bra waiting;\n}" ::"r"(
          shared_address(&bar))
      : "memory");
  for (int i = threadIdx.x; i < kBoxRows * kBoxBytes; i += blockDim.x) out[i] = box[i];
}

struct Type {
  CUtensorMapDataType of;
  int bits;
};
constexpr Type kTypes[] = {
    {CU_TENSOR_MAP_DATA_TYPE_UINT8, 8},        {CU_TENSOR_MAP_DATA_TYPE_UINT16, 16},
    {CU_TENSOR_MAP_DATA_TYPE_INT32, 32},       {CU_TENSOR_MAP_DATA_TYPE_INT64, 64},
    {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 16},     {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 32},
    {CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 64},     {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 16},
    {CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ, 32}, {CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B, 4},
    {CU_TENSOR_MAP_DATA_TYPE_TFLOAT32, 32},    {CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ, 32}};

// A byte as it comes to shared memory: of tf32 the words are rounded, to nearest.
uint8_t arrived(CUtensorMapDataType of, const uint8_t* row, int column) {
  const bool flushes = of == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ;
  if (!flushes && of != CU_TENSOR_MAP_DATA_TYPE_TFLOAT32) return row[column];
  uint32_t word;
  std::memcpy(&word, row + column / 4 * 4, 4);
  if (flushes && (word >> 23 & 0xff) == 0) word &= 0x80000000u;
  word = (word + 0xfff + (word >> 13 & 1)) & ~0x1fffu;
  return static_cast<uint8_t>(word >> 8 * (column % 4));
}

int main() {
  uint8_t host[kRows * kPitch], found[kBoxRows * kBoxBytes];
  for (int i = 0; i < kRows * kPitch; ++i) host[i] = static_cast<uint8_t>(i * 7 + i / 256);
  uint8_t *in, *out;
  cudaMalloc(&in, sizeof host);
  cudaMalloc(&out, sizeof found);
  cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice);
  for (const Type& type : kTypes) {
    const auto elements = [&](int bytes) { return static_cast<cuuint32_t>(bytes * 8 / type.bits); };
    const cuuint64_t dims[] = {elements(kPitch), kRows}, strides[] = {kPitch};
    const cuuint32_t box[] = {elements(kBoxBytes), kBoxRows}, steps[] = {1, 1};
    CUtensorMap map;
    if (cuTensorMapEncodeTiled(&map, type.of, 2, in, dims, strides, box, steps,
                               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                               CU_TENSOR_MAP_L2_PROMOTION_NONE,
                               CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
      return 1;
    }
    // The second box leaves the tensor in the middle, and has zeros there.
    for (int x : {16, kPitch - kBoxBytes / 2}) {
      copy_box<<<1, 64>>>(map, static_cast<int>(elements(x)), 4, out);
      cudaMemcpy(found, out, sizeof found, cudaMemcpyDeviceToHost);
      for (int i = 0; i < kBoxRows * kBoxBytes; ++i) {
        const int row = 4 + i / kBoxBytes, column = x + i % kBoxBytes;
        const uint8_t* from = host + row * kPitch;
        if (found[i] != (column < kPitch ? arrived(type.of, from, column) : 0)) {
          std::printf("type %d, byte %d\n", static_cast<int>(type.of), i);
          return 2;
        }
      }
    }
  }
  return 0;
}
