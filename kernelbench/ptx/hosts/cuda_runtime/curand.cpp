// cuRAND's host functions, as operations in the order of the generator's stream. The numbers are
// deterministic by seed and offset, and not NVIDIA's: one generator stands for all kinds.
#include "../cuda_libraries/curand.h"

#include <cmath>

#include "order.hpp"
#include "state.hpp"

struct curandGenerator_st {
  cudaStream_t stream = nullptr;
  uint64_t seed = 0, next = 0;
  bool on_host = false;
};

namespace kb::cuda {

namespace {

// Sebastiano Vigna's SplitMix64, by number: 64 random bits.
uint64_t word(uint64_t seed, uint64_t number) {
  uint64_t z = seed * 0xd1342543de82ef95 + (number + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// cuRAND, host API: above 0, and up to 1.
double uniform(uint64_t seed, uint64_t number) {
  return std::ldexp(static_cast<double>((word(seed, number) >> 11) + 1), -53);
}
// By Box and Muller.
double normal(uint64_t seed, uint64_t number) {
  const double angle = 6.283185307179586 * uniform(~seed, number);
  return std::sqrt(-2 * std::log(uniform(seed, number))) * std::cos(angle);
}

template <typename T, typename Of>
curandStatus_t generated(curandGenerator_t generator, T* to, size_t count, Of number) {
  if (generator == nullptr) return CURAND_STATUS_NOT_INITIALIZED;
  const uint64_t seed = generator->seed, first = generator->next;
  generator->next += count;
  const auto write = [=] {
    for (size_t at = 0; at < count; ++at) to[at] = static_cast<T>(number(seed, first + at));
  };
  if (generator->on_host) {
    write();
    return CURAND_STATUS_SUCCESS;
  }
  const size_t bytes = count * sizeof(T);
  if (!is_reached(to, bytes)) {
    launch_refused(asked_now("").name, cudaErrorIllegalAddress);
    return CURAND_STATUS_LAUNCH_FAILURE;
  }
  const cudaError_t status = submit(generator->stream,
                                    [=] {
                                      touched(to, bytes, true);
                                      write();
                                      return cudaSuccess;
                                    },
                                    {Kind::kTransfer, "", false, {{to, bytes, true}}});
  return status == cudaSuccess ? CURAND_STATUS_SUCCESS : CURAND_STATUS_LAUNCH_FAILURE;
}

// cuRAND, host API, curandGenerateNormal: counts of pseudorandom normal numbers are even.
template <typename T>
curandStatus_t normals(curandGenerator_t generator, T* to, size_t count, double mean,
                       double deviation, bool logarithms) {
  if (count % 2 != 0) return CURAND_STATUS_LENGTH_NOT_MULTIPLE;
  return generated(generator, to, count, [=](uint64_t seed, uint64_t number) {
    const double value = mean + deviation * normal(seed, number);
    return logarithms ? std::exp(value) : value;
  });
}

}  // namespace

}  // namespace kb::cuda

using namespace kb::cuda;

extern "C" {

curandStatus_t curandCreateGenerator(curandGenerator_t* generator, curandRngType_t type) {
  if (type >= CURAND_RNG_QUASI_DEFAULT) {
    not_here("curandCreateGenerator of quasirandom numbers");
    return CURAND_STATUS_TYPE_ERROR;
  }
  *generator = new curandGenerator_st;
  return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandCreateGeneratorHost(curandGenerator_t* generator, curandRngType_t type) {
  const curandStatus_t status = curandCreateGenerator(generator, type);
  if (status == CURAND_STATUS_SUCCESS) (*generator)->on_host = true;
  return status;
}
curandStatus_t curandDestroyGenerator(curandGenerator_t generator) {
  delete generator;
  return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandGetVersion(int* version) {
  *version = 10000;
  return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandSetStream(curandGenerator_t generator, cudaStream_t stream) {
  generator->stream = stream;
  return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t generator,
                                                  unsigned long long seed) {
  generator->seed = seed;
  generator->next = 0;
  return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandSetGeneratorOffset(curandGenerator_t generator, unsigned long long offset) {
  generator->next = offset;
  return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandSetGeneratorOrdering(curandGenerator_t, curandOrdering_t) {
  return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandGenerateSeeds(curandGenerator_t) {
  return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandGenerate(curandGenerator_t generator, unsigned* to, size_t count) {
  KB_CALL;
  return generated(generator, to, count,
                   [](uint64_t seed, uint64_t number) { return word(seed, number) >> 32; });
}
curandStatus_t curandGenerateUniform(curandGenerator_t generator, float* to, size_t count) {
  KB_CALL;
  return generated(generator, to, count, [](uint64_t seed, uint64_t number) {
    return std::ldexp(static_cast<double>((word(seed, number) >> 40) + 1), -24);
  });
}
curandStatus_t curandGenerateUniformDouble(curandGenerator_t generator, double* to, size_t count) {
  KB_CALL;
  return generated(generator, to, count, uniform);
}
curandStatus_t curandGenerateNormal(curandGenerator_t generator, float* to, size_t count,
                                    float mean, float deviation) {
  KB_CALL;
  return normals(generator, to, count, mean, deviation, false);
}
curandStatus_t curandGenerateNormalDouble(curandGenerator_t generator, double* to, size_t count,
                                          double mean, double deviation) {
  KB_CALL;
  return normals(generator, to, count, mean, deviation, false);
}
curandStatus_t curandGenerateLogNormal(curandGenerator_t generator, float* to, size_t count,
                                       float mean, float deviation) {
  KB_CALL;
  return normals(generator, to, count, mean, deviation, true);
}
curandStatus_t curandGenerateLogNormalDouble(curandGenerator_t generator, double* to, size_t count,
                                             double mean, double deviation) {
  KB_CALL;
  return normals(generator, to, count, mean, deviation, true);
}

}  // extern "C"
