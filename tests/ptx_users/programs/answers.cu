// A kernel hands a value to the host, which polls for it in mapped memory.
#include "check.h"

__global__ void hand_over(volatile int* mail) {
  mail[1] = 7;
  __threadfence_system();
  mail[0] = 1;
}

int main() {
  int* mail;
  CHECK(cudaHostAlloc(&mail, 3 * sizeof(int), cudaHostAllocMapped));
  mail[0] = mail[2] = 0;
  hand_over<<<1, 1>>>(mail);
  while (__atomic_load_n(mail, __ATOMIC_ACQUIRE) == 0) {
  }
  if (mail[1] != 7) return 1;
  __atomic_store_n(mail + 2, 1, __ATOMIC_RELEASE);
  CHECK(cudaDeviceSynchronize());
  return 0;
}
