// A product of cuBLASLt with a bias and GELU, into another matrix than the one that is added.
#include <cublasLt.h>

#include <cmath>
#include <vector>

#include "check.h"

#define OK(call)                                   \
  do {                                             \
    if (const auto status = (call); status != 0) { \
      std::printf("%s: %d\n", #call, int(status)); \
      return 1;                                    \
    }                                              \
  } while (0)

namespace {

constexpr int kRows = 5, kColumns = 3, kInner = 4;

template <typename T>
T* on_gpu(const std::vector<T>& of) {
  T* made = nullptr;
  cudaMalloc(&made, of.size() * sizeof(T));
  cudaMemcpy(made, of.data(), of.size() * sizeof(T), cudaMemcpyHostToDevice);
  return made;
}

std::vector<float> numbers(int count, int seed) {
  std::vector<float> out;
  for (int at = 0; at < count; ++at) out.push_back(float((at * 7 + seed) % 9 - 4) / 4);
  return out;
}

double gelu(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

}  // namespace

int main() {
  const auto a = numbers(kInner * kRows, 1), b = numbers(kInner * kColumns, 2);
  const auto c = numbers(kRows * kColumns, 3), bias = numbers(kRows, 4);
  float* const d = on_gpu(std::vector<float>(kRows * kColumns));
  const float* const added = on_gpu(bias);
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t how;
  cublasLtMatrixLayout_t of_a, of_b, of_c;
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t best;
  int found = 0;
  OK(cublasLtCreate(&handle));
  OK(cublasLtMatmulDescCreate(&how, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t turned = CUBLAS_OP_T;
  const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_GELU_BIAS;
  OK(cublasLtMatmulDescSetAttribute(how, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned));
  OK(cublasLtMatmulDescSetAttribute(how, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                    sizeof epilogue));
  OK(cublasLtMatmulDescSetAttribute(how, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &added, sizeof added));
  OK(cublasLtMatrixLayoutCreate(&of_a, CUDA_R_32F, kInner, kRows, kInner));
  OK(cublasLtMatrixLayoutCreate(&of_b, CUDA_R_32F, kInner, kColumns, kInner));
  OK(cublasLtMatrixLayoutCreate(&of_c, CUDA_R_32F, kRows, kColumns, kRows));
  OK(cublasLtMatmulPreferenceCreate(&preference));
  OK(cublasLtMatmulAlgoGetHeuristic(handle, how, of_a, of_b, of_c, of_c, preference, 1, &best,
                                    &found));
  const float alpha = 2, beta = 0.5f;
  OK(cublasLtMatmul(handle, how, &alpha, on_gpu(a), of_a, on_gpu(b), of_b, &beta, on_gpu(c), of_c,
                    d, of_c, found == 1 ? &best.algo : nullptr, nullptr, 0, nullptr));
  std::vector<float> got(kRows * kColumns);
  OK(cudaMemcpy(got.data(), d, got.size() * sizeof(float), cudaMemcpyDeviceToHost));
  for (int at = 0; at < kRows * kColumns; ++at) {
    double sum = 0;
    for (int i = 0; i < kInner; ++i) sum += a[at % kRows * kInner + i] * b[at / kRows * kInner + i];
    const double want = gelu(alpha * sum + beta * c[at] + bias[at % kRows]);
    if (std::fabs(got[at] - want) > 1e-5) {
      std::printf("%d: %g, not %g\n", at, got[at], want);
      return 1;
    }
  }
  OK(cublasLtMatrixLayoutDestroy(of_a));
  OK(cublasLtMatmulDescDestroy(how));
  OK(cublasLtDestroy(handle));
  return 0;
}
