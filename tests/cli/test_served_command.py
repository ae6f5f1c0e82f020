"""Commands that the process of ``kernelbench serve`` carries out, as who typed them sees it."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ROOT

from kernelbench import cli
from kernelbench.base.errors import ExitCode
from kernelbench.cli import served_command
from kernelbench.worker import served

WAIT_S = 60.0
#: The server; `run asleep FILE` is a command that writes its process into a file and sleeps.
START = """
import os, pathlib, time
from kernelbench import cli
from kernelbench.cli.command_server import serve_commands
real = cli.invoke
def invoke(words):
    if words[1] != "asleep":
        return real(words)
    try:
        pathlib.Path(words[2]).write_text(str(os.getpid()))
        time.sleep(60)
    except KeyboardInterrupt:
        return 130
cli.invoke = invoke
serve_commands()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[subprocess.Popen[bytes]]:
    """What runs commands, without the workers beside it."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="kb") as folder:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        patch.chdir(ROOT)
        process = subprocess.Popen([sys.executable, "-c", START], stderr=subprocess.PIPE)
        try:
            until(served.socket_file("commands").exists)
            yield process
        finally:
            process.kill()
            process.communicate()


def until(there: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not there():
        assert time.monotonic() < end
        time.sleep(0.02)


def asleep(folder: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """A command line that sleeps, and the file that it writes before."""
    began = folder / "began"
    words = [sys.executable, "-m", "kernelbench", "run", "asleep", str(began)]
    process = subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE)
    until(lambda: began.exists() and bool(began.read_text()))
    return process, began


def gone(began: Path) -> bool:
    return not Path(f"/proc/{began.read_text()}").exists()


@pytest.mark.usefixtures("server")
def test_output_and_exit_code_are_the_callers(capfd: pytest.CaptureFixture[str]) -> None:
    assert served_command.run_elsewhere(["ab", "v01", "nope"]) == ExitCode.USAGE
    assert "unknown step 'nope'" in capfd.readouterr().err
    assert served_command.run_elsewhere(["ab", "v01", "v02", "--shape", "D"]) == 5
    assert "ab v01→v02  NOT MEASURED" in capfd.readouterr().out


@pytest.mark.usefixtures("server")
def test_folder_and_environment_are_the_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A relative name means what it does here."""
    monkeypatch.setenv("KERNELBENCH_ROOT", str(ROOT))
    file = served.socket_file("commands")
    monkeypatch.setattr(served, "socket_file", lambda _kind="workers": file)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("no python\n")
    words = ["run", "mine.py", "--shape", "u0", "--no-save"]
    assert served_command.run_elsewhere(words) == ExitCode.USAGE
    assert f"{tmp_path}/mine.py:1: not valid Python" in capfd.readouterr().err


def test_others_are_not_asked(server: subprocess.Popen[bytes]) -> None:
    for words in ([], ["list"], ["--debug", "ab", "v01", "v02"]):
        assert served_command.run_elsewhere(words) is None
    assert server.poll() is None


@pytest.mark.usefixtures("server")
def test_ctrl_c_reaches_the_command(tmp_path: Path) -> None:
    process, began = asleep(tmp_path)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130, err
    until(lambda: gone(began))


def test_ctrl_c_before_anybody_can_be_told_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_words: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run_elsewhere", interrupted)
    monkeypatch.setattr(sys, "argv", ["kernelbench", "run", "v01"])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 130
    assert capsys.readouterr().err == "kernelbench: interrupted\n"


@pytest.mark.usefixtures("server")
def test_a_command_ends_with_whoever_asked(tmp_path: Path) -> None:
    process, began = asleep(tmp_path)
    process.kill()
    process.communicate()
    until(lambda: gone(began))


def test_a_server_that_goes_is_one_line(server: subprocess.Popen[bytes], tmp_path: Path) -> None:
    process, began = asleep(tmp_path)
    server.kill()
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == ExitCode.ENVIRONMENT
    assert err.decode().startswith("kernelbench: the process of `kernelbench serve` has gone")
    until(lambda: gone(began))
    # Nobody is there any more: the command is this process's own.
    assert served_command.run_elsewhere(["ab", "v01", "v02"]) is None
