// cuFFT for a machine without NVIDIA's header: what cuda_runtime/cufft.cpp has of it. Names, values
// and signatures are those of cuFFT's documentation.
#if __has_include_next(<cufft.h>)
#include_next <cufft.h>
#else
#pragma once
#include <cuComplex.h>
#include <cuda_runtime_api.h>

typedef int cufftHandle;
typedef float cufftReal;
typedef double cufftDoubleReal;
typedef cuComplex cufftComplex;
typedef cuDoubleComplex cufftDoubleComplex;
typedef enum {
  CUFFT_SUCCESS = 0,
  CUFFT_INVALID_PLAN = 1,
  CUFFT_ALLOC_FAILED = 2,
  CUFFT_INVALID_TYPE = 3,
  CUFFT_INVALID_VALUE = 4,
  CUFFT_INTERNAL_ERROR = 5,
  CUFFT_EXEC_FAILED = 6,
  CUFFT_SETUP_FAILED = 7,
  CUFFT_INVALID_SIZE = 8,
  CUFFT_NOT_SUPPORTED = 16
} cufftResult;
typedef enum {
  CUFFT_R2C = 0x2a,
  CUFFT_C2R = 0x2c,
  CUFFT_C2C = 0x29,
  CUFFT_D2Z = 0x6a,
  CUFFT_Z2D = 0x6c,
  CUFFT_Z2Z = 0x69
} cufftType;
#define CUFFT_FORWARD -1
#define CUFFT_INVERSE 1

#ifdef __cplusplus
extern "C" {
#endif
cufftResult cufftGetVersion(int*);
cufftResult cufftCreate(cufftHandle*);
cufftResult cufftDestroy(cufftHandle);
cufftResult cufftPlan1d(cufftHandle*, int, cufftType, int);
cufftResult cufftPlan2d(cufftHandle*, int, int, cufftType);
cufftResult cufftPlan3d(cufftHandle*, int, int, int, cufftType);
cufftResult cufftPlanMany(cufftHandle*, int, int*, int*, int, int, int*, int, int, cufftType, int);
cufftResult cufftMakePlan1d(cufftHandle, int, cufftType, int, size_t*);
cufftResult cufftMakePlan2d(cufftHandle, int, int, cufftType, size_t*);
cufftResult cufftMakePlan3d(cufftHandle, int, int, int, cufftType, size_t*);
cufftResult cufftMakePlanMany(cufftHandle, int, int*, int*, int, int, int*, int, int, cufftType,
                              int, size_t*);
cufftResult cufftSetStream(cufftHandle, cudaStream_t);
cufftResult cufftGetSize(cufftHandle, size_t*);
cufftResult cufftSetAutoAllocation(cufftHandle, int);
cufftResult cufftSetWorkArea(cufftHandle, void*);
cufftResult cufftExecC2C(cufftHandle, cufftComplex*, cufftComplex*, int);
cufftResult cufftExecR2C(cufftHandle, cufftReal*, cufftComplex*);
cufftResult cufftExecC2R(cufftHandle, cufftComplex*, cufftReal*);
cufftResult cufftExecZ2Z(cufftHandle, cufftDoubleComplex*, cufftDoubleComplex*, int);
cufftResult cufftExecD2Z(cufftHandle, cufftDoubleReal*, cufftDoubleComplex*);
cufftResult cufftExecZ2D(cufftHandle, cufftDoubleComplex*, cufftDoubleReal*);
#ifdef __cplusplus
}
#endif
#endif
