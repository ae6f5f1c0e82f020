"""Raises in the call."""


def custom_kernel(data):
    raise ValueError("on purpose\nover two lines")
