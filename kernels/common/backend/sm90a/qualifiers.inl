// Function qualifiers of CUDA C++.
#pragma once

#define KB_DEVICE __device__ __forceinline__
// For what is rarely needed: kept out of the code around its calls.
#define KB_DEVICE_APART static __device__ __noinline__
#define KB_HOST_DEVICE __host__ __device__ __forceinline__
#define KB_GLOBAL __global__
// A parameter whose address a kernel may take: of a type that need not be copied per thread.
#define KB_GRID_CONSTANT(T) const __grid_constant__ T
#define KB_LAUNCH_BOUNDS(threads, ctas_per_sm) __launch_bounds__(threads, ctas_per_sm)
