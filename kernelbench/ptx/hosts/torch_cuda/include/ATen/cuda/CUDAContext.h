// What torch's header of this name brings, as far as the emulator has it.
#pragma once

#include <ATen/core/ATenGeneral.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAGuard.h>
