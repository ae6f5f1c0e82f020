// Function qualifiers of CUDA C++.
#pragma once

#define KB_DEVICE __device__ __forceinline__
#define KB_HOST_DEVICE __host__ __device__ __forceinline__
#define KB_GLOBAL __global__
#define KB_GRID_CONSTANT __grid_constant__
#define KB_LAUNCH_BOUNDS(threads, ctas_per_sm) __launch_bounds__(threads, ctas_per_sm)
