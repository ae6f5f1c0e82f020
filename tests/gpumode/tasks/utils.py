"""What the tasks of these tests share, as the tasks of a real collection share a ``utils.py``."""

import contextlib

import torch


def make_match_reference(reference, rtol=1e-5, atol=1e-8):
    """A check that compares with ``reference``: ``(right, message)``."""

    def check(data, output):
        return compare(output, reference(data), rtol, atol)

    return check


def compare(got, expected, rtol=1e-5, atol=1e-8):
    """``(right, message)`` of one tensor."""
    if got.shape != expected.shape:
        return False, f"shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
    wrong = ~torch.isclose(got.double(), expected.double(), rtol=rtol, atol=atol, equal_nan=True)
    count = int(wrong.sum())
    if count:
        where = tuple(wrong.nonzero()[0].tolist())
        return (
            False,
            f"{count} elements differ, the first at {where}: {got[where]} {expected[where]}",
        )
    return True, ""


def mismatches(got, expected):
    """Lines that say what is not equal; empty if all is."""
    count = int(torch.ne(got, expected).sum())
    return [f"{count} elements differ"] if count else []


@contextlib.contextmanager
def full_precision():
    """Switches TF32 off."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before
