#pragma once

// Prints what a file has, and a number.
bool show(const char* file, int number);
