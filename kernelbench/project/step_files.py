"""Reading ``lineage.toml``, ``step.toml`` and foreign submissions, for the registry."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import cast

from kernelbench.base.errors import UnknownNameError, UsageError
from kernelbench.base.toml_file import TomlTable
from kernelbench.project.model import (
    ALLOWED,
    IDENTITY,
    KIND_WORDS,
    METRIC_NAMES,
    STATUSES,
    UNITS,
    Allowance,
    Kind,
    Lineage,
    Repair,
    Reported,
    Step,
    StepStatus,
)

#: The entry file of each kind of step, if ``entry`` names no other.
ENTRY_FILES: dict[Kind, str] = {
    "step": "launch.cu",
    "python": "submission.py",
    "triton": "submission.py",
    "cuda": "kernel.cu",
    "ptx": "kernel.ptx",
}
#: What kinds were called before, for files from then.
_FORMER_KINDS: dict[str, Kind] = {"cuda": "step", "torch": "python"}
_ARCH = re.compile(r"any|sm_\d+[af]?")
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
#: A lineage's name may have parts (``peers.moe``); two dots would be a range.
_LINEAGE_NAME = re.compile(rf"{NAME.pattern}(\.{NAME.pattern})*")
_BOOL = "true|false"
#: What a step may ask nvcc for: none changes what the sources mean, or where they come from.
_GPU_FLAG = re.compile(
    rf"--use_fast_math|--fmad=({_BOOL})|--ftz=({_BOOL})|--maxrregcount=[1-9]\d*|-Xptxas[ =]\S+"
)
#: What a CUDA step may ask it for, too.
_CUDA_FLAG = re.compile(
    rf"{_GPU_FLAG.pattern}|-std=c\+\+(17|20)|-D[A-Za-z_]\w*(=\S+)?|-I ?\S+|-l\w+"
    r"|--extended-lambda|--expt-(extended-lambda|relaxed-constexpr)"
)
_FUNCTION = re.compile(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)*")


def read_lineage(folder: Path) -> Lineage:
    """The lineage in a folder, from its ``lineage.toml``; UsageError if that is malformed."""
    table = TomlTable.read(folder / "lineage.toml")
    name = table.string("name")
    if not _LINEAGE_NAME.fullmatch(name):
        raise table.fail("name", f"expected letters, digits, '_', '-' and '.', found {name!r}")
    problem = table.string("problem")
    if not re.fullmatch(r"([^:]+:)?[A-Za-z_][\w.-]*", problem) or problem.endswith(".py"):
        raise table.fail(
            "problem",
            "expected 'package.module:NAME', 'file.py:NAME' or the name of an installed problem, "
            f"found {problem!r}",
        )
    lineage = Lineage(
        name=name,
        title=table.string("title"),
        problem=problem,
        source=table.string("source", default=""),
        reference=table.string("reference", default=""),
        path=folder.resolve(),
        peers_of=table.string("peers_of", default=""),
        building_blocks=table.string("building_blocks", default=""),
        best=table.string("best", default=""),
    )
    table.done()
    return lineage


def lineage_folder(step: Path) -> Path | None:
    """The lineage's folder that a step's folder is in, directly or in a subfolder; None if none."""
    return next((f for f in step.resolve().parents[:2] if (f / "lineage.toml").is_file()), None)


def step_folders(lineage: Path) -> list[Path]:
    """The folders of a lineage's steps: in its own folder, and in subfolders of that.

    What is hidden or in ``common`` is no step, nor is a folder inside a step's.
    """
    found = []
    for file in sorted([*lineage.glob("*/step.toml"), *lineage.glob("*/*/step.toml")]):
        parts = file.parent.relative_to(lineage).parts
        inside_step = len(parts) == 2 and (lineage / parts[0] / "step.toml").is_file()
        if not inside_step and not any(part.startswith(".") or part == "common" for part in parts):
            found.append(file.parent)
    return found


def folder_without_step(lineage: Path, name: str) -> Path | None:
    """The folder in a lineage's that would be the step ``name`` if it had a ``step.toml``."""
    folder = lineage / name
    if not NAME.fullmatch(name) or name == "common" or not folder.is_dir():
        return None
    return None if any([*folder.glob("step.toml"), *folder.glob("*/step.toml")]) else folder


def read_step(
    folder: Path,
    lineage: Lineage | None,
    known: dict[str, Step | None] | None = None,
    *,
    former: bool = False,
) -> Step:
    """The step in a folder, from its ``step.toml``; its parent's existence is not checked here.

    A step with a ``base`` takes from it what it does not say itself: kind, entry, arch, GPU flags,
    function, arguments, and each setting and limit.

    Args:
        known: Steps of the lineage that were read before, by name, and None for one that is being
            read; this call adds the step and its bases.
        former: Whether the file may be from when kinds had other names (``torch``, ``cuda``).

    Raises:
        UsageError: If the file is missing or malformed, with file and field; if its base is no step
            of the lineage, or bases form a cycle.
    """
    folder = folder.resolve()
    table = TomlTable.read(folder / "step.toml")
    name = table.string("name")
    if name != folder.name:
        raise table.fail("name", f"expected the folder's name {folder.name!r}, found {name!r}")
    if not NAME.fullmatch(name):
        raise table.fail("name", f"expected letters, digits, '_' and '-', found {name!r}")
    status = cast(StepStatus, table.string("status", choices=STATUSES))
    known = {} if known is None else known
    if (before := known.get(name)) and before.path == folder:
        return before
    known[name] = None
    base = _read_base(table, lineage, known, former)
    if base and base.status == "planned" and status != "planned":
        raise table.fail("base", f"{base.name} is planned: it has no code yet")
    kind = _read_kind(table, base, former)
    # PTX may be launched by the host path of a compiled step.
    hosted = kind == "ptx" and base is not None and base.kind == "step"
    if base and kind != base.kind and not hosted:
        raise table.fail("kind", f"expected {base.kind!r}, that of the base, found {kind!r}")
    arch = table.string("arch", base.arch if base else None if kind == "step" else "any")
    if not _ARCH.fullmatch(arch) or (arch == "any" and kind == "step"):
        raise table.fail(
            "arch",
            f"expected 'sm_100a', 'sm_90a', ... or, but for kind 'step', 'any', found {arch!r}",
        )
    entry = table.string("entry", default="")
    entry_file = folder / (entry or ENTRY_FILES[kind])
    if base and base.entry and not hosted and not entry_file.is_file():
        entry_file = base.path / entry if entry else base.entry
    gpu_flags = _read_gpu_flags(table, kind)
    needs = table.strings("needs")
    if needs and kind not in ("python", "triton"):
        raise table.fail("needs", f"{KIND_WORDS[kind]}'s arch says what it needs")
    function, arguments = _read_function(table, kind, base)
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
        entry=None if status == "planned" else entry_file,
        subfolder="" if lineage is None or folder.parent == lineage.path else folder.parent.name,
        base=base,
        gpu_flags=base.gpu_flags if base and gpu_flags is None else gpu_flags or (),
        needs=needs or (base.needs if base else ()),
        function=function,
        arguments=arguments,
        config=(base.config if base else {}) | table.settings("config"),
        limits=(base.limits if base else {}) | table.settings("limits"),
        repaired=tuple(_read_repair(item) for item in table.tables("repaired")),
        allowances=tuple(_read_allowance(item) for item in table.tables("allowance")),
        reported=_read_reported(table.table("reported"), lineage.source if lineage else ""),
    )
    table.done()
    known[name] = step
    return step


def _read_kind(table: TomlTable, base: Step | None, former: bool) -> Kind:
    # Of the two kinds that were called "cuda", only that of now names a function.
    called_so_now = "function" in table or (base is not None and base.kind == "cuda")
    found = table.string("kind", base.kind if base else "step")
    if former and found in _FORMER_KINDS and not called_so_now:
        return _FORMER_KINDS[found]
    if found in _FORMER_KINDS and found not in ENTRY_FILES:
        raise table.fail("kind", f"{found!r} is called {_FORMER_KINDS[found]!r} now")
    if found not in ENTRY_FILES:
        raise table.fail(
            "kind", f"expected one of {', '.join(map(repr, ENTRY_FILES))}, found {found!r}"
        )
    return found


def _read_function(
    table: TomlTable, kind: Kind, base: Step | None
) -> tuple[str, tuple[str, ...] | None]:
    """What a CUDA step calls, and with what; nothing for other kinds."""
    if kind != "cuda":
        for name in ("function", "arguments"):
            if name in table:
                raise table.fail(name, f"is for kind 'cuda'; this is {KIND_WORDS[kind]}")
        return "", None
    function = table.string("function", base.function if base else "")
    if not _FUNCTION.fullmatch(function):
        found = f"found {function!r}" if function else "missing"
        raise table.fail(
            "function",
            f"{found}, expected the C++ function to call; a step of the building blocks, with a "
            "launch.cu, has kind 'step'",
        )
    if "arguments" not in table:
        table.strings("arguments")
        return function, base.arguments if base else None
    arguments = table.strings("arguments")
    for text in arguments:
        try:
            ast.parse(text, mode="eval")
        except SyntaxError as error:
            raise table.fail("arguments", f"not a Python expression: {text!r}") from error
    return function, arguments


def _read_base(
    table: TomlTable, lineage: Lineage | None, known: dict[str, Step | None], former: bool
) -> Step | None:
    name = table.string("base", default="")
    if not name:
        return None
    if name in known:
        if known[name] is None:
            raise table.fail("base", f"bases form a cycle: {name} has this step as its base")
        return known[name]
    folders = {folder.name: folder for folder in step_folders(lineage.path)} if lineage else {}
    if lineage is None or name not in folders:
        raise UnknownNameError("step", name, folders, f" (field 'base') in {table.file}")
    return read_step(folders[name], lineage, known, former=former)


def _read_gpu_flags(table: TomlTable, kind: Kind) -> tuple[str, ...] | None:
    """The flags, None where the field is absent: an empty list is one, and says none."""
    if "gpu_flags" not in table:
        table.strings("gpu_flags")
        return None
    flags = tuple(" ".join(flag.split()) for flag in table.strings("gpu_flags"))
    if kind not in ("step", "cuda"):
        raise table.fail("gpu_flags", f"{KIND_WORDS[kind]} is not built by nvcc")
    for flag in flags:
        if not (_CUDA_FLAG if kind == "cuda" else _GPU_FLAG).fullmatch(flag):
            more = ", -std=, -D, -I, -l, --extended-lambda, --expt-…" if kind == "cuda" else ""
            raise table.fail(
                "gpu_flags",
                "expected --use_fast_math, --fmad=true|false, --ftz=true|false, --maxrregcount=N"
                f"{more} or '-Xptxas OPTION', found {flag!r}",
            )
    return flags


def _read_repair(table: TomlTable) -> Repair:
    repair = Repair(name=table.string("name"), reason=table.string("reason"))
    table.done()
    return repair


def _read_allowance(table: TomlTable) -> Allowance:
    what = table.string("what")
    if what not in ALLOWED and not IDENTITY.fullmatch(what):
        wanted = f"one of {', '.join(ALLOWED)} or a finding's identity, as race-0123456789"
        raise table.fail("what", f"expected {wanted}, found {what!r}")
    allowance = Allowance(what, table.string("reason"))
    table.done()
    return allowance


def _read_reported(table: TomlTable | None, source: str) -> Reported | None:
    if table is None:
        return None
    reported = Reported(
        device=table.string("device"),
        metric=table.string("metric", choices=METRIC_NAMES),
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
    """A foreign file as a step, parsed and not executed; UsageError without ``custom_kernel``."""
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
        kind="triton" if any(_imports_triton(node) for node in tree.body) else "python",
        path=file.parent,
        entry=file,
        submission=True,
    )


def is_submission(file: Path) -> bool:
    """Whether a file binds ``custom_kernel`` at its top level; nothing of it runs here."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return False
    bound = (each for node in tree.body for each in (node, *getattr(node, "targets", ())))
    return any(map(_binds_custom_kernel, bound))


def _imports_triton(node: ast.stmt) -> bool:
    """Whether a file cannot do without Triton: an import in a ``try`` may fail."""
    named = node.names if isinstance(node, ast.Import) else []
    modules = [each.name for each in named] or [getattr(node, "module", None) or ""]
    return any(module.partition(".")[0] == "triton" for module in modules)


def _binds_custom_kernel(node: ast.AST) -> bool:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name == "custom_kernel"
        case ast.Name(id="custom_kernel", ctx=ast.Store()):
            return True
        case ast.alias(name=name, asname=alias):
            return (alias or name) in ("custom_kernel", "*")
    return False
