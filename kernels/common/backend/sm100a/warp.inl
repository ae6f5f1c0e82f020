#pragma once

#include "../sm90a/warp.inl"
