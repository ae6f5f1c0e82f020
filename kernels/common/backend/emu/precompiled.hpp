// What rt.cuh, with which steps begin, has of the standard library: parsed once for all of them
// where the compiler can (Recipe.precompiled).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>
