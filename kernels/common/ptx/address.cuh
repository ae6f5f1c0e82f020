// Addresses of shared memory as instructions and descriptors want them: PTX ISA 9.1, 9.7.9 (cvta).
#pragma once

#include "types.cuh"

namespace kb::ptx {

// PTX: cvta.to.shared.u64 address, pointer;
// every SM · any thread. Orders nothing.
// Byte address of a pointer into the CTA's shared memory. In a cluster launch it may carry the
// CTA's rank above bit 23: descriptors keep the low 18 bits only.
KB_DEVICE uint32_t smem_address(const void* pointer);

}  // namespace kb::ptx

#include "address.inl"
