// What every translated module begins with: parsed once for all of them where the compiler can
// (Recipe.precompiled).
#pragma once

#include "ptx_frontend/ptx.hpp"
