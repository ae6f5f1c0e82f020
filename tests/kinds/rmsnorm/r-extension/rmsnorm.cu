#include <c10/cuda/CUDAStream.h>
#include <torch/extension.h>

#include "rows.cuh"

torch::Tensor rmsnorm(torch::Tensor x, torch::Tensor w, torch::Tensor out, double eps) {
  const auto stream = c10::cuda::getCurrentCUDAStream();
  normalize_rows<<<x.size(0), kThreads, 0, stream>>>(x.data_ptr<float>(), w.data_ptr<float>(),
                                                     out.data_ptr<float>(), x.size(1), float(eps));
  return out;
}
