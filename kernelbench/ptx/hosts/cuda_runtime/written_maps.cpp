// Tensor maps that host code writes itself, as CuTe DSL's does, instead of asking the driver.
//
// NVIDIA documents no layout; this one was read from what CuTe DSL 4.8.1 writes for 30 tensors of
// rank 1 to 5, all swizzles and 13 types: 64-bit words
//
//   0  address
//   1  2, rank - 1 from bit 4, type from 7, swizzle from 13; from 32 the first stride / 16
//   2  the second and third stride / 16, 32 bits each; 3: the fourth
//   4  extents - 1 of the first two dimensions, 32 bits each; 5: of the next two
//   6  extent - 1 of the last, from bit 56 the box's extent - 1 of the first dimension
//   7  those of the others, 8 bits each; the other eight words are not written
#include "written_maps.hpp"

namespace kb::cuda {

namespace {

constexpr int kUnknown = -1;
// The type by its code; 3, 5 and 8 were not seen. 11 has two elements in a byte.
constexpr int kTypes[16] = {CU_TENSOR_MAP_DATA_TYPE_UINT8,
                            CU_TENSOR_MAP_DATA_TYPE_UINT16,
                            CU_TENSOR_MAP_DATA_TYPE_UINT32,
                            kUnknown,
                            CU_TENSOR_MAP_DATA_TYPE_UINT64,
                            kUnknown,
                            CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                            CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
                            kUnknown,
                            CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
                            CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                            CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B,
                            kUnknown,
                            kUnknown,
                            kUnknown,
                            kUnknown};

uint64_t bits(uint64_t word, unsigned first, unsigned count) {
  return word >> first & ((uint64_t{1} << count) - 1);
}

}  // namespace

bool is_written_map(const uint64_t (&words)[8]) {
  return bits(words[1], 0, 4) == 2 && bits(words[1], 4, 3) < 5 && words[3] >> 32 == 0 &&
         words[7] >> 32 == 0 && bits(words[0], 0, 4) == 0;
}

CUresult encode_written_map(CUtensorMap* map, const uint64_t (&words)[8]) {
  const auto code = static_cast<unsigned>(bits(words[1], 7, 4));
  const uint64_t rounding = bits(words[1], 16, 1);
  const uint64_t element_strides = bits(words[6], 32, 15);
  if (kTypes[code] == kUnknown || rounding != 0 || element_strides != 0) {
    return static_cast<CUresult>(not_here("a tensor map that host code has written, of type " +
                                          std::to_string(code) +
                                          (rounding != 0 ? " with rounding to tf32" : "")));
  }
  const auto rank = static_cast<cuuint32_t>(bits(words[1], 4, 3) + 1);
  const cuuint64_t dims[5] = {bits(words[4], 0, 32) + 1, (words[4] >> 32) + 1,
                              bits(words[5], 0, 32) + 1, (words[5] >> 32) + 1,
                              bits(words[6], 0, 32) + 1};
  const cuuint64_t strides[4] = {(words[1] >> 32) * 16, bits(words[2], 0, 32) * 16,
                                 (words[2] >> 32) * 16, bits(words[3], 0, 32) * 16};
  cuuint32_t box[5] = {static_cast<cuuint32_t>(words[6] >> 56) + 1};
  for (unsigned at = 1; at < 5; ++at) {
    box[at] = static_cast<cuuint32_t>(bits(words[7], 8 * (at - 1), 8) + 1);
  }
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  return cuTensorMapEncodeTiled(map, static_cast<CUtensorMapDataType>(kTypes[code]), rank,
                                reinterpret_cast<void*>(words[0]), dims, strides, box, steps,
                                CU_TENSOR_MAP_INTERLEAVE_NONE,
                                static_cast<CUtensorMapSwizzle>(bits(words[1], 13, 2)),
                                CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace kb::cuda
