"""Seeds: one run seed, from which every other is derived by name."""

from __future__ import annotations

import hashlib
import secrets


def new_seed() -> int:
    """An unpredictable run seed in [0, 2**31)."""
    return secrets.randbelow(2**31)


def derive(seed: int, *labels: object) -> int:
    """A seed in [0, 2**48) for one purpose, a function of the run seed and the labels only."""
    text = "/".join(str(label) for label in (seed, *labels))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 16
