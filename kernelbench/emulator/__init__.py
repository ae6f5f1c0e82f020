"""The CPU emulator as Python sees it: built, loaded, its findings put into words.

The emulator itself is C++ (``kernels/common/backend/emu``). It imports ``build`` and what is
below.
"""
