// Variables of the device by their symbols.
#include "sample.h"
__device__ int counts[4];
__constant__ int weights[4];
__global__ void weigh() {
  counts[threadIdx.x] *= weights[threadIdx.x];
}
int main() {
  int here[4] = {1, 2, 3, 4}, *there;
  size_t bytes;
  CHECK(cudaMemcpyToSymbol(counts, here, 16)), CHECK(cudaMemcpyToSymbol(weights, here, 16));
  weigh<<<1, 4>>>();
  CHECK(cudaMemcpyFromSymbol(here, counts, 16)), CHECK(cudaGetSymbolSize(&bytes, counts));
  CHECK(cudaGetSymbolAddress(reinterpret_cast<void**>(&there), counts));
  CHECK(cudaMemset(there, 0, bytes));
  return verdict(here[3] == 16 && bytes == 16);
}
