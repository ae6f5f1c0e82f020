#pragma once

#include "../sm90a/red.inl"
