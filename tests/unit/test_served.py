"""``kernelbench serve``: the launcher that one command line after another finds ready."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelbench.base.errors import UsageError
from kernelbench.worker import served
from kernelbench.worker.launcher import Launcher

WAIT_S = 30.0


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # pytest's own folders have names that are too long for a socket.
    with tempfile.TemporaryDirectory(prefix="kb") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


@pytest.fixture
def server(runtime: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, "-m", "kernelbench", "serve", "--idle", "1"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE)
    try:
        until = time.monotonic() + WAIT_S
        while not served.socket_file().exists() and time.monotonic() < until:
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.communicate()


def connected() -> socket.socket:
    """The server's socket: it listens before torch is imported, and answers after."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        if (found := served.connect()) is not None:
            return found
    raise AssertionError("the server does not answer")


def test_one_after_another_and_no_second_at_a_time(server: subprocess.Popen[bytes]) -> None:
    first = connected()
    assert served.connect() is None  # it is busy
    first.close()
    second = connected()
    second.close()
    with pytest.raises(UsageError, match="served already"):
        served.listen()
    connected().close()
    with Launcher() as launcher:
        launcher.begin()
        assert launcher._process is None  # the server's workers are used
    server.send_signal(signal.SIGINT)
    server.wait(WAIT_S)
    assert not served.socket_file().exists()
    assert server.returncode == 0


def test_a_stale_socket_is_no_error(runtime: Path) -> None:
    stale = served.listen()
    stale.close()
    assert served.socket_file().exists()
    assert served.connect() is None
    again = served.listen()
    again.close()


def test_others_have_another_socket(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = served.socket_file()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert served.socket_file() != here


def test_a_folder_open_to_others_is_refused(runtime: Path) -> None:
    folder = served.socket_file().parent
    folder.mkdir()
    folder.chmod(0o777)
    assert served.connect() is None
    with pytest.raises(Exception, match="open to others"):
        served.listen()


def test_a_worker_has_the_commands_environment(
    server: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    step = tmp_path / "asks.py"
    step.write_text(
        "import os\ndef custom_kernel(data):\n"
        "    worker = open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()\n"
        "    raise ValueError(os.environ['OF_THE_COMMAND'] + ' ' + worker[1])\n"
    )
    connected().close()
    monkeypatch.setenv("OF_THE_COMMAND", "seen")
    words = ["run", str(step), "--shape", "u0", "--inputs", "gpu-mode", "--check-only", "--no-save"]
    command = [sys.executable, "-m", "kernelbench", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert f"seen {server.pid}" in done.stdout + done.stderr
