// Sums of a block's threads: -n numbers, and a file that has a word.
#include <getopt.h>

#include <cstdio>
#include <cstdlib>

#include "words.h"

__device__ int calls;

__global__ void sum(int* values) {
  __shared__ int sums[THREADS];
  const int thread = threadIdx.x;
  sums[thread] = values[thread];
  __syncthreads();
  for (int half = THREADS / 2; half > 0; half /= 2) {
    if (thread < half) sums[thread] += sums[thread + half];
    __syncthreads();
  }
  if (thread == 0) values[0] = sums[0];
  if (thread == 0) atomicAdd(&calls, 1);
}

int main(int argc, char** argv) {
  int numbers = 1;
  for (int option; (option = getopt(argc, argv, "n:")) != -1;) {
    if (option == 'n') numbers = std::atoi(optarg);
  }
  int values[THREADS] = {}, count = 0, *there;
  for (int i = 0; i < numbers; ++i) values[i] = 1;
  if (cudaMalloc(&there, sizeof values) != cudaSuccess) return 1;
  cudaMemcpy(there, values, sizeof values, cudaMemcpyHostToDevice);
  sum<<<1, THREADS>>>(there);
  cudaMemcpy(values, there, sizeof(int), cudaMemcpyDeviceToHost);
  cudaMemcpyFromSymbol(&count, calls, sizeof count);
  std::printf("%s of %d arguments, %d calls\n", argv[0], argc, count);
  if (argc != optind + 1 || !show(argv[optind], values[0])) return 2;
  std::exit(0);
}
