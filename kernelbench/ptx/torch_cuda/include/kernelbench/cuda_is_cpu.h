// Before every file of a torch extension for the emulator: tensors of the GPU are tensors of the
// CPU. Torch's own headers come first, since they mean what they say.
#pragma once

#ifdef KERNELBENCH_WHOLE_EXTENSION
#include <torch/extension.h>
#else
#include <torch/types.h>
#endif
#include <c10/cuda/CUDAGuard.h>

#define is_cuda is_cpu
#define kCUDA kCPU
// Methods: `at::cuda` and `torch::cuda` are followed by no parenthesis.
#define cuda() cpu()
// Of a tensor on the GPU it is 0, on the CPU -1.
#define get_device() is_cpu() - 1
