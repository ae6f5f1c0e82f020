// c = a + b, and the sum of c by one atomic a block; main says whether both are right.
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int kThreads = 128;

#define CHECK(call)                                                                      \
  if (const cudaError_t status = (call); status != cudaSuccess) {                        \
    std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status)); \
    std::exit(EXIT_FAILURE);                                                             \
  }

__global__ void add(const float* a, const float* b, float* c, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) c[i] = a[i] + b[i];
}

__global__ void total(const float* c, int count, float* out) {
  __shared__ float parts[kThreads];
  const int i = blockIdx.x * kThreads + threadIdx.x;
  parts[threadIdx.x] = i < count ? c[i] : 0;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(out, parts[0]);
}

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 1000;
  std::vector<float> a(count), b(count), c(count);
  double want = 0;
  for (int i = 0; i < count; ++i) {
    a[i] = i % 7;
    b[i] = -(i % 3);
    want += a[i] + b[i];
  }
  float *da, *db, *dc, *out, sum = 0;
  const size_t bytes = count * sizeof(float);
  CHECK(cudaMalloc(&da, bytes));
  CHECK(cudaMalloc(&db, bytes));
  CHECK(cudaMalloc(&dc, bytes));
  CHECK(cudaMalloc(&out, sizeof(float)));
  CHECK(cudaMemcpy(da, a.data(), bytes, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(db, b.data(), bytes, cudaMemcpyHostToDevice));
  CHECK(cudaMemset(out, 0, sizeof(float)));
  cudaStream_t stream;
  cudaEvent_t begin, end;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaEventRecord(begin, stream));
  const int blocks = (count + kThreads - 1) / kThreads;
  add<<<blocks, kThreads, 0, stream>>>(da, db, dc, count);
  CHECK(cudaGetLastError());
  total<<<blocks, kThreads, 0, stream>>>(dc, count, out);
  CHECK(cudaEventRecord(end, stream));
  CHECK(cudaEventSynchronize(end));
  CHECK(cudaMemcpyAsync(c.data(), dc, bytes, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaMemcpyAsync(&sum, out, sizeof(float), cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < count; ++i) {
    if (c[i] != a[i] + b[i]) return 1;
  }
  CHECK(cudaFree(da));
  return sum == want ? 0 : 2;
}
