#pragma once

#include "../sm90a/text.inl"
