"""Help, version, completion, and what needs no torch."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from conftest import ROOT, environment_of

from kernelbench import cli
from kernelbench.base.errors import ExitCode
from kernelbench.base.version import __version__
from kernelbench.cli import invoke as run_cli


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_of_every_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli([name, "--help"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.startswith(f"Usage: kernelbench {name}")
    assert f"kernelbench {name}" in captured.out.split("Examples:")[1]
    assert run_cli([name, "-h"]) == 0
    assert capsys.readouterr().out == captured.out


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_of_the_whole(arguments: list[str], bench: Callable[..., Any]) -> None:
    outcome = bench(*arguments)
    assert outcome.code == (0 if arguments else 2)
    text = outcome.out
    for name, line in cli.COMMANDS.items():
        assert f"  {name} " in text
        assert line in text
    flat = " ".join(text.split())
    for code in ExitCode:
        assert f"{int(code)} {code.meaning}" in flat
    assert "130 interrupted" in flat
    assert "141 the reader" in flat
    assert "kernelbench ab v15 v16 --why" in text


def test_the_exit_codes_are_the_documented_ones() -> None:
    assert {code.name: int(code) for code in ExitCode} == {
        "PASS": 0,
        "REGRESSION": 1,
        "USAGE": 2,
        "INCORRECT": 3,
        "AMBIGUOUS": 4,
        "ENVIRONMENT": 5,
        "DEFECT": 6,
    }


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["--version"]) == 0
    assert capsys.readouterr().out == f"kernelbench, version {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert "_KERNELBENCH_COMPLETE" in text
    assert f"{shell}_complete" in text


@pytest.mark.parametrize(
    ("words", "last", "expected"),
    [
        ("kernelbench ru", 1, "run"),
        ("kernelbench run v0", 2, "v00"),
        ("kernelbench run v00 --shape qwen35-m1", 4, "qwen35-m16"),
        ("kernelbench list v0", 2, "v00"),
        ("kernelbench list mo", 2, "moe"),
        ("kernelbench gate v2", 2, "v23"),
    ],
)
def test_completion_completes(
    words: str, last: int, expected: str, bench: Callable[..., Any]
) -> None:
    outcome = bench(
        env={
            "_KERNELBENCH_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(last),
        }
    )
    assert f"plain,{expected}" in outcome.out.splitlines()


@pytest.mark.parametrize(
    "arguments",
    [["list"], ["list", "moe"], ["--help"], ["run", "--help"], ["ab", "--help"], ["run", "v99"],
     ["run", "v00", "--shape", "Q"], ["show"], ["log"]],
    ids=" ".join,
)  # fmt: skip
def test_no_torch_where_none_is_needed(arguments: list[str]) -> None:
    code = (
        "import sys; from kernelbench.cli import invoke; invoke(sys.argv[1:]); "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, env=environment_of(ROOT)
    )
    assert done.returncode == 0, done.stderr.decode()


def test_run_does_not_wait_for_scipy() -> None:
    code = (
        "import sys; from kernelbench.cli import invoke; invoke(['run', '--help']); "
        "sys.exit('scipy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=environment_of(ROOT)
    )
    assert done.returncode == 0, done.stderr.decode()


def test_a_reader_that_goes_away_is_no_failure() -> None:
    """``kernelbench list | head -1``"""
    done = subprocess.run(
        f"{sys.executable} -m kernelbench run --help | head -1; exit ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", capture_output=True, text=True,
        env=environment_of(ROOT),
    )  # fmt: skip
    assert done.stdout.startswith("Usage:")
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_a_default_that_is_a_value_has_no_brackets(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli([name, "--help"]) == 0
    assert not re.findall(r"\[default:\s+\([^\s)]*\)", capsys.readouterr().out)


def test_an_encoding_without_our_arrows() -> None:
    """As of a terminal that is not set up: question marks, and no defect."""
    command = [sys.executable, "-m", "kernelbench", "list"]
    environment = environment_of(ROOT) | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"?" in done.stdout and done.stdout.isascii()
