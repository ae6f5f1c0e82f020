"""What a command starts before its own modules are imported."""

from __future__ import annotations

import pytest

from kernelbench import cli
from kernelbench.worker import served


@pytest.mark.parametrize(
    ("words", "begun"),
    [(["ab", "v01", "v02"], 1), (["ab", "--help"], 0), (["run", "v01"], 0), (["list"], 0), ([], 0)],
)
def test_only_what_compares_begins_ahead(
    words: list[str], begun: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[None] = []
    monkeypatch.setattr(served, "prefork", lambda: found.append(None))
    cli._prefork(words)
    assert len(found) == begun
