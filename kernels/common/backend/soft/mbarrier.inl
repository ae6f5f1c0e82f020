#pragma once

#include "../sm90a/mbarrier.inl"
