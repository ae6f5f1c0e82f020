"""What ``import kernelbench`` costs and offers, and that the command line adds nothing to it."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import click
import pytest
from conftest import ROOT

import kernelbench
from kernelbench.cli import COMMANDS
from kernelbench.cli.options import Percent
from kernelbench.compare.calibrator import CalibrationSize, calibrate
from kernelbench.compare.gating import gate_against, gate_files
from kernelbench.runs.settings import MEASURING, Measuring, MeasuringOptions

SOURCE = ROOT / "kernelbench"
#: Longest function that may hold a command.
MAX_LINES = 60


def test_nothing_is_imported_before_it_is_used() -> None:
    code = (
        "import sys; before = set(sys.modules); import kernelbench, json; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=ROOT)
    loaded = {name for name in json.loads(done.stdout) if name.startswith("kernelbench")}
    assert loaded == {"kernelbench", "kernelbench.base", "kernelbench.base.version"}


def test_every_name_is_there_and_no_other() -> None:
    for name in kernelbench.__all__:
        assert getattr(kernelbench, name) is not None
        assert name in dir(kernelbench)
    with pytest.raises(AttributeError, match="has no attribute 'walk'"):
        kernelbench.walk  # noqa: B018


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name: str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported.keys() | {"__version__"} == set(kernelbench.__all__)
    for name, module in imported.items():
        assert getattr(kernelbench, name) is getattr(importlib.import_module(module), name)


def test_the_functions_are_documented() -> None:
    for name in ("run", "ab", "check", "load"):
        function = getattr(kernelbench, name)
        text = inspect.getdoc(function) or ""
        assert "Raises:" in text
        args = text[text.index("Args:") : text.index("Raises:")]
        for parameter in inspect.signature(function).parameters:
            assert parameter in args, f"{name}: {parameter}"


def test_options_and_settings_have_the_same_fields() -> None:
    assert list(get_type_hints(MeasuringOptions)) == [field.name for field in fields(Measuring)]


def _options(command: str) -> dict[str, Any]:
    module = importlib.import_module(f"kernelbench.cli.{command}")
    found: click.Command = module.command
    context = click.Context(found)
    found_defaults = {}
    for option in found.params:
        if isinstance(option, click.Option):
            default = option.get_default(context)
            if isinstance(option.type, Percent) and isinstance(default, str):
                default = option.type.convert(default, option, context)
            found_defaults[str(option.name)] = default
    return found_defaults


@pytest.mark.parametrize(
    ("command", "functions"),
    [
        ("run", [kernelbench.run]),
        ("ab", [kernelbench.ab]),
        ("check", [kernelbench.check]),
        ("gate", [gate_files, gate_against]),
        ("calibrate", [calibrate, CalibrationSize]),
    ],
)
def test_the_command_line_has_the_librarys_defaults(command: str, functions: list[Any]) -> None:
    options = _options(command)
    known: dict[str, Any] = {"reps": MEASURING.reps, "device": MEASURING.device}
    known |= {"timeout_s": MEASURING.timeout_s, "budget_s": MEASURING.budget_s, "l2": MEASURING.l2}
    for function in functions:
        for name, parameter in inspect.signature(function).parameters.items():
            known[name] = parameter.default
    # Files, flags without a value and the like have no default to share.
    shared = {n for n, value in options.items() if isinstance(value, (str, int, float))}
    shared &= {n for n, value in known.items() if value not in (None, inspect.Parameter.empty)}
    assert {n: options[n] for n in shared} == {n: _plain(known[n]) for n in shared}
    assert len(shared) >= 4


def _plain(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, tuple) else value


def test_commands_are_short() -> None:
    for file in sorted((SOURCE / "cli").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name == "command":
                length = (node.end_lineno or 0) - node.lineno + 1
                assert length <= MAX_LINES, f"{file.name}: {length} lines"


@pytest.mark.parametrize("name", ["ab", "check", "load", "run"])
def test_the_library_functions_are_short(name: str) -> None:
    """Beside the signature and what it means, which are long."""
    function = getattr(kernelbench, name)
    (node,) = ast.parse(inspect.getsource(function)).body
    assert isinstance(node, ast.FunctionDef)
    length = (node.end_lineno or 0) - node.body[1].lineno + 1
    assert length <= MAX_LINES / 2, f"{name}: {length} lines"


def test_commands_do_not_measure() -> None:
    """They parse, call one function and print: no launcher, no runner, no plan."""
    below = ("kernelbench.worker", "kernelbench.runs.plan", "kernelbench.runs.runner")
    for name in COMMANDS:
        file = SOURCE / "cli" / f"{name}.py"
        for node in ast.walk(ast.parse(file.read_text())) if file.exists() else ():
            if isinstance(node, ast.ImportFrom):
                assert not str(node.module).startswith(below), f"{file.name}: {node.module}"


def test_the_users_file_is_type_checked() -> None:
    text = Path(ROOT / "pyproject.toml").read_text()
    assert '"tests/api/user_file.py"' in text
