// cuFFT: numpy transforms, in double precision; layouts are gathered and scattered here. A
// transform is an operation in the order of its plan's stream.
#include "../cuda_libraries/cufft.h"

#include "order.hpp"
#include "state.hpp"

namespace kb::cuda {

namespace {

// cuFFT, advanced data layout: element (i, j, k) of a batch is at
// stride * ((i * embed[1] + j) * embed[2] + k).
struct Layout {
  std::vector<int> embed;
  long stride = 1, distance = 0;
  bool basic = true;
};
struct Plan {
  std::vector<int> extents;
  int batch = 0;
  cufftType type = CUFFT_C2C;
  Layout in, out;
  cudaStream_t stream = nullptr;
};
std::map<cufftHandle, Plan> plans;
cufftHandle last_handle = 0;

// One side of a transform: where its numbers are, and how many components each has.
struct Side {
  void* at;
  bool real, wide;  // wide: double precision
  std::vector<int> extents;
  Layout layout;
  int batch;

  int components() const { return real ? 1 : 2; }
  size_t bytes_of_number() const { return components() * (wide ? 8 : 4); }
  size_t numbers() const {
    size_t product = static_cast<size_t>(batch);
    for (const int each : extents) product *= static_cast<size_t>(each);
    return product;
  }
  // Of the `number`th in the order of a packed array.
  long place(size_t number) const {
    long found = 0, scale = 1;
    for (size_t at = extents.size(); at-- > 0;) {
      found += static_cast<long>(number % static_cast<size_t>(extents[at])) * scale;
      number /= static_cast<size_t>(extents[at]);
      scale *= layout.embed[at];
    }
    return static_cast<long>(number) * layout.distance + found * layout.stride;
  }
  size_t bytes() const {
    return (static_cast<size_t>(place(numbers() - 1)) + 1) * bytes_of_number();
  }
  template <typename Each>
  void visit(Each each) const {
    for (size_t number = 0; number < numbers(); ++number) {
      for (int part = 0; part < components(); ++part) {
        each(number * components() + part, place(number) * components() + part);
      }
    }
  }
  std::vector<double> gathered() const {
    std::vector<double> packed(numbers() * components());
    visit([&](size_t to, long from) {
      packed[to] = wide ? static_cast<double*>(at)[from] : static_cast<float*>(at)[from];
    });
    return packed;
  }
  void scatter(const std::vector<double>& packed) const {
    visit([&](size_t from, long to) {
      if (wide) {
        static_cast<double*>(at)[to] = packed[from];
      } else {
        static_cast<float*>(at)[to] = static_cast<float>(packed[from]);
      }
    });
  }
};

// cuFFT, data layout: half of the complex numbers of a real transform are kept, and real numbers
// that share memory with them are padded to their rows.
Side side_of(const Plan& plan, void* at, bool real, bool half, bool padded, const Layout& layout,
             bool wide) {
  Side side{at, real, wide, plan.extents, layout, plan.batch};
  if (half) side.extents.back() = side.extents.back() / 2 + 1;
  if (layout.basic) {
    side.layout.embed = side.extents;
    if (real && padded) side.layout.embed.back() = 2 * (side.extents.back() / 2 + 1);
    side.layout.distance = 1;
    for (const int each : side.layout.embed) side.layout.distance *= each;
  }
  return side;
}

// `direction`: -1, 1, or 0 where the type says it.
cufftResult run(cufftHandle handle, cufftType type, void* in, void* out, int direction) {
  const auto found = plans.find(handle);
  if (found == plans.end() || found->second.batch == 0) return CUFFT_INVALID_PLAN;
  const Plan& plan = found->second;
  if (plan.type != type) return CUFFT_INVALID_TYPE;
  const bool wide = type == CUFFT_D2Z || type == CUFFT_Z2D || type == CUFFT_Z2Z;
  const bool from_real = type == CUFFT_R2C || type == CUFFT_D2Z;
  const bool to_real = type == CUFFT_C2R || type == CUFFT_Z2D;
  const Side from = side_of(plan, in, from_real, to_real, in == out, plan.in, wide);
  const Side to = side_of(plan, out, to_real, from_real, in == out, plan.out, wide);
  if (!is_reached(from.at, from.bytes()) || !is_reached(to.at, to.bytes())) {
    launch_refused(asked_now("").name, cudaErrorIllegalAddress);
    return CUFFT_EXEC_FAILED;
  }
  const int way = from_real ? -2 : to_real ? 2 : direction;
  const auto work = [from, to, way, extents = plan.extents, batch = plan.batch] {
    touched(from.at, from.bytes(), false);
    touched(to.at, to.bytes(), true);
    const std::vector<double> given = from.gathered();
    std::vector<double> made(to.numbers() * to.components());
    if (transform(way, batch, static_cast<int>(extents.size()), extents.data(), given.data(),
                  made.data()) != 0) {
      return cudaErrorLaunchFailure;
    }
    to.scatter(made);
    return cudaSuccess;
  };
  const cudaError_t status =
      submit(plan.stream, work, copy_of(from.at, from.bytes(), to.at, to.bytes()));
  return status == cudaSuccess ? CUFFT_SUCCESS : CUFFT_EXEC_FAILED;
}

cufftResult planned(cufftHandle handle, std::vector<int> extents, cufftType type, int batch,
                    const Layout& in = {}, const Layout& out = {}) {
  const auto found = plans.find(handle);
  if (found == plans.end()) return CUFFT_INVALID_PLAN;
  for (const int each : extents) {
    if (each < 1) return CUFFT_INVALID_SIZE;
  }
  if (batch < 1 || extents.empty() || extents.size() > 3) return CUFFT_INVALID_SIZE;
  const cudaStream_t stream = found->second.stream;
  found->second = {std::move(extents), batch, type, in, out, stream};
  return CUFFT_SUCCESS;
}

Layout layout_of(const int* embed, int rank, int stride, int distance) {
  if (embed == nullptr) return {};
  return {{embed, embed + rank}, stride, distance, false};
}

}  // namespace

}  // namespace kb::cuda

using namespace kb::cuda;

extern "C" {

cufftResult cufftGetVersion(int* version) {
  *version = 12000;
  return CUFFT_SUCCESS;
}
cufftResult cufftCreate(cufftHandle* handle) {
  *handle = ++last_handle;
  plans[*handle] = {};
  return CUFFT_SUCCESS;
}
cufftResult cufftDestroy(cufftHandle handle) {
  return plans.erase(handle) != 0 ? CUFFT_SUCCESS : CUFFT_INVALID_PLAN;
}
cufftResult cufftMakePlan1d(cufftHandle handle, int x, cufftType type, int batch, size_t* bytes) {
  *bytes = 0;
  return planned(handle, {x}, type, batch);
}
cufftResult cufftMakePlan2d(cufftHandle handle, int x, int y, cufftType type, size_t* bytes) {
  *bytes = 0;
  return planned(handle, {x, y}, type, 1);
}
cufftResult cufftMakePlan3d(cufftHandle handle, int x, int y, int z, cufftType type,
                            size_t* bytes) {
  *bytes = 0;
  return planned(handle, {x, y, z}, type, 1);
}
cufftResult cufftMakePlanMany(cufftHandle handle, int rank, int* extents, int* in_embed,
                              int in_stride, int in_distance, int* out_embed, int out_stride,
                              int out_distance, cufftType type, int batch, size_t* bytes) {
  *bytes = 0;
  if (rank < 1 || rank > 3) return CUFFT_INVALID_VALUE;
  return planned(handle, {extents, extents + rank}, type, batch,
                 layout_of(in_embed, rank, in_stride, in_distance),
                 layout_of(out_embed, rank, out_stride, out_distance));
}
cufftResult cufftPlan1d(cufftHandle* handle, int x, cufftType type, int batch) {
  size_t bytes;
  cufftCreate(handle);
  return cufftMakePlan1d(*handle, x, type, batch, &bytes);
}
cufftResult cufftPlan2d(cufftHandle* handle, int x, int y, cufftType type) {
  size_t bytes;
  cufftCreate(handle);
  return cufftMakePlan2d(*handle, x, y, type, &bytes);
}
cufftResult cufftPlan3d(cufftHandle* handle, int x, int y, int z, cufftType type) {
  size_t bytes;
  cufftCreate(handle);
  return cufftMakePlan3d(*handle, x, y, z, type, &bytes);
}
cufftResult cufftPlanMany(cufftHandle* handle, int rank, int* extents, int* in_embed, int in_stride,
                          int in_distance, int* out_embed, int out_stride, int out_distance,
                          cufftType type, int batch) {
  size_t bytes;
  cufftCreate(handle);
  return cufftMakePlanMany(*handle, rank, extents, in_embed, in_stride, in_distance, out_embed,
                           out_stride, out_distance, type, batch, &bytes);
}
cufftResult cufftSetStream(cufftHandle handle, cudaStream_t stream) {
  const auto found = plans.find(handle);
  if (found == plans.end()) return CUFFT_INVALID_PLAN;
  found->second.stream = stream;
  return CUFFT_SUCCESS;
}
cufftResult cufftGetSize(cufftHandle, size_t* bytes) {
  *bytes = 0;
  return CUFFT_SUCCESS;
}
cufftResult cufftSetAutoAllocation(cufftHandle, int) {
  return CUFFT_SUCCESS;
}
cufftResult cufftSetWorkArea(cufftHandle, void*) {
  return CUFFT_SUCCESS;
}
cufftResult cufftExecC2C(cufftHandle handle, cufftComplex* in, cufftComplex* out, int direction) {
  KB_CALL;
  return run(handle, CUFFT_C2C, in, out, direction);
}
cufftResult cufftExecR2C(cufftHandle handle, cufftReal* in, cufftComplex* out) {
  KB_CALL;
  return run(handle, CUFFT_R2C, in, out, 0);
}
cufftResult cufftExecC2R(cufftHandle handle, cufftComplex* in, cufftReal* out) {
  KB_CALL;
  return run(handle, CUFFT_C2R, in, out, 0);
}
cufftResult cufftExecZ2Z(cufftHandle handle, cufftDoubleComplex* in, cufftDoubleComplex* out,
                         int direction) {
  KB_CALL;
  return run(handle, CUFFT_Z2Z, in, out, direction);
}
cufftResult cufftExecD2Z(cufftHandle handle, cufftDoubleReal* in, cufftDoubleComplex* out) {
  KB_CALL;
  return run(handle, CUFFT_D2Z, in, out, 0);
}
cufftResult cufftExecZ2D(cufftHandle handle, cufftDoubleComplex* in, cufftDoubleReal* out) {
  KB_CALL;
  return run(handle, CUFFT_Z2D, in, out, 0);
}

}  // extern "C"
