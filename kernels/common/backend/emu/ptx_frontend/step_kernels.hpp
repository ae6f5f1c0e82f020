// What a launch of a step runs: the kernel of its library, or translated PTX that stands for it.
#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <tuple>

#include "runtime/api_ptx.hpp"

namespace kb::emu {

// Arguments as PTX lays parameters out: one after another, each aligned.
class PackedParameters {
 public:
  template <typename... T>
  explicit PackedParameters(const std::tuple<T...>& arguments) {
    std::apply([this](const T&... each) { (append(each), ...); }, arguments);
  }
  void* data() { return bytes_; }

 private:
  static constexpr size_t kMostBytes = 32764;  // PTX ISA 9.1, 6.3

  template <typename T>
  void append(const T& argument) {
    end_ = (end_ + alignof(T) - 1) / alignof(T) * alignof(T);
    std::memcpy(bytes_ + end_, &argument, sizeof(T));
    end_ += sizeof(T);
  }

  alignas(128) std::byte bytes_[kMostBytes] = {};
  size_t end_ = 0;
};

template <typename... Parameters>
std::function<void()> kernel_body(void (*kernel)(Parameters...),
                                  std::tuple<std::decay_t<Parameters>...>& arguments) {
  if (const auto translated = translation_of(reinterpret_cast<const void*>(kernel))) {
    return [translated, packed = std::make_shared<PackedParameters>(arguments)] {
      translated(packed->data());
    };
  }
  return
      [kernel, &arguments] { std::apply([kernel](auto&... each) { kernel(each...); }, arguments); };
}

}  // namespace kb::emu
