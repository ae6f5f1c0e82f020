"""Imports what is not there."""

import no_such_module


def custom_kernel(data):
    return no_such_module.multiply(data)
