__device__ int counter[4];

extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

extern "C" __global__ void scale(double* x, double by) {
  x[blockIdx.y * blockDim.y + threadIdx.y] *= by;
}

__device__ __forceinline__ int other_end(const int* tile) {
  return tile[blockDim.x - 1 - threadIdx.x];
}

extern "C" __global__ void reverse(int* data) {
  extern __shared__ int tile[];
  tile[threadIdx.x] = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = other_end(tile);
}

extern "C" __global__ void reverse_without_barrier(int* data) {
  extern __shared__ int tile[];
  tile[threadIdx.x] = data[threadIdx.x];
  data[threadIdx.x] = other_end(tile);
}

extern "C" __global__ void all_lanes_write(int* data) {
  __shared__ int last;
  last = data[threadIdx.x];
  __syncthreads();
  data[threadIdx.x] = last;
}

extern "C" __global__ void count(int* data) {
  atomicAdd(&counter[blockIdx.x & 3], 1);
  data[blockIdx.x] = 1;
}

extern "C" __global__ void stop(int* data) {
  if (data[0] != 0) __trap();
  asm volatile("exit;");
}

extern "C" __global__ void wait_for_ever(int* data) {
  while (*(volatile int*)data == 0) {
  }
}
