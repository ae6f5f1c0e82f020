// Before every file of a torch extension for the emulator: tensors of the GPU are tensors of the
// CPU. All headers of torch that the file includes come before this one.
#pragma once

#include <c10/cuda/CUDAGuard.h>
#include <torch/types.h>

#define is_cuda is_cpu
#define kCUDA kCPU
// Methods: `at::cuda` and `torch::cuda` are followed by no parenthesis.
#define cuda() cpu()
// Of a tensor on the GPU it is 0, on the CPU -1.
#define get_device() is_cpu() - 1
