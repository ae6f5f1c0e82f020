"""What a command starts before its own modules are imported."""

from __future__ import annotations

from pathlib import Path

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


@pytest.mark.parametrize(
    ("of_user", "spins"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
)
def test_threads_of_torch_wait_asleep(
    of_user: dict[str, str], spins: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ones that spin take the cores of those they wait for; the user's word on it stands."""
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in of_user.items():
        monkeypatch.setenv(name, value)
    launcher, control = served.begun()
    assert launcher is not None
    try:
        assert control.recv(64) == b"ready"  # before that there may be no variables yet
        variables = Path(f"/proc/{launcher.pid}/environ").read_bytes().decode().split("\0")
    finally:
        control.close()
        launcher.kill()
        launcher.communicate()
    found = [each.partition("=")[2] for each in variables if each.startswith("GOMP_SPINCOUNT=")]
    assert found == ([] if spins is None else [spins])
