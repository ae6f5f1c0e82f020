// cuBLAS, and cuBLASLt's products, on the CPU, as operations in the order of the handle's stream.
// Matrices are column major; sums are float's, of f64 double's, of 8-bit integers int's; TF32 and
// half sums are not modelled.
#include <cuda_bf16.h>

#include <cmath>
#include <cstring>

#include "../cuda_libraries/cublasLt.h"
#include "order.hpp"
#include "state.hpp"

struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasPointerMode_t mode = CUBLAS_POINTER_MODE_HOST;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
};

namespace kb::cuda {

namespace {

size_t bytes_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_8I:
      return 1;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    case CUDA_R_32F:
    case CUDA_R_32I:
      return 4;
    case CUDA_R_64F:
      return 8;
    default:
      return 0;
  }
}

template <typename Sum>
Sum loaded(const void* at, cudaDataType type, size_t index) {
  switch (type) {
    case CUDA_R_8I:
      return static_cast<Sum>(static_cast<const int8_t*>(at)[index]);
    case CUDA_R_16F:
      return static_cast<Sum>(__half2float(static_cast<const __half*>(at)[index]));
    case CUDA_R_16BF:
      return static_cast<Sum>(__bfloat162float(static_cast<const __nv_bfloat16*>(at)[index]));
    case CUDA_R_32I:
      return static_cast<Sum>(static_cast<const int*>(at)[index]);
    case CUDA_R_64F:
      return static_cast<Sum>(static_cast<const double*>(at)[index]);
    default:
      return static_cast<Sum>(static_cast<const float*>(at)[index]);
  }
}

template <typename Sum>
void store(void* at, cudaDataType type, size_t index, Sum value) {
  switch (type) {
    case CUDA_R_8I:
      static_cast<int8_t*>(at)[index] = static_cast<int8_t>(value);
      break;
    case CUDA_R_16F:
      static_cast<__half*>(at)[index] = __float2half(static_cast<float>(value));
      break;
    case CUDA_R_16BF:
      static_cast<__nv_bfloat16*>(at)[index] = __float2bfloat16(static_cast<float>(value));
      break;
    case CUDA_R_32I:
      static_cast<int*>(at)[index] = static_cast<int>(value);
      break;
    case CUDA_R_64F:
      static_cast<double*>(at)[index] = static_cast<double>(value);
      break;
    default:
      static_cast<float*>(at)[index] = static_cast<float>(value);
  }
}

// Columns of `rows` elements, `ld` elements apart; a vector has columns of one element.
struct Matrix {
  void* at;
  cudaDataType type;
  int64_t rows, columns, ld;

  [[nodiscard]] size_t bytes() const {
    if (rows <= 0 || columns <= 0) return 0;
    return static_cast<size_t>((columns - 1) * ld + rows) * bytes_of(type);
  }
  [[nodiscard]] Reach reach(bool writes) const { return {at, bytes(), writes}; }
  // The current operation accesses it: false if not all of it is memory of the GPU.
  [[nodiscard]] bool access(bool writes) const {
    if (bytes() == 0) return true;
    auto* const first = static_cast<char*>(at);
    if (!is_reached(first, bytes())) return false;
    const size_t size = bytes_of(type);
    if (rows == ld) {
      touched(first, bytes(), writes);
    } else {
      for (int64_t column = 0; column < columns; ++column) {
        touched(first + static_cast<size_t>(column * ld) * size, static_cast<size_t>(rows) * size,
                writes);
      }
    }
    return true;
  }
};

Matrix matrix(const void* at, cudaDataType type, int64_t rows, int64_t columns, int64_t ld) {
  return {const_cast<void*>(at), type, rows, columns, ld};
}

// cuBLAS, functions that help: elements of a vector by a negative increment begin at its end.
Matrix strided(const void* at, cudaDataType type, int n, int increment) {
  return matrix(at, type, 1, n, std::abs(increment));
}
size_t element(int64_t i, int64_t n, int64_t increment) {
  return static_cast<size_t>(increment >= 0 ? i * increment : (i - n + 1) * increment);
}

// alpha or beta: the host's is taken when it is called, the GPU's when it is done.
struct Scalar {
  const void* at;
  cudaDataType type;
  bool on_gpu;
  char kept[8] = {};

  Scalar(cublasHandle_t handle, const void* from, cudaDataType of)
      : at(from), type(of), on_gpu(handle->mode == CUBLAS_POINTER_MODE_DEVICE) {
    if (!on_gpu) std::memcpy(kept, from, bytes_of(of));
  }
  template <typename Sum>
  [[nodiscard]] Sum value() const {
    if (on_gpu) touched(at, bytes_of(type), false);
    return loaded<Sum>(on_gpu ? at : kept, type, 0);
  }
};

cublasStatus_t of(cudaError_t status) {
  return status == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

// On the handle's stream; false of the work: it would reach what is no memory of the GPU.
cublasStatus_t given(cublasHandle_t handle, std::vector<Reach> reaches, std::function<bool()> work,
                     bool waits = false) {
  const What what{Kind::kTransfer, "", false, std::move(reaches)};
  const std::string name = asked_now("").name;
  const auto done = [name, work = std::move(work)] {
    if (work()) return cudaSuccess;
    return launch_refused(name, cudaErrorIllegalAddress);
  };
  if (!waits) return of(submit(handle->stream, done, what));
  if (captures(handle->stream)) return CUBLAS_STATUS_NOT_SUPPORTED;
  return of(finish(enqueue(handle->stream, done, what)));
}

// What becomes of the sums of a row before they are stored; null for nothing.
using Epilogue = std::function<double(double, int64_t)>;

struct Product {
  bool a_turned, b_turned;
  int64_t m, n, k;
  Matrix a, b, c;
  Epilogue epilogue = nullptr;
};

template <typename Sum>
bool multiplied(const Product& p, const Scalar& alpha, const Scalar& beta) {
  const Sum by = alpha.value<Sum>(), keep = beta.value<Sum>();
  // BLAS: with beta 0, C need not hold numbers, and is not read.
  const bool read = keep != Sum{0};
  if (!p.a.access(false) || !p.b.access(false) || (read && !p.c.access(false)) ||
      !p.c.access(true)) {
    return false;
  }
  std::vector<Sum> row(static_cast<size_t>(p.k)), columns(static_cast<size_t>(p.k * p.n));
  for (int64_t j = 0; j < p.n; ++j) {
    for (int64_t l = 0; l < p.k; ++l) {
      const int64_t from = p.b_turned ? l * p.b.ld + j : j * p.b.ld + l;
      columns[static_cast<size_t>(j * p.k + l)] =
          loaded<Sum>(p.b.at, p.b.type, static_cast<size_t>(from));
    }
  }
  for (int64_t i = 0; i < p.m; ++i) {
    for (int64_t l = 0; l < p.k; ++l) {
      const int64_t from = p.a_turned ? i * p.a.ld + l : l * p.a.ld + i;
      row[static_cast<size_t>(l)] = loaded<Sum>(p.a.at, p.a.type, static_cast<size_t>(from));
    }
    for (int64_t j = 0; j < p.n; ++j) {
      const Sum* const column = columns.data() + j * p.k;
      Sum sum{0};
      for (size_t l = 0; l < row.size(); ++l) sum += row[l] * column[l];
      const auto to = static_cast<size_t>(j * p.c.ld + i);
      const Sum old = read ? keep * loaded<Sum>(p.c.at, p.c.type, to) : Sum{0};
      const Sum total = by * sum + old;
      store<Sum>(p.c.at, p.c.type, to,
                 p.epilogue ? static_cast<Sum>(p.epilogue(double(total), i)) : total);
    }
  }
  return true;
}

struct Operand {
  const void* at;
  cudaDataType type;
  int ld;
  long long stride = 0;
};

cublasStatus_t products(cublasHandle_t handle, cublasOperation_t turn_a, cublasOperation_t turn_b,
                        int m, int n, int k, const void* alpha, Operand a, Operand b,
                        const void* beta, Operand c, cudaDataType scalars, int count = 1,
                        const Epilogue& epilogue = nullptr, const Reach& bias = {}) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const bool at = turn_a != CUBLAS_OP_N, bt = turn_b != CUBLAS_OP_N;
  if (m < 0 || n < 0 || k < 0 || count < 0 || a.ld < std::max(1, at ? k : m) ||
      b.ld < std::max(1, bt ? n : k) || c.ld < std::max(1, m)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  for (const Operand& each : {a, b, c}) {
    if (bytes_of(each.type) != 0) continue;
    not_here("a product of cuBLAS of cudaDataType " + std::to_string(each.type));
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (m == 0 || n == 0 || count == 0) return CUBLAS_STATUS_SUCCESS;
  std::vector<Product> all;
  std::vector<Reach> reaches;
  for (int number = 0; number < count; ++number) {
    const auto part = [number](const Operand& each, int64_t rows, int64_t columns) {
      const auto shift = number * each.stride * static_cast<long long>(bytes_of(each.type));
      return matrix(static_cast<const char*>(each.at) + shift, each.type, rows, columns, each.ld);
    };
    const Product one{at,
                      bt,
                      m,
                      n,
                      k,
                      at ? part(a, k, m) : part(a, m, k),
                      bt ? part(b, n, k) : part(b, k, n),
                      part(c, m, n),
                      epilogue};
    reaches.insert(reaches.end(), {one.a.reach(false), one.b.reach(false), one.c.reach(true)});
    all.push_back(one);
  }
  const Scalar by(handle, alpha, scalars), keep(handle, beta, scalars);
  if (bias.at != nullptr) reaches.push_back(bias);
  return given(handle, std::move(reaches), [=, all = std::move(all)] {
    if (bias.at != nullptr && !is_reached(bias.at, bias.bytes)) return false;
    if (bias.at != nullptr) touched(bias.at, bias.bytes, false);
    for (const Product& each : all) {
      const bool ok = scalars == CUDA_R_64F   ? multiplied<double>(each, by, keep)
                      : scalars == CUDA_R_32I ? multiplied<int>(each, by, keep)
                                              : multiplied<float>(each, by, keep);
      if (!ok) return false;
    }
    return true;
  });
}

// Those whose matrices are named by lists, which are memory of the GPU.
cublasStatus_t listed(cublasHandle_t handle, cublasOperation_t turn_a, cublasOperation_t turn_b,
                      int m, int n, int k, const void* alpha, const void* const* a, int lda,
                      const void* const* b, int ldb, const void* beta, void* const* c, int ldc,
                      cudaDataType type, int count) {
  const bool at = turn_a != CUBLAS_OP_N, bt = turn_b != CUBLAS_OP_N;
  const Scalar by(handle, alpha, type), keep(handle, beta, type);
  const size_t bytes = static_cast<size_t>(std::max(count, 0)) * sizeof(void*);
  return given(handle, {{a, bytes, false}, {b, bytes, false}, {c, bytes, false}}, [=] {
    for (const void* const list :
         {static_cast<const void*>(a), static_cast<const void*>(b), static_cast<const void*>(c)}) {
      if (range_of(list).begin == nullptr) return false;
      touched(list, bytes, false);
    }
    for (int i = 0; i < count; ++i) {
      const Product one{at,
                        bt,
                        m,
                        n,
                        k,
                        at ? matrix(a[i], type, k, m, lda) : matrix(a[i], type, m, k, lda),
                        bt ? matrix(b[i], type, n, k, ldb) : matrix(b[i], type, k, n, ldb),
                        matrix(c[i], type, m, n, ldc)};
      const bool ok =
          type == CUDA_R_64F ? multiplied<double>(one, by, keep) : multiplied<float>(one, by, keep);
      if (!ok) return false;
    }
    return true;
  });
}

template <typename T>
constexpr cudaDataType kTypeOf = sizeof(T) == 8 ? CUDA_R_64F : CUDA_R_32F;

// A number of one or two vectors, to the host, which waits, or to the GPU.
template <typename Result, typename T>
cublasStatus_t reduced(cublasHandle_t handle, const Matrix& x, const Matrix& y, Result* result,
                       std::function<Result(const T*, const T*)> of_elements) {
  const bool on_gpu = handle->mode == CUBLAS_POINTER_MODE_DEVICE;
  return given(
      handle, {x.reach(false), y.reach(false)},
      [=] {
        if (!x.access(false) || !y.access(false)) return false;
        if (on_gpu) touched(result, sizeof(Result), true);
        *result = of_elements(static_cast<const T*>(x.at), static_cast<const T*>(y.at));
        return true;
      },
      !on_gpu);
}

template <typename T>
cublasStatus_t dot(cublasHandle_t handle, int n, const T* x, int incx, const T* y, int incy,
                   T* result) {
  return reduced<T, T>(handle, strided(x, kTypeOf<T>, n, incx), strided(y, kTypeOf<T>, n, incy),
                       result, [=](const T* a, const T* b) {
                         double sum = 0;
                         for (int i = 0; i < n; ++i) {
                           sum += double{a[element(i, n, incx)]} * double{b[element(i, n, incy)]};
                         }
                         return static_cast<T>(sum);
                       });
}

// By `kind`: the sum of magnitudes, or the root of the sum of squares.
template <typename T>
cublasStatus_t norm(cublasHandle_t handle, int kind, int n, const T* x, int incx, T* result) {
  const Matrix of = strided(x, kTypeOf<T>, n, incx);
  return reduced<T, T>(handle, of, of, result, [=](const T* a, const T*) {
    double sum = 0;
    for (int i = 0; i < n; ++i) {
      const double value = std::fabs(double{a[element(i, n, incx)]});
      sum += kind == 1 ? value : value * value;
    }
    return static_cast<T>(kind == 1 ? sum : std::sqrt(sum));
  });
}

// cuBLAS, cublasI<t>amax: numbered from 1.
template <typename T>
cublasStatus_t largest(cublasHandle_t handle, int n, const T* x, int incx, int* result) {
  const Matrix of = strided(x, kTypeOf<T>, n, incx);
  return reduced<int, T>(handle, of, of, result, [=](const T* a, const T*) {
    int best = 0;
    for (int i = 1; i < n; ++i) {
      if (std::fabs(a[element(i, n, incx)]) > std::fabs(a[element(best, n, incx)])) best = i;
    }
    return n > 0 ? best + 1 : 0;
  });
}

// y = alpha x + y; without y, x = alpha x.
template <typename T>
cublasStatus_t scaled(cublasHandle_t handle, int n, const T* alpha, const T* x, int incx, T* y,
                      int incy, bool adds) {
  const Scalar by(handle, alpha, kTypeOf<T>);
  const Matrix from = strided(x, kTypeOf<T>, n, incx), to = strided(y, kTypeOf<T>, n, incy);
  return given(handle, {from.reach(false), to.reach(true)}, [=] {
    if (!from.access(false) || !to.access(true)) return false;
    const T factor = by.template value<T>();
    for (int i = 0; i < n; ++i) {
      T& target = y[element(i, n, incy)];
      target = factor * x[element(i, n, incx)] + (adds ? target : T{0});
    }
    return true;
  });
}

template <typename T>
cublasStatus_t by_vector(cublasHandle_t handle, cublasOperation_t turn, int m, int n,
                         const T* alpha, const T* a, int lda, const T* x, int incx, const T* beta,
                         T* y, int incy) {
  if (m < 0 || n < 0 || lda < std::max(1, m) || incx == 0 || incy == 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool turned = turn != CUBLAS_OP_N;
  const int rows = turned ? n : m, inner = turned ? m : n;
  const Scalar by(handle, alpha, kTypeOf<T>), keep(handle, beta, kTypeOf<T>);
  const Matrix of = matrix(a, kTypeOf<T>, m, n, lda);
  const Matrix from = strided(x, kTypeOf<T>, inner, incx), to = strided(y, kTypeOf<T>, rows, incy);
  return given(handle, {of.reach(false), from.reach(false), to.reach(true)}, [=] {
    if (!of.access(false) || !from.access(false) || !to.access(true)) return false;
    const T factor = by.template value<T>(), old = keep.template value<T>();
    for (int i = 0; i < rows; ++i) {
      T sum{0};
      for (int l = 0; l < inner; ++l) {
        const int64_t at = turned ? int64_t{i} * lda + l : int64_t{l} * lda + i;
        sum += a[at] * x[element(l, inner, incx)];
      }
      T& target = y[element(i, rows, incy)];
      target = factor * sum + (old != T{0} ? old * target : T{0});
    }
    return true;
  });
}

cudaDataType scalars_of(cublasComputeType_t compute) {
  switch (compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
      return CUDA_R_16F;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
      return CUDA_R_64F;
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
      return CUDA_R_32I;
    default:
      return CUDA_R_32F;
  }
}

// ---- cuBLASLt ----------------------------------------------------------------------------------

struct Layout {
  cudaDataType type;
  cublasLtOrder_t order;
  uint64_t rows, columns;
  int64_t ld;
  int32_t count;
  int64_t stride;
};

struct Described {
  cublasComputeType_t compute;
  cudaDataType scale;
  int32_t pointers, turn_a, turn_b;
  uint32_t epilogue;
  const void* bias;
  int32_t bias_type;  // -1: that of D
};

template <typename Opaque>
cublasStatus_t made(Opaque** handle, const void* first, size_t bytes) {
  *handle = new Opaque{};
  std::memcpy(static_cast<void*>(*handle), first, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T>
T read_from(const void* opaque) {
  T out;
  std::memcpy(&out, opaque, sizeof out);
  return out;
}

// Replaces a field of what a handle stands for.
template <typename T, typename Opaque, typename Field>
cublasStatus_t set(Opaque* handle, Field T::* field, const void* value, size_t bytes) {
  if (bytes != sizeof(Field)) return CUBLAS_STATUS_INVALID_VALUE;
  T all = read_from<T>(handle);
  std::memcpy(&(all.*field), value, bytes);
  std::memcpy(static_cast<void*>(handle), &all, sizeof all);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t lacks(const char* what, int number) {
  not_here("cuBLASLt: " + std::string(what) + " " + std::to_string(number));
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

// cuBLAS, cublasLtEpilogue_t. Assumption: GELU by the hyperbolic tangent.
double through(uint32_t epilogue, double value) {
  if ((epilogue & CUBLASLT_EPILOGUE_RELU) != 0) return std::max(value, 0.0);
  if ((epilogue & CUBLASLT_EPILOGUE_GELU) == 0) return value;
  const double inner = std::sqrt(2 / M_PI) * (value + 0.044715 * value * value * value);
  return value / 2 * (1 + std::tanh(inner));
}

Epilogue epilogue_of(const Described& how, cudaDataType type) {
  const bool biased = (how.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  if (how.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return nullptr;
  return [how, type, biased](double value, int64_t row) {
    const double bias = biased ? loaded<double>(how.bias, type, static_cast<size_t>(row)) : 0;
    return through(how.epilogue, value + bias);
  };
}

// With another C than D, D is first what C is.
cudaError_t copied(const Layout& d, void* to, const Layout& c, const void* from,
                   cudaStream_t stream) {
  const auto size = static_cast<int64_t>(bytes_of(d.type));
  for (int64_t i = 0; i < d.count; ++i) {
    const cudaError_t status = cudaMemcpy2DAsync(
        static_cast<char*>(to) + i * d.stride * size, static_cast<size_t>(d.ld * size),
        static_cast<const char*>(from) + i * c.stride * size, static_cast<size_t>(c.ld * size),
        d.rows * static_cast<size_t>(size), d.columns, cudaMemcpyDeviceToDevice, stream);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

cublasStatus_t lt_product(const Described& how, const void* alpha, const void* a, const Layout& at,
                          const void* b, const Layout& bt, const void* beta, const void* c,
                          const Layout& ct, void* d, const Layout& dt, cudaStream_t stream) {
  const bool turned_a = how.turn_a != CUBLAS_OP_N, turned_b = how.turn_b != CUBLAS_OP_N;
  for (const Layout& each : {at, bt, ct, dt}) {
    if (each.order != CUBLASLT_ORDER_COL) return lacks("matrices of order", each.order);
  }
  constexpr uint32_t kKnown =
      CUBLASLT_EPILOGUE_DEFAULT | CUBLASLT_EPILOGUE_RELU_BIAS | CUBLASLT_EPILOGUE_GELU;
  if ((how.epilogue & ~kKnown) != 0) return lacks("epilogue", static_cast<int>(how.epilogue));
  const uint64_t inner = turned_a ? at.rows : at.columns;
  if ((turned_b ? bt.columns : bt.rows) != inner || (turned_a ? at.columns : at.rows) != dt.rows ||
      (turned_b ? bt.rows : bt.columns) != dt.columns || ct.rows != dt.rows ||
      ct.columns != dt.columns || ct.type != dt.type) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  cublasContext on{stream, how.pointers == CUBLASLT_POINTER_MODE_DEVICE ? CUBLAS_POINTER_MODE_DEVICE
                                                                        : CUBLAS_POINTER_MODE_HOST};
  const bool kept =
      on.mode == CUBLAS_POINTER_MODE_DEVICE || Scalar(&on, beta, how.scale).value<double>() != 0;
  if (kept && c != d && copied(dt, d, ct, c, stream) != cudaSuccess) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  const cudaDataType type = how.bias_type < 0 ? dt.type : static_cast<cudaDataType>(how.bias_type);
  const bool biased = (how.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  const Reach bias{biased ? how.bias : nullptr, dt.rows * bytes_of(type), false};
  return products(&on, static_cast<cublasOperation_t>(how.turn_a),
                  static_cast<cublasOperation_t>(how.turn_b), static_cast<int>(dt.rows),
                  static_cast<int>(dt.columns), static_cast<int>(inner), alpha,
                  {a, at.type, static_cast<int>(at.ld), at.stride},
                  {b, bt.type, static_cast<int>(bt.ld), bt.stride}, beta,
                  {d, dt.type, static_cast<int>(dt.ld), dt.stride}, how.scale, dt.count,
                  epilogue_of(how, type), bias);
}

}  // namespace

}  // namespace kb::cuda

using namespace kb::cuda;

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int* version) {
  *version = CUDART_VERSION / 1000 * 10000;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* stream) {
  *stream = handle->stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  handle->mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  *mode = handle->mode;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  handle->math = mode;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  *mode = handle->math;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS           ? "CUBLAS_STATUS_SUCCESS"
         : status == CUBLAS_STATUS_INVALID_VALUE   ? "CUBLAS_STATUS_INVALID_VALUE"
         : status == CUBLAS_STATUS_NOT_SUPPORTED   ? "CUBLAS_STATUS_NOT_SUPPORTED"
         : status == CUBLAS_STATUS_NOT_INITIALIZED ? "CUBLAS_STATUS_NOT_INITIALIZED"
                                                   : "CUBLAS_STATUS_EXECUTION_FAILED";
}
const char* cublasGetStatusString(cublasStatus_t status) {
  return cublasGetStatusName(status);
}

cublasStatus_t cublasSetMatrix(int rows, int columns, int size, const void* a, int lda, void* b,
                               int ldb) {
  KB_CALL;
  const auto unit = static_cast<size_t>(size);
  return of(cudaMemcpy2D(b, static_cast<size_t>(ldb) * unit, a, static_cast<size_t>(lda) * unit,
                         static_cast<size_t>(rows) * unit, static_cast<size_t>(columns),
                         cudaMemcpyDefault));
}
cublasStatus_t cublasGetMatrix(int rows, int columns, int size, const void* a, int lda, void* b,
                               int ldb) {
  KB_CALL;
  return cublasSetMatrix(rows, columns, size, a, lda, b, ldb);
}
cublasStatus_t cublasSetVector(int n, int size, const void* x, int incx, void* y, int incy) {
  KB_CALL;
  return cublasSetMatrix(1, n, size, x, incx, y, incy);
}
cublasStatus_t cublasGetVector(int n, int size, const void* x, int incx, void* y, int incy) {
  KB_CALL;
  return cublasSetMatrix(1, n, size, x, incx, y, incy);
}

#define KB_PRODUCT(NAME, T, TYPE)                                                                 \
  cublasStatus_t NAME(cublasHandle_t handle, cublasOperation_t turn_a, cublasOperation_t turn_b,  \
                      int m, int n, int k, const T* alpha, const T* a, int lda, const T* b,       \
                      int ldb, const T* beta, T* c, int ldc) {                                    \
    KB_CALL;                                                                                      \
    return products(handle, turn_a, turn_b, m, n, k, alpha, {a, TYPE, lda}, {b, TYPE, ldb}, beta, \
                    {c, TYPE, ldc}, TYPE);                                                        \
  }
#define KB_PRODUCTS(NAME, T, TYPE)                                                                \
  cublasStatus_t NAME(cublasHandle_t handle, cublasOperation_t turn_a, cublasOperation_t turn_b,  \
                      int m, int n, int k, const T* alpha, const T* a, int lda,                   \
                      long long stride_a, const T* b, int ldb, long long stride_b, const T* beta, \
                      T* c, int ldc, long long stride_c, int count) {                             \
    KB_CALL;                                                                                      \
    return products(handle, turn_a, turn_b, m, n, k, alpha, {a, TYPE, lda, stride_a},             \
                    {b, TYPE, ldb, stride_b}, beta, {c, TYPE, ldc, stride_c}, TYPE, count);       \
  }
KB_PRODUCT(cublasSgemm_v2, float, CUDA_R_32F)
KB_PRODUCT(cublasDgemm_v2, double, CUDA_R_64F)
KB_PRODUCT(cublasHgemm, __half, CUDA_R_16F)
KB_PRODUCTS(cublasSgemmStridedBatched, float, CUDA_R_32F)
KB_PRODUCTS(cublasDgemmStridedBatched, double, CUDA_R_64F)
KB_PRODUCTS(cublasHgemmStridedBatched, __half, CUDA_R_16F)

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t turn_a,
                                          cublasOperation_t turn_b, int m, int n, int k,
                                          const void* alpha, const void* a, cudaDataType type_a,
                                          int lda, long long stride_a, const void* b,
                                          cudaDataType type_b, int ldb, long long stride_b,
                                          const void* beta, void* c, cudaDataType type_c, int ldc,
                                          long long stride_c, int count,
                                          cublasComputeType_t compute, cublasGemmAlgo_t) {
  KB_CALL;
  return products(handle, turn_a, turn_b, m, n, k, alpha, {a, type_a, lda, stride_a},
                  {b, type_b, ldb, stride_b}, beta, {c, type_c, ldc, stride_c}, scalars_of(compute),
                  count);
}
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t turn_a,
                            cublasOperation_t turn_b, int m, int n, int k, const void* alpha,
                            const void* a, cudaDataType type_a, int lda, const void* b,
                            cudaDataType type_b, int ldb, const void* beta, void* c,
                            cudaDataType type_c, int ldc, cublasComputeType_t compute,
                            cublasGemmAlgo_t) {
  KB_CALL;
  return products(handle, turn_a, turn_b, m, n, k, alpha, {a, type_a, lda}, {b, type_b, ldb}, beta,
                  {c, type_c, ldc}, scalars_of(compute));
}

#define KB_OF_TYPE(LETTER, T)                                                                      \
  cublasStatus_t cublas##LETTER##gemmBatched(                                                      \
      cublasHandle_t handle, cublasOperation_t turn_a, cublasOperation_t turn_b, int m, int n,     \
      int k, const T* alpha, const T* const a[], int lda, const T* const b[], int ldb,             \
      const T* beta, T* const c[], int ldc, int count) {                                           \
    KB_CALL;                                                                                       \
    return listed(handle, turn_a, turn_b, m, n, k, alpha, reinterpret_cast<const void* const*>(a), \
                  lda, reinterpret_cast<const void* const*>(b), ldb, beta,                         \
                  reinterpret_cast<void* const*>(c), ldc, kTypeOf<T>, count);                      \
  }                                                                                                \
  cublasStatus_t cublas##LETTER##gemv_v2(cublasHandle_t handle, cublasOperation_t turn, int m,     \
                                         int n, const T* alpha, const T* a, int lda, const T* x,   \
                                         int incx, const T* beta, T* y, int incy) {                \
    KB_CALL;                                                                                       \
    return by_vector(handle, turn, m, n, alpha, a, lda, x, incx, beta, y, incy);                   \
  }                                                                                                \
  cublasStatus_t cublas##LETTER##axpy_v2(cublasHandle_t handle, int n, const T* alpha, const T* x, \
                                         int incx, T* y, int incy) {                               \
    KB_CALL;                                                                                       \
    return scaled(handle, n, alpha, x, incx, y, incy, true);                                       \
  }                                                                                                \
  cublasStatus_t cublas##LETTER##scal_v2(cublasHandle_t handle, int n, const T* alpha, T* x,       \
                                         int incx) {                                               \
    KB_CALL;                                                                                       \
    return scaled(handle, n, alpha, static_cast<const T*>(x), incx, x, incx, false);               \
  }                                                                                                \
  cublasStatus_t cublas##LETTER##dot_v2(cublasHandle_t handle, int n, const T* x, int incx,        \
                                        const T* y, int incy, T* result) {                         \
    KB_CALL;                                                                                       \
    return dot(handle, n, x, incx, y, incy, result);                                               \
  }                                                                                                \
  cublasStatus_t cublas##LETTER##nrm2_v2(cublasHandle_t handle, int n, const T* x, int incx,       \
                                         T* result) {                                              \
    KB_CALL;                                                                                       \
    return norm(handle, 2, n, x, incx, result);                                                    \
  }                                                                                                \
  cublasStatus_t cublas##LETTER##asum_v2(cublasHandle_t handle, int n, const T* x, int incx,       \
                                         T* result) {                                              \
    KB_CALL;                                                                                       \
    return norm(handle, 1, n, x, incx, result);                                                    \
  }
KB_OF_TYPE(S, float)
KB_OF_TYPE(D, double)

cublasStatus_t cublasIsamax_v2(cublasHandle_t handle, int n, const float* x, int incx,
                               int* result) {
  KB_CALL;
  return largest(handle, n, x, incx, result);
}
cublasStatus_t cublasIdamax_v2(cublasHandle_t handle, int n, const double* x, int incx,
                               int* result) {
  KB_CALL;
  return largest(handle, n, x, incx, result);
}

// ---- cuBLASLt ----------------------------------------------------------------------------------

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return cublasCreate_v2(reinterpret_cast<cublasHandle_t*>(handle));
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return cublasDestroy_v2(reinterpret_cast<cublasHandle_t>(handle));
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
  const Layout first{type, CUBLASLT_ORDER_COL, rows, columns, ld, 1, 0};
  return made(layout, &first, sizeof first);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  KB_CALL;
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return set(layout, &Layout::type, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return set(layout, &Layout::order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return set(layout, &Layout::rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return set(layout, &Layout::columns, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return set(layout, &Layout::ld, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return set(layout, &Layout::count, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return set(layout, &Layout::stride, value, bytes);
    default:
      return lacks("attribute of a matrix layout", attribute);
  }
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* described,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  const Described first{compute,     scale,       CUBLASLT_POINTER_MODE_HOST,
                        CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT,
                        nullptr,     -1};
  return made(described, &first, sizeof first);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t described) {
  delete described;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t described,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  KB_CALL;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return set(described, &Described::compute, value, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return set(described, &Described::scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return set(described, &Described::pointers, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(described, &Described::turn_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(described, &Described::turn_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(described, &Described::epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(described, &Described::bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return set(described, &Described::bias_type, value, bytes);
    default:
      return lacks("attribute of a product", attribute);
  }
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return made(preference, "", 0);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
// One algorithm, which needs no memory.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int asked,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  *found = std::min(asked, 1);
  if (*found == 1) results[0] = {};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t described,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t of_a,
                              const void* b, cublasLtMatrixLayout_t of_b, const void* beta,
                              const void* c, cublasLtMatrixLayout_t of_c, void* d,
                              cublasLtMatrixLayout_t of_d, const cublasLtMatmulAlgo_t*, void*,
                              size_t, cudaStream_t stream) {
  KB_CALL;
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  return lt_product(read_from<Described>(described), alpha, a, read_from<Layout>(of_a), b,
                    read_from<Layout>(of_b), beta, c, read_from<Layout>(of_c), d,
                    read_from<Layout>(of_d), stream);
}

}  // extern "C"
