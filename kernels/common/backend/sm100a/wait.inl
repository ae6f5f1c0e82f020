#pragma once

#include "../sm90a/wait.inl"
