// A pool's threshold is set and asked for.
#include "sample.h"
int main() {
  cudaMemPool_t pool;
  unsigned long long keep = 1 << 20, found = 0;
  CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
  CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &found));
  return verdict(found == keep);
}
