#pragma once

#include "../sm90a/shared_storage.inl"
