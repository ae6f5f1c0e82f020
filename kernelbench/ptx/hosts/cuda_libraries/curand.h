// cuRAND's host functions for a machine without NVIDIA's headers: what cuda_runtime/curand.cpp has
// of them. Names, values and signatures are those of cuRAND's documentation.
#if __has_include_next(<curand.h>)
#include_next <curand.h>
#else
#pragma once
#include <cuda_runtime_api.h>
#include <stddef.h>

typedef struct curandGenerator_st* curandGenerator_t;
typedef enum {
  CURAND_STATUS_SUCCESS = 0,
  CURAND_STATUS_VERSION_MISMATCH = 100,
  CURAND_STATUS_NOT_INITIALIZED = 101,
  CURAND_STATUS_ALLOCATION_FAILED = 102,
  CURAND_STATUS_TYPE_ERROR = 103,
  CURAND_STATUS_OUT_OF_RANGE = 104,
  CURAND_STATUS_LENGTH_NOT_MULTIPLE = 105,
  CURAND_STATUS_LAUNCH_FAILURE = 201,
  CURAND_STATUS_INTERNAL_ERROR = 999
} curandStatus_t;
typedef enum {
  CURAND_RNG_PSEUDO_DEFAULT = 100,
  CURAND_RNG_PSEUDO_XORWOW = 101,
  CURAND_RNG_PSEUDO_MRG32K3A = 121,
  CURAND_RNG_PSEUDO_MTGP32 = 141,
  CURAND_RNG_PSEUDO_MT19937 = 142,
  CURAND_RNG_PSEUDO_PHILOX4_32_10 = 161,
  CURAND_RNG_QUASI_DEFAULT = 200,
  CURAND_RNG_QUASI_SOBOL32 = 201
} curandRngType_t;
typedef enum {
  CURAND_ORDERING_PSEUDO_BEST = 100,
  CURAND_ORDERING_PSEUDO_DEFAULT = 101,
  CURAND_ORDERING_PSEUDO_SEEDED = 102,
  CURAND_ORDERING_PSEUDO_LEGACY = 103
} curandOrdering_t;

#ifdef __cplusplus
extern "C" {
#endif
curandStatus_t curandCreateGenerator(curandGenerator_t*, curandRngType_t);
curandStatus_t curandCreateGeneratorHost(curandGenerator_t*, curandRngType_t);
curandStatus_t curandDestroyGenerator(curandGenerator_t);
curandStatus_t curandGetVersion(int*);
curandStatus_t curandSetStream(curandGenerator_t, cudaStream_t);
curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t, unsigned long long);
curandStatus_t curandSetGeneratorOffset(curandGenerator_t, unsigned long long);
curandStatus_t curandSetGeneratorOrdering(curandGenerator_t, curandOrdering_t);
curandStatus_t curandGenerateSeeds(curandGenerator_t);
curandStatus_t curandGenerate(curandGenerator_t, unsigned int*, size_t);
curandStatus_t curandGenerateUniform(curandGenerator_t, float*, size_t);
curandStatus_t curandGenerateUniformDouble(curandGenerator_t, double*, size_t);
curandStatus_t curandGenerateNormal(curandGenerator_t, float*, size_t, float, float);
curandStatus_t curandGenerateNormalDouble(curandGenerator_t, double*, size_t, double, double);
curandStatus_t curandGenerateLogNormal(curandGenerator_t, float*, size_t, float, float);
curandStatus_t curandGenerateLogNormalDouble(curandGenerator_t, double*, size_t, double, double);
#ifdef __cplusplus
}
#endif
#endif
