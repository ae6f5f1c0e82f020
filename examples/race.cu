// A block's sum without a barrier between its steps: `kernelbench check race.cu` finds the race.
#include <cuda_runtime.h>
__global__ void reduce(const float* in, float* out) {
  __shared__ float part[256];
  const int t = threadIdx.x;
  part[t] = in[t];
  for (int s = 128; s > 0; s >>= 1) {
    if (t < s) part[t] += part[t + s];
  }
  if (t == 0) *out = part[0];
}
int main() {
  float *in, *out, sum, ones[256];
  for (float& one : ones) one = 1.0f;
  cudaMalloc(&in, sizeof ones);
  cudaMalloc(&out, sizeof sum);
  cudaMemcpy(in, ones, sizeof ones, cudaMemcpyHostToDevice);
  reduce<<<1, 256>>>(in, out);
  cudaMemcpy(&sum, out, sizeof sum, cudaMemcpyDeviceToHost);
  return sum != 256.0f;
}
