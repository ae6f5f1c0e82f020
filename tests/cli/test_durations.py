"""Times and counts on the command line: one form everywhere, and none that has no end."""

from __future__ import annotations

import importlib

import click
import pytest
from conftest import launch

from kernelbench.base.errors import ExitCode, UsageError
from kernelbench.cli import COMMANDS
from kernelbench.cli.options import Seconds
from kernelbench.runs.settings import MAX_REPS, Measuring


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3", 3), ("3s", 3), ("0.5", 0.5), (".5s", 0.5), ("1.5m", 90), ("2h", 7200), ("60 s", 60)],
)
def test_forms(text: str, seconds: float) -> None:
    assert Seconds(0.1).convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "s", "-3", "3 days", "nan", "inf", "1e3", "0", "0.05s"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected"):
        Seconds(0.1).convert(text, None, None)


def test_every_command_takes_the_same_forms() -> None:
    found = {
        name: option.type
        for name in COMMANDS
        for option in importlib.import_module(f"kernelbench.cli.{name}").command.params
        if {"--budget", "--timeout", "--wait"} & {*option.opts}
    }
    assert {"run", "ab", "check", "gate", "calibrate", "sanitize", "bringup"} <= {*found}
    assert {type(each) for each in found.values()} == {Seconds}


def test_more_repetitions_than_can_be_planned() -> None:
    done = launch("run", "v22", "--reps", 10**11, "--budget", "3s")
    assert done.code == ExitCode.USAGE
    assert str(MAX_REPS) in done.error
    with pytest.raises(UsageError, match=f"expected {MAX_REPS} or less"):
        Measuring(reps=10**11)
