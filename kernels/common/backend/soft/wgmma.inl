#pragma once

#include "../sm100a/wgmma.inl"
