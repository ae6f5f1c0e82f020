#pragma once

#include "../sm90a/rt.inl"
