#pragma once

#include "../sm90a/tensormap.inl"
