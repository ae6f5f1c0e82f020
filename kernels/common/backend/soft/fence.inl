#pragma once

#include "../sm90a/fence.inl"
