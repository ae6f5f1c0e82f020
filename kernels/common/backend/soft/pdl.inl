#pragma once

#include "../sm90a/pdl.inl"
