// In place of torch/library.h, for kernels that want nothing of it but its check.
#pragma once
#include <cassert>
#include <string>
#include <variant>
#define TORCH_CHECK(condition, ...) assert(condition)
