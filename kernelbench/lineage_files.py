"""Reading ``lineage.toml``, ``step.toml`` and foreign submissions, for the registry."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import cast

from kernelbench.errors import UsageError
from kernelbench.lineage_model import (
    ALLOWED,
    METRICS,
    STATUSES,
    UNITS,
    Allowance,
    Kind,
    Lineage,
    Repair,
    Reported,
    Status,
    Step,
)
from kernelbench.toml_file import TomlTable

_ENTRY: dict[Kind, str] = {"cuda": "launch.cu", "torch": "submission.py"}
_ARCH = re.compile(r"any|sm_\d+[af]?")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def read_lineage(folder: Path) -> Lineage:
    """The lineage in a folder, from its ``lineage.toml``.

    Raises:
        UsageError: If the file is missing or malformed, with file and field.
    """
    table = TomlTable.read(folder / "lineage.toml")
    name = table.string("name")
    if not _NAME.fullmatch(name):
        raise table.fail("name", f"expected letters, digits, '_' and '-', found {name!r}")
    problem = table.string("problem")
    if not re.fullmatch(r"[^:]+:[A-Za-z_]\w*", problem):
        raise table.fail(
            "problem", f"expected 'package.module:NAME' or 'file.py:NAME', found {problem!r}"
        )
    lineage = Lineage(
        name=name,
        title=table.string("title"),
        problem=problem,
        source=table.string("source", default=""),
        reference=table.string("reference", default=""),
        path=folder.resolve(),
    )
    table.done()
    return lineage


def read_step(folder: Path, lineage: Lineage | None) -> Step:
    """The step in a folder, from its ``step.toml``; its parent's existence is not checked here.

    Raises:
        UsageError: If the file is missing or malformed, with file and field.
    """
    folder = folder.resolve()
    table = TomlTable.read(folder / "step.toml")
    name = table.string("name")
    if name != folder.name:
        raise table.fail("name", f"expected the folder's name {folder.name!r}, found {name!r}")
    if not _NAME.fullmatch(name):
        raise table.fail("name", f"expected letters, digits, '_' and '-', found {name!r}")
    status = cast(Status, table.string("status", choices=STATUSES))
    kind = cast(Kind, table.string("kind", default="cuda", choices=tuple(_ENTRY)))
    arch = table.string("arch")
    if not _ARCH.fullmatch(arch) or (arch == "any" and kind == "cuda"):
        raise table.fail(
            "arch", f"expected 'sm_100a', 'sm_90a', ... or, for torch, 'any', found {arch!r}"
        )
    entry = table.string("entry", default=_ENTRY[kind])
    step = Step(
        name=name,
        lineage=lineage.name if lineage else "",
        problem=lineage.problem if lineage else "",
        parent=table.string("parent", default="") or None,
        title=table.string("title"),
        technique=table.string("technique"),
        hypothesis=table.string("hypothesis"),
        arch=arch,
        status=status,
        kind=kind,
        path=folder,
        entry=None if status == "planned" else folder / entry,
        config=table.settings("config"),
        limits=table.settings("limits"),
        repaired=tuple(_read_repair(item) for item in table.tables("repaired")),
        allowances=tuple(_read_allowance(item) for item in table.tables("allowance")),
        reported=_read_reported(table.table("reported"), lineage.source if lineage else ""),
    )
    table.done()
    return step


def _read_repair(table: TomlTable) -> Repair:
    repair = Repair(name=table.string("name"), reason=table.string("reason"))
    table.done()
    return repair


def _read_allowance(table: TomlTable) -> Allowance:
    allowance = Allowance(table.string("what", choices=ALLOWED), table.string("reason"))
    table.done()
    return allowance


def _read_reported(table: TomlTable | None, source: str) -> Reported | None:
    if table is None:
        return None
    reported = Reported(
        device=table.string("device"),
        metric=table.string("metric", choices=METRICS),
        unit=table.string("unit", choices=UNITS),
        values=table.numbers("values"),
        source=table.string("source", default=source),
        note=table.string("note", default=""),
    )
    if not reported.values:
        raise table.fail("values", "expected a table of figures by shape name")
    table.done()
    return reported


def read_submission(file: Path) -> Step:
    """A foreign file as a step; it is parsed, not executed, so nothing of it runs here.

    Raises:
        UsageError: If it is not Python, with the line, or defines no ``custom_kernel``.
    """
    try:
        tree = ast.parse(file.read_bytes(), filename=str(file))
    except (SyntaxError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise UsageError(f"{file}{line}: not valid Python: {error}") from error
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from error
    if not any(_binds_custom_kernel(node) for node in ast.walk(tree)):
        raise UsageError(
            f"{file}: defines no custom_kernel", "a submission defines custom_kernel(data)"
        )
    return Step(
        name=file.stem,
        lineage="",
        problem="",
        parent=None,
        title=file.name,
        technique="a submission from outside the lineages",
        hypothesis="",
        arch="any",
        status="works",
        kind="torch",
        path=file.parent,
        entry=file,
        submission=True,
    )


def _binds_custom_kernel(node: ast.AST) -> bool:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name == "custom_kernel"
        case ast.Name(id="custom_kernel", ctx=ast.Store()):
            return True
        case ast.alias(name=name, asname=alias):
            return (alias or name) in ("custom_kernel", "*")
    return False
