// What kernelbench puts after the file of a CUDA step: KERNELBENCH_FUNCTION's signature as text,
// and a call of it with words, both through C. The compiler reads the signature, so that typedefs,
// macros and namespaces are what they mean.
#pragma once

#ifndef __CUDA_ARCH__

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>

namespace kernelbench_call {

template <typename T>
const char* pretty() {
  return __PRETTY_FUNCTION__;
}

// f, i, u, b, v: floating, signed, unsigned, bool, void; x: any other type.
template <typename T>
constexpr char class_of() {
  if constexpr (std::is_void_v<T>) return 'v';
  if constexpr (std::is_same_v<T, bool>) return 'b';
  if constexpr (std::is_floating_point_v<T>) return 'f';
  if constexpr (std::is_enum_v<T>) return 'i';
  if constexpr (std::is_integral_v<T>) return std::is_signed_v<T> ? 'i' : 'u';
  return 'x';
}

template <typename T>
constexpr int size_of() {
  if constexpr (std::is_void_v<T>)
    return 0;
  else
    return sizeof(T);
}

// "kind size written name", where kind is class_of, "p" and the class of what it points at, or "s".
template <typename T>
int describe_parameter(char* out, size_t size) {
  if constexpr (std::is_same_v<T, cudaStream_t>) {
    return std::snprintf(out, size, "s 8 0 %s\n", pretty<T>());
  } else if constexpr (std::is_pointer_v<T>) {
    using Element = std::remove_pointer_t<T>;
    using Plain = std::remove_cv_t<Element>;
    return std::snprintf(out, size, "p%c %d %d %s\n", class_of<Plain>(), size_of<Plain>(),
                         int(!std::is_const_v<Element>), pretty<Plain>());
  } else {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>,
                  "a parameter of kernelbench's function is a pointer, a number, or cudaStream_t");
    return std::snprintf(out, size, "%c %d 0 %s\n", class_of<T>(), int(sizeof(T)), pretty<T>());
  }
}

template <typename R, typename... P>
int describe(R (*)(P...), char* out, size_t size) {
  size_t used = 0;
  // A line that does not fit shows in the sum, which is what the caller asks for.
  ((used +=
    describe_parameter<P>(used < size ? out + used : nullptr, used < size ? size - used : 0)),
   ...);
  return static_cast<int>(used);
}

template <typename T>
T from_word(uint64_t word) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<T>(word);
  } else if constexpr (std::is_floating_point_v<T>) {
    double value;
    std::memcpy(&value, &word, sizeof(value));
    return static_cast<T>(value);
  } else {
    return static_cast<T>(word);
  }
}

template <typename R, typename... P, size_t... I>
int call(R (*function)(P...), const uint64_t* words, char* message, size_t size,
         std::index_sequence<I...>) {
  static_assert(std::is_void_v<R> || std::is_integral_v<R> || std::is_enum_v<R>,
                "kernelbench's function returns void, an integer or cudaError_t");
  (void)cudaGetLastError();  // of an earlier call
  if constexpr (std::is_void_v<R>) {
    function(from_word<P>(words[I])...);
  } else {
    const R status = function(from_word<P>(words[I])...);
    if (status != R{}) {
      const char* meaning = "";
      if constexpr (std::is_same_v<R, cudaError_t>) meaning = cudaGetErrorString(status);
      std::snprintf(message, size, "returned %lld %s", static_cast<long long>(status), meaning);
      return 1;
    }
  }
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return 0;
  std::snprintf(message, size, "left a CUDA error: %s: %s", cudaGetErrorName(error),
                cudaGetErrorString(error));
  return 1;
}

template <typename R, typename... P>
int call(R (*function)(P...), const uint64_t* words, char* message, size_t size) {
  return call(function, words, message, size, std::index_sequence_for<P...>{});
}

}  // namespace kernelbench_call

extern "C" __attribute__((visibility("default"))) int kernelbench_signature(char* out,
                                                                            size_t size) {
  return kernelbench_call::describe(&KERNELBENCH_FUNCTION, out, size);
}

extern "C" __attribute__((visibility("default"))) int kernelbench_call_function(
    const uint64_t* words, char* message, size_t size) {
  return kernelbench_call::call(&KERNELBENCH_FUNCTION, words, message, size);
}

#endif
