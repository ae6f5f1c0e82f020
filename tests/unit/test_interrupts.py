"""Ctrl-C that waits for the end of a block."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import pytest

from kernelbench.emulator import dwarf
from kernelbench.runs.runner import defer_sigint


def test_it_comes_when_the_block_has_ended() -> None:
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt), defer_sigint():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append(1)
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_it_nothing_happens() -> None:
    with defer_sigint():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_whoever_handles_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: seen.append(number))
    try:
        with defer_sigint():
            signal.raise_signal(signal.SIGINT)
            assert seen == []
        assert seen == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_error_of_the_block_is_not_lost() -> None:
    with pytest.raises(KeyboardInterrupt) as raised, defer_sigint():
        signal.raise_signal(signal.SIGINT)
        raise ValueError("of the block")
    assert isinstance(raised.value.__context__, ValueError)


def test_other_threads_are_left_alone() -> None:
    handlers: list[object] = []

    def work() -> None:
        with defer_sigint():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]


def test_findings_lose_their_lines_and_nothing_else_without_pyelftools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "library.so").write_bytes(b"")
    for module in [name for name in sys.modules if name.partition(".")[0] == "elftools"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "elftools", None)
    assert dwarf.frames_at(str(tmp_path / "library.so"), 0) == ()
