"""The model as C++ for the emulator: a function for each kernel, a module for each kind of
instruction."""
