#pragma once

#include "../sm90a/cvt.inl"
