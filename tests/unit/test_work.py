"""The work of inputs that take turns."""

from kernelbench.project.problem import Work, mean_work


def test_work_is_the_mean_of_the_draws():
    """A time is of them all, and so is what a ratio compares it with."""
    few = Work(10.0, 100.0, 4.0, "fp8", ("1 of 8 experts in use",))
    many = Work(10.0, 300.0, 4.0, "fp8", ("3 of 8 experts in use",))
    said = "mean of 2 draws: 1 of 8 experts in use; 3 of 8 experts in use"
    assert mean_work([few, many]) == Work(10.0, 200.0, 4.0, "fp8", (said,))
    assert mean_work([few, few]) == few
