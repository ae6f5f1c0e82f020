#pragma once

#include "../sm90a/cluster.inl"
