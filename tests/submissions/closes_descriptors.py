"""Closes every file that it can reach."""

import os

from right import custom_kernel as right


def custom_kernel(data):
    os.closerange(0, 4096)
    return right(data)
