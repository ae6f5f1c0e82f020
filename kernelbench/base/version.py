"""The version of the package: below everything, so that anything may name it."""

from __future__ import annotations

__version__ = "0.3.0"
