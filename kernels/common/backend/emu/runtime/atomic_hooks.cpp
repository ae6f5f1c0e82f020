// Atomics of a step's host code, a guard of a local static or a reference count, as the compiler
// calls them with -fsanitize=thread. Kernels have those of ptx/ instead. Whatever the order that is
// asked for, these are sequentially consistent.
#include <cstdint>

#define KB_EMU_EXPORT extern "C" __attribute__((visibility("default")))
#define KB_EMU_FETCH(bits, name)                                                               \
  KB_EMU_EXPORT uint##bits##_t __tsan_atomic##bits##_fetch_##name(volatile uint##bits##_t* at, \
                                                                  uint##bits##_t value, int) { \
    return __atomic_fetch_##name(at, value, __ATOMIC_SEQ_CST);                                 \
  }
#define KB_EMU_COMPARE(bits, name)                                                             \
  KB_EMU_EXPORT int __tsan_atomic##bits##_compare_exchange_##name(                             \
      volatile uint##bits##_t* at, uint##bits##_t* expected, uint##bits##_t value, int, int) { \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST,           \
                                       __ATOMIC_SEQ_CST);                                      \
  }
#define KB_EMU_ATOMICS(bits)                                                                      \
  KB_EMU_EXPORT uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t* at,      \
                                                          int) {                                  \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                               \
  KB_EMU_EXPORT void __tsan_atomic##bits##_store(volatile uint##bits##_t* at,                     \
                                                 uint##bits##_t value, int) {                     \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                \
  }                                                                                               \
  KB_EMU_EXPORT uint##bits##_t __tsan_atomic##bits##_exchange(volatile uint##bits##_t* at,        \
                                                              uint##bits##_t value, int) {        \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                      \
  }                                                                                               \
  KB_EMU_EXPORT uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(                        \
      volatile uint##bits##_t* at, uint##bits##_t expected, uint##bits##_t value, int, int) {     \
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    return expected;                                                                              \
  }                                                                                               \
  KB_EMU_COMPARE(bits, strong)                                                                    \
  KB_EMU_COMPARE(bits, weak)                                                                      \
  KB_EMU_FETCH(bits, add)                                                                         \
  KB_EMU_FETCH(bits, sub)                                                                         \
  KB_EMU_FETCH(bits, and)                                                                         \
  KB_EMU_FETCH(bits, or)                                                                          \
  KB_EMU_FETCH(bits, xor)                                                                         \
  KB_EMU_FETCH(bits, nand)
KB_EMU_ATOMICS(8)
KB_EMU_ATOMICS(16)
KB_EMU_ATOMICS(32)
KB_EMU_ATOMICS(64)
KB_EMU_EXPORT void __tsan_atomic_thread_fence(int) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
KB_EMU_EXPORT void __tsan_atomic_signal_fence(int) {
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
