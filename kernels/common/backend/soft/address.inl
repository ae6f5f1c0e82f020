#pragma once

#include "../sm90a/address.inl"
