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

constexpr Py_ssize_t kMostGroups = 64;  // kb::kMostGroups

// A tuple's or a list's items, borrowed from it.
struct Items {
  PyObject** items;
  Py_ssize_t count;

  Items(PyObject* sequence, Py_ssize_t least) {
    if (!PyTuple_Check(sequence) && !PyList_Check(sequence)) {
      throw py::type_error("expected tuples or lists of tensors and sizes");
    }
    items = PySequence_Fast_ITEMS(sequence);
    count = PySequence_Fast_GET_SIZE(sequence);
    if (count < least) throw py::value_error("a group has too few tensors or sizes");
  }
  PyObject* operator[](Py_ssize_t i) const { return items[i]; }
};

uint64_t address_of(PyObject* tensor) {
  static PyObject* const name = PyUnicode_InternFromString("data_ptr");
  const py::object address =
      py::reinterpret_steal<py::object>(PyObject_CallMethodNoArgs(tensor, name));
  if (!address) throw py::error_already_set();
  const uint64_t value = PyLong_AsUnsignedLongLong(address.ptr());
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  return value;
}

int32_t extent_of(PyObject* size) {
  const long value = PyLong_AsLong(size);
  if (value == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return static_cast<int32_t>(value);
}

// The same with less on the way: what steps with `marshal = "items"` do. `tensors`: (a, b, c) of
// each group; `scales`: (sfa, sfb); `sizes`: (m, n, k, 1).
py::tuple call_items(uintptr_t run, const py::object& tensors, const py::object& scales,
                     const py::object& sizes, uintptr_t stream) {
  const Items operands(tensors.ptr(), 1);
  const Items factors(scales.ptr(), operands.count);
  const Items extents(sizes.ptr(), operands.count);
  if (operands.count > kMostGroups) throw py::value_error("more than 64 groups");
  uint64_t pointers[5][kMostGroups];
  int32_t mnk[3][kMostGroups];
  for (Py_ssize_t g = 0; g < operands.count; ++g) {
    const Items abc(operands[g], 3);
    const Items pair(factors[g], 2);
    const Items size(extents[g], 3);
    for (int i = 0; i < 3; ++i) pointers[i][g] = address_of(abc[i]);
    for (int i = 0; i < 2; ++i) pointers[3 + i][g] = address_of(pair[i]);
    for (int i = 0; i < 3; ++i) mnk[i][g] = extent_of(size[i]);
  }
  const Call packed{static_cast<int32_t>(operands.count),
                    pointers[0],
                    pointers[1],
                    pointers[2],
                    pointers[3],
                    pointers[4],
                    mnk[0],
                    mnk[1],
                    mnk[2],
                    reinterpret_cast<void*>(stream)};
  char message[1024] = "";
  const int status = reinterpret_cast<Run>(run)(&packed, message, sizeof(message));
  return py::make_tuple(status, status == 0 ? "" : message);
}

// What tells a call's operands from another's: which tensor objects they are, and the sizes.
py::bytes key_of(const py::object& tensors, const py::object& scales, const py::object& sizes) {
  std::string key;
  const auto add = [&key](auto value) {
    key.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (const py::object* each : {&tensors, &scales, &sizes}) {
    const Items groups(each->ptr(), 0);
    add(groups.count);
    for (Py_ssize_t g = 0; g < groups.count; ++g) {
      const Items items(groups[g], 0);
      add(items.count);
      for (Py_ssize_t i = 0; i < items.count; ++i) {
        each == &sizes ? add(int64_t{extent_of(items[i])}) : add(items[i]);
      }
    }
  }
  return py::bytes(key);
}

}  // namespace

PYBIND11_MODULE(kernelbench_group_gemm_tuples, module) {
  module.def("call", &call);
  module.def("call_items", &call_items);
  module.def("key_of", &key_of);
}
