"""Right, but prints megabytes, through Python and past it."""

import os

from right import custom_kernel as right


def custom_kernel(data):
    print('{"schema": "not the record"}' * 20_000)
    os.write(1, b"x" * 1_000_000)
    os.write(2, b"y" * 1_000_000)
    return right(data)
