// Calls a group GEMM step with the tensors of each group as a tuple, taken apart here: what steps
// with `marshal = "tuples"` do. Knows nothing of torch but that tensors have data_ptr().
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

namespace py = pybind11;

namespace {

// kb::GroupGemmCall of kernels/common/group_gemm.cuh.
struct Call {
  int32_t group_count;
  const uint64_t* a;
  const uint64_t* b;
  const uint64_t* c;
  const uint64_t* sfa;
  const uint64_t* sfb;
  const int32_t* m;
  const int32_t* n;
  const int32_t* k;
  void* stream;
};
using Run = int (*)(const Call* call, char* message, size_t size);

uint64_t address_of(const py::object& tensor) {
  return tensor.attr("data_ptr")().cast<uint64_t>();
}

// Status and message of kb_run, whose address is `run`.
std::pair<int, std::string> call(
    uintptr_t run, const std::vector<std::tuple<py::object, py::object, py::object>>& tensors,
    const std::vector<std::tuple<py::object, py::object>>& scales,
    const std::vector<std::tuple<int32_t, int32_t, int32_t, int32_t>>& sizes, uintptr_t stream) {
  const size_t count = tensors.size();
  std::array<std::vector<uint64_t>, 5> pointers;
  std::array<std::vector<int32_t>, 3> extents;
  for (auto& each : pointers) each.reserve(count);
  for (auto& each : extents) each.reserve(count);
  for (const auto& [a, b, c] : tensors) {
    pointers[0].push_back(address_of(a));
    pointers[1].push_back(address_of(b));
    pointers[2].push_back(address_of(c));
  }
  for (const auto& [sfa, sfb] : scales) {
    pointers[3].push_back(address_of(sfa));
    pointers[4].push_back(address_of(sfb));
  }
  for (const auto& [m, n, k, l] : sizes) {
    extents[0].push_back(m);
    extents[1].push_back(n);
    extents[2].push_back(k);
  }
  const Call packed{static_cast<int32_t>(count), pointers[0].data(),
                    pointers[1].data(),          pointers[2].data(),
                    pointers[3].data(),          pointers[4].data(),
                    extents[0].data(),           extents[1].data(),
                    extents[2].data(),           reinterpret_cast<void*>(stream)};
  char message[1024] = "";
  const int status = reinterpret_cast<Run>(run)(&packed, message, sizeof(message));
  return {status, message};
}

}  // namespace

PYBIND11_MODULE(kernelbench_group_gemm_tuples, module) {
  module.def("call", &call);
}
