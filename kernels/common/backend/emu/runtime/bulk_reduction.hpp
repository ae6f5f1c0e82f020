// What a bulk copy out of shared memory does with each element of its destination: replaces it, or
// cp.reduce.async.bulk (PTX ISA 9.1, 9.7.9.25).
#pragma once

#include <cstddef>
#include <cstdint>

namespace kb::emu {

enum class BulkOperation : uint32_t { kCopy, kAdd, kMin, kMax, kInc, kDec, kAnd, kOr, kXor };
enum class BulkElement : uint32_t { kF16, kBf16, kF32, kF64, kU32, kS32, kU64, kS64 };

struct BulkReduction {
  BulkOperation operation = BulkOperation::kCopy;
  BulkElement element = BulkElement::kU32;
};

// Whether the operation is one of the element's.
bool has_operation(const BulkReduction& reduction);
// `bytes` from `from` into global memory, whole elements of it, each atomic by itself.
void reduce_into(std::byte* to, const std::byte* from, size_t bytes,
                 const BulkReduction& reduction);

}  // namespace kb::emu
