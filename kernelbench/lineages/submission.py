"""A step as one file for GPU MODE's server, checked against the rules that the server applies.

The rules (gpu-mode/kernelbot: ``api_utils.to_submit_info`` and ``submission.py``, read in 2026):

* UTF-8, at most 1,000,000 bytes, and the letters ``stream`` nowhere, comments included;
* ``#!POPCORN`` directives in the first comment block: ``leaderboard NAME`` and ``gpu NAME...``,
  each at most once.

And what makes a file run there at all: it defines ``custom_kernel`` of one argument, and needs
nothing but the standard library, torch, triton, and the task's own ``task`` and ``utils``.

The check is static. It cannot see a module that is imported by a computed name, or a file that
is read by a computed path.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from kernelbench.base.errors import UsageError
from kernelbench.kinds.callables import ENTRY_POINT
from kernelbench.kinds.protocol import ExportableProblem
from kernelbench.lineages.compiled_export import compiled_text
from kernelbench.project.problem import Problem
from kernelbench.project.registry import Step, require_runnable

MAX_BYTES = 1_000_000
BANNED = "stream"
DIRECTIVE = "#!POPCORN"
#: Modules besides the standard library that the server's tasks offer.
ALLOWED_MODULES = frozenset({"torch", "triton", "task", "utils"})


@dataclass(frozen=True)
class Violation:
    """A rule that a file breaks; ``line`` is 0 where the whole file does."""

    line: int
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


@dataclass(frozen=True)
class Exported:
    """A file that the rules accept, and where it is meant for: no ``leaderboard`` if nowhere."""

    text: str
    leaderboard: str
    gpus: tuple[str, ...]


def export(
    step: Step,
    leaderboard: str | None = None,
    gpus: tuple[str, ...] = (),
    problem: Problem | None = None,
) -> Exported:
    """The submission of a step: its own file, or one that holds all of a compiled step.

    Args:
        leaderboard: Name for the header; by default the one in the step's own file or, for a
            compiled step, the one where GPU MODE has its problem.
        gpus: GPU names for the header, likewise.
        problem: The step's problem, which a compiled step needs.

    Raises:
        PlannedStepError: If the step is planned.
        UsageError: If the file is unreadable, or if it breaks a rule; if a compiled step cannot be
            written as one file; if it is a CUDA step.
    """
    entry = require_runnable(step)
    if step.kind == "cuda":
        raise UsageError(
            f"{step.in_words}, which cannot be exported",
            "a Python file that builds it (torch's load_inline) can",
        )
    if step.compiled:
        text, leaderboard, gpus = _compiled(step, problem, leaderboard, gpus)
    else:
        text = _own_file(entry)
    text = with_header(text, leaderboard, gpus)
    broken = violations(text)
    if broken:
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        raise UsageError(f"{step.name} cannot be submitted: {broken[0]}{more}")
    found = directives(text)
    named = found.get("leaderboard", [""])[0]
    if not (named or step.compiled):
        raise UsageError(
            f"{step.name} names no leaderboard", "give --leaderboard NAME for the file's header"
        )
    return Exported(text, named, tuple(found.get("gpu", ())))


def _own_file(entry: Path) -> str:
    try:
        return entry.read_bytes().decode("utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {entry}: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise UsageError(f"{entry} is not UTF-8 text, which the server refuses") from None


def _compiled(
    step: Step, problem: Problem | None, leaderboard: str | None, gpus: tuple[str, ...]
) -> tuple[str, str | None, tuple[str, ...]]:
    """A compiled step's file, and what its header says; no leaderboard where GPU MODE has none."""
    if problem is None:
        raise UsageError(f"{step.name} is of no problem here", "export a lineage's step")
    known = getattr(problem, "leaderboards", {}).get(step.arch)
    if known and leaderboard is None:
        leaderboard, gpus = known[0], gpus or (known[1],)
    return compiled_text(step, cast("ExportableProblem", problem)), leaderboard, gpus


def with_header(text: str, leaderboard: str | None, gpus: tuple[str, ...]) -> str:
    """``text`` with the given directives in front, in place of its own of the same kind."""
    given = {"leaderboard": (leaderboard,) if leaderboard else (), "gpu": gpus}
    replaced = {kind for kind, values in given.items() if values}
    header = [f"{DIRECTIVE} {kind} {' '.join(given[kind])}" for kind in sorted(replaced)[::-1]]
    kept = []
    comments = True
    for line in text.splitlines():
        comments = comments and line.startswith("#")
        if comments and line.startswith(DIRECTIVE) and _kind(line) in replaced:
            continue
        kept.append(line)
    return "\n".join([*header, *kept]) + "\n"


def directives(text: str) -> dict[str, list[str]]:
    """Directives of the first comment block: kind (``leaderboard``, ``gpu``) -> words."""
    found: dict[str, list[str]] = {}
    for _, line in _directive_lines(text):
        words = line.split()
        if len(words) >= 3:
            found.setdefault(_kind(line), words[2:])
    return found


def _directive_lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        # The server stops at the first line that is no comment.
        if not line.startswith("#"):
            return
        if line.split()[0] == DIRECTIVE:
            yield number, line


def _kind(line: str) -> str:
    words = line.split()
    kind = words[1].lower() if len(words) > 1 else ""
    return "gpu" if kind == "gpus" else kind


def violations(text: str) -> list[Violation]:
    """Every rule that ``text`` breaks, in the order of its lines; empty if it is acceptable."""
    found = [*_text_violations(text), *_directive_violations(text)]
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 0
        found.append(Violation(line, f"not valid Python: {getattr(error, 'msg', error)}"))
    else:
        found += [*_import_violations(tree), *_entry_violations(tree)]
    return sorted(found, key=lambda violation: violation.line)


def _text_violations(text: str) -> Iterator[Violation]:
    size = len(text.encode("utf-8", errors="surrogatepass"))
    if size > MAX_BYTES:
        yield Violation(0, f"{size} bytes, the server takes {MAX_BYTES}")
    for number, line in enumerate(text.splitlines(), 1):
        if BANNED in line.lower():
            yield Violation(number, f"holds the letters {BANNED!r}, which the server refuses")


def _directive_violations(text: str) -> Iterator[Violation]:
    seen: set[str] = set()
    for number, line in _directive_lines(text):
        kind = _kind(line)
        if kind not in ("leaderboard", "gpu"):
            yield Violation(number, f"unknown directive {line!r}: expected leaderboard or gpu")
        elif len(line.split()) < 3:
            yield Violation(number, f"directive {line!r} lacks its value")
        elif kind in seen:
            yield Violation(number, f"a second {kind} directive")
        seen.add(kind)


def _import_violations(tree: ast.Module) -> Iterator[Violation]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield Violation(node.lineno, "relative import: the file must stand alone")
        elif isinstance(node, ast.ImportFrom):
            yield from _module_violation(node.lineno, node.module or "")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module_violation(node.lineno, alias.name)
        elif isinstance(node, ast.Name) and node.id == "__file__":
            yield Violation(node.lineno, "uses __file__: the file must stand alone")


def _module_violation(line: int, module: str) -> Iterator[Violation]:
    top = module.split(".")[0]
    if top not in ALLOWED_MODULES and top not in sys.stdlib_module_names:
        allowed = ", ".join(sorted(ALLOWED_MODULES))
        yield Violation(line, f"imports {top!r}: allowed are the standard library, {allowed}")


def _entry_violations(tree: ast.Module) -> Iterator[Violation]:
    """``custom_kernel`` must be bound at the top level; a ``def`` must take one argument."""
    bound = False
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == ENTRY_POINT:
            bound = True
            positional = [*node.args.posonlyargs, *node.args.args]
            required = len(positional) - len(node.args.defaults)
            needs_keyword = any(default is None for default in node.args.kw_defaults)
            takes_one = positional or node.args.vararg
            if required > 1 or not takes_one or needs_keyword:
                yield Violation(node.lineno, f"{ENTRY_POINT} must take one argument, the data")
        elif isinstance(node, ast.AsyncFunctionDef) and node.name == ENTRY_POINT:
            bound = True
            yield Violation(node.lineno, f"{ENTRY_POINT} must not be a coroutine")
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.ImportFrom | ast.Import):
            bound = bound or ENTRY_POINT in _bound_names(node)
    if not bound:
        yield Violation(0, f"defines no {ENTRY_POINT}(data) at the top level")


def _bound_names(node: ast.Assign | ast.AnnAssign | ast.ImportFrom | ast.Import) -> set[str]:
    if isinstance(node, ast.Assign):
        return {name.id for target in node.targets for name in ast.walk(target)
                if isinstance(name, ast.Name)}  # fmt: skip
    if isinstance(node, ast.AnnAssign):
        named = isinstance(node.target, ast.Name) and node.value is not None
        return {node.target.id} if named and isinstance(node.target, ast.Name) else set()
    return {alias.asname or alias.name for alias in node.names}
