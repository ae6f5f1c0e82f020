// Included before all else in what a wheel brings built: libraries that ask for no newer glibc than
// 2.28, compiled against a newer one. Functions that glibc 2.34 moved into libc keep their first
// version there.
#pragma once

#include <bits/c++config.h>

// pthread_cond_clockwait is new in glibc 2.30.
#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT

asm(".symver dladdr,dladdr@GLIBC_2.2.5");
asm(".symver dlclose,dlclose@GLIBC_2.2.5");
asm(".symver dlerror,dlerror@GLIBC_2.2.5");
asm(".symver dlopen,dlopen@GLIBC_2.2.5");
asm(".symver dlsym,dlsym@GLIBC_2.2.5");
// New versions since glibc 2.29, which set no errno.
asm(".symver exp,exp@GLIBC_2.2.5");
asm(".symver log,log@GLIBC_2.2.5");
asm(".symver pow,pow@GLIBC_2.2.5");
asm(".symver pthread_create,pthread_create@GLIBC_2.2.5");
asm(".symver pthread_join,pthread_join@GLIBC_2.2.5");
asm(".symver pthread_kill,pthread_kill@GLIBC_2.2.5");
asm(".symver pthread_once,pthread_once@GLIBC_2.2.5");
// A new version since GCC 12, which is no point of cancellation.
asm(".symver _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE,"
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
