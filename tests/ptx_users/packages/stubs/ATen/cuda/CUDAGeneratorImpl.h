// In place of torch's header, which needs all of ATen: the state of a generator alone.
#pragma once
#include <ATen/cuda/PhiloxCudaState.h>
