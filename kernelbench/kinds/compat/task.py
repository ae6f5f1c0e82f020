"""Stand-in for GPU MODE's ``task`` module: the names that submissions import from it."""

from __future__ import annotations

from typing import Any, TypeVar

input_t = TypeVar("input_t", bound=Any)
output_t = TypeVar("output_t", bound=Any)
