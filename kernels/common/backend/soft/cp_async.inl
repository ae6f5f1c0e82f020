#pragma once

#include "../sm90a/cp_async.inl"
