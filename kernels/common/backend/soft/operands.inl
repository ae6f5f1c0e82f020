#pragma once

#include "../sm90a/operands.inl"
