// Products of cuBLAS, between kernels, of numbers of cuRAND.
#include <cublas_v2.h>
#include <curand.h>

#include <cmath>
#include <cstdio>
#include <vector>

constexpr int kRows = 20, kColumns = 12, kInner = 9;

__global__ void twice(float* at, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) at[i] = 2 * at[i];
}

#define OK(call)                                   \
  if (const int status = static_cast<int>(call)) { \
    std::printf("%s: %d\n", #call, status);        \
    return 1;                                      \
  }

int main() {
  float *a, *b, *c, *result;
  OK(cudaMalloc(&a, kRows * kInner * sizeof(float)));
  OK(cudaMalloc(&b, kInner * kColumns * sizeof(float)));
  OK(cudaMalloc(&c, kRows * kColumns * sizeof(float)));
  OK(cudaMalloc(&result, sizeof(float)));
  cudaStream_t stream;
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));

  curandGenerator_t generator;
  OK(curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_DEFAULT));
  OK(curandSetPseudoRandomGeneratorSeed(generator, 7));
  OK(curandSetStream(generator, stream));
  OK(curandGenerateUniform(generator, a, kRows * kInner));
  OK(curandGenerateNormal(generator, b, kInner * kColumns, 1, 2));

  cublasHandle_t handle;
  OK(cublasCreate(&handle));
  OK(cublasSetStream(handle, stream));
  twice<<<2, 128, 0, stream>>>(a, kRows * kInner);
  const float one = 1, none = 0, half = 0.5f;
  OK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, kRows, kColumns, kInner, &one, a, kRows, b,
                 kColumns, &none, c, kRows));
  twice<<<2, 128, 0, stream>>>(c, kRows * kColumns);
  OK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_T, kRows, kColumns, kInner, &one, a, CUDA_R_32F,
                  kRows, b, CUDA_R_32F, kColumns, &one, c, CUDA_R_32F, kRows, CUBLAS_COMPUTE_32F,
                  CUBLAS_GEMM_DEFAULT));
  OK(cublasSscal(handle, kRows * kColumns, &half, c, 1));
  float dot = 0, norm = 0, on_gpu = 0;
  OK(cublasSdot(handle, kRows * kColumns, c, 1, c, 1, &dot));
  OK(cublasSnrm2(handle, kRows * kColumns, c, 1, &norm));
  OK(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE));
  OK(cublasSasum(handle, kInner, b, 1, result));
  OK(cudaStreamSynchronize(stream));
  std::vector<float> ha(kRows * kInner), hb(kInner * kColumns), hc(kRows * kColumns);
  OK(cudaMemcpy(ha.data(), a, ha.size() * sizeof(float), cudaMemcpyDefault));
  OK(cudaMemcpy(hb.data(), b, hb.size() * sizeof(float), cudaMemcpyDefault));
  OK(cublasGetMatrix(kRows, kColumns, sizeof(float), c, kRows, hc.data(), kRows));
  OK(cudaMemcpy(&on_gpu, result, sizeof(float), cudaMemcpyDefault));

  double squares = 0, magnitudes = 0;
  for (int i = 0; i < kInner; ++i) magnitudes += std::fabs(hb[i]);
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kColumns; ++j) {
      double sum = 0;
      for (int l = 0; l < kInner; ++l) sum += double{ha[l * kRows + i]} * hb[l * kColumns + j];
      if (std::fabs(hc[j * kRows + i] - 1.5 * sum) > 1e-3) return 2;
      squares += double{hc[j * kRows + i]} * hc[j * kRows + i];
    }
  }
  for (const float each : ha) {
    if (!(each > 0 && each <= 2)) return 3;
  }
  if (std::fabs(dot / squares - 1) > 1e-4 || std::fabs(norm / std::sqrt(squares) - 1) > 1e-4) {
    return 4;
  }
  if (std::fabs(on_gpu - magnitudes) > 1e-3) return 5;
  OK(curandDestroyGenerator(generator));
  OK(cublasDestroy(handle));
  return 0;
}
