// What a newer libstdc++'s headers call and an older one's library lacks: the library's own,
// hidden.
#include <new>

extern "C" {

// New in glibc 2.32. Zero says that there may be threads: the headers then use atomics.
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

// std::__throw_bad_array_new_length, new in GCC 11.
[[noreturn]] __attribute__((visibility("hidden"))) void old_throw_bad_array_new_length() asm(
    "_ZSt28__throw_bad_array_new_lengthv");
void old_throw_bad_array_new_length() {
  throw std::bad_array_new_length();
}

}  // extern "C"
