"""Binds the entry point to a number."""

custom_kernel = 3
