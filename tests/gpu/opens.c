/* Preloaded: counts what a process opens of NVIDIA's device files, in the file OPENS_LOG names. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void note(const char* path) {
  const char* log = getenv("OPENS_LOG");
  if (log == NULL || path == NULL || strncmp(path, "/dev/nvidia", 11) != 0) return;
  long file = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (file < 0) return;
  if (write((int)file, path, strlen(path)) < 0 || write((int)file, "\n", 1) < 0) _exit(99);
  close((int)file);
}

static long opened(int folder, const char* path, int flags, va_list more) {
  int mode = (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(more, int) : 0;
  note(path);
  return syscall(SYS_openat, folder, path, flags, mode);
}

#define OPEN(name)                                       \
  int name(const char* path, int flags, ...) {           \
    va_list more;                                        \
    va_start(more, flags);                               \
    int file = (int)opened(AT_FDCWD, path, flags, more); \
    va_end(more);                                        \
    return file;                                         \
  }
#define OPENAT(name)                                       \
  int name(int folder, const char* path, int flags, ...) { \
    va_list more;                                          \
    va_start(more, flags);                                 \
    int file = (int)opened(folder, path, flags, more);     \
    va_end(more);                                          \
    return file;                                           \
  }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
