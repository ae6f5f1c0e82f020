"""How far outputs lie from their reference, over all of their elements."""

from __future__ import annotations

import math

import torch


class Deviation:
    """Largest and root mean square error of outputs, taken one tensor after the other."""

    def __init__(self) -> None:
        self._largest = 0.0
        self._error_squares = 0.0
        self._value_squares = 0.0

    def add(self, got: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Take in one output.

        Args:
            got: The output, of any dtype and of the shape of ``values``.
            values: The reference, float64 and finite.

        Returns:
            The absolute error of each element, float64; NaN where the output is NaN.
        """
        error = (got.double() - values).abs()
        if error.numel():
            self._largest = max(
                self._largest, float(error.nan_to_num(math.inf, posinf=math.inf).max())
            )
            self._error_squares += float(error.square().sum())
            self._value_squares += float(values.square().sum())
        return error

    @property
    def max_abs(self) -> float | None:
        """The largest error; None if an output holds a value that is not finite."""
        return self._largest if math.isfinite(self._largest) else None

    @property
    def rel_rms(self) -> float | None:
        """Root mean square error over the root mean square of the reference.

        None if an output holds a value that is not finite, or differs from a reference of zeros.
        """
        if self.max_abs is None:
            return None
        if self._error_squares == 0:
            return 0.0
        return math.sqrt(self._error_squares / self._value_squares) if self._value_squares else None
