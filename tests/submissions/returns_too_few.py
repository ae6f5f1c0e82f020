"""Leaves the last group out of what it returns."""

from right import custom_kernel as right


def custom_kernel(data):
    return right(data)[:-1]
