"""What launches kernels: CUDA programs and extensions, Triton and CuTe DSL, on a CUDA runtime that
stands in for NVIDIA's."""
