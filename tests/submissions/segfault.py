"""Reads address 0."""

import ctypes


def custom_kernel(data):
    ctypes.string_at(0)
