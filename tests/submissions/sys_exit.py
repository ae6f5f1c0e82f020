"""Raises SystemExit as if all were well."""

import sys

from right import custom_kernel as right


def custom_kernel(data):
    right(data)
    sys.exit(0)
