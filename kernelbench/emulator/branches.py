"""Branches that no schedule has taken, from the counters of a step built for the checker.

The counters are gcc's (``--coverage``): the library writes them below a folder of the caller's, and
``gcov`` reads them with the notes that lie beside the library.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kernelbench.emulator.runtime import COMMON_NAME, LINEAGE_NAME, STEP_NAME
from kernelbench.emulator.symbols import located
from kernelbench.machine.toolchain import Compiler

_GCOV_LIMIT_S = 120.0


class NoCoverage(Exception):
    """The counters cannot be read; the message is one line."""


@dataclass(frozen=True)
class Branches:
    """One source line with branches.

    Attributes:
        file: ``v07/kernel.cuh`` or ``common/pipeline.cuh``.
        executions: How often the line was reached.
        taken: Sides of its branches that were taken, out of ``sides``.
        text: The line itself.
    """

    file: str
    line: int
    function: str
    executions: int
    taken: int
    sides: int
    text: str = ""


@dataclass(frozen=True)
class Coverage:
    """All branches of the step's own files and of its building blocks.

    Attributes:
        missed: Lines of which a side was never taken, in order of file and line.
    """

    sides: int
    taken: int
    missed: tuple[Branches, ...]


def collect_into(folder: Path) -> None:
    """Have libraries that are loaded from now on write their counters below ``folder``."""
    os.environ["GCOV_PREFIX"] = str(folder)
    os.environ["GCOV_PREFIX_STRIP"] = "999"


def write_counters(library: ctypes.CDLL) -> None:
    """Add what the library has counted since the last time to its file."""
    dump = getattr(library, "__gcov_dump", None)
    reset = getattr(library, "__gcov_reset", None)
    if dump is not None and reset is not None:
        dump()
        reset()


def read_counters(
    counters: Path, library: Path, folders: Mapping[str, Path], compiler: Compiler
) -> Coverage:
    """What was counted below ``counters`` for a library.

    Args:
        folders: Names in debug information and where they are, as for ``symbols.Symbols``.
        compiler: What built the library.

    Raises:
        NoCoverage: If there is no ``gcov`` for this compiler, or nothing was counted.
    """
    lines: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for file in _gcov(counters, library, compiler):
        where = _resolve(str(file["file"]), folders)
        if where is None:
            continue
        for line in file["lines"]:
            lines.setdefault((where, int(line["line_number"])), []).append(line)
    missed, taken, sides = [], 0, 0
    for (where, number), copies in sorted(lines.items()):
        found = _branches(where, number, copies)
        taken += found.taken
        sides += found.sides
        if found.taken < found.sides:
            missed.append(found)
    return Coverage(sides, taken, tuple(_with_text(missed, folders)))


def executed_lines(counters: Path, library: Path, compiler: Compiler) -> dict[str, dict[int, int]]:
    """How often each line was executed, by file as debug information names it.

    Raises:
        NoCoverage: As :func:`read_counters`.
    """
    found: dict[str, dict[int, int]] = {}
    for file in _gcov(counters, library, compiler):
        counts = found.setdefault(str(file["file"]), {})
        for line in file["lines"]:
            number = int(line["line_number"])
            counts[number] = counts.get(number, 0) + int(line["count"])
    return found


def _gcov(counters: Path, library: Path, compiler: Compiler) -> Iterator[Mapping[str, Any]]:
    tool = _tool(compiler)
    data = sorted(counters.glob("*.gcda"))
    if not data:
        raise NoCoverage("nothing was counted")
    with tempfile.TemporaryDirectory() as name:
        for file in data:
            # gcov looks for the notes beside the counters.
            shutil.copy(file, name)
            notes = library.parent / f"{file.stem}.gcno"
            if not notes.is_file():
                raise NoCoverage(f"{notes.name} is missing beside the library")
            shutil.copy(notes, name)
        done = subprocess.run(
            [tool, "--json-format", "--stdout", "--branch-probabilities", *(f.name for f in data)],
            cwd=name,
            capture_output=True,
            text=True,
            timeout=_GCOV_LIMIT_S,
            check=False,
        )
    decoder = json.JSONDecoder()
    text = done.stdout.strip()
    if done.returncode != 0 or not text:
        said = (done.stderr or "no output").strip().splitlines()[-1]
        raise NoCoverage(f"{Path(tool).name} failed: {said}")
    while text:
        try:
            value, end = decoder.raw_decode(text)
        except ValueError as error:
            raise NoCoverage(f"{Path(tool).name} wrote no JSON: {error}") from error
        yield from value["files"]
        text = text[end:].lstrip()


def tool_for(compiler: Compiler) -> str | None:
    """The ``gcov`` that reads what ``compiler``, a g++, writes."""
    # It reads the files of its own gcc's version only: g++-12 goes with gcov-12.
    beside = compiler.path.with_name(compiler.path.name.replace("g++", "gcov"))
    if beside.is_file() and beside != compiler.path:
        return str(beside)
    return shutil.which("gcov")


def _tool(compiler: Compiler) -> str:
    if compiler.kind != "g++":
        raise NoCoverage(f"counted with g++ only, and {compiler.kind} built this step")
    tool = tool_for(compiler)
    if tool is None:
        raise NoCoverage("there is no gcov")
    return tool


def _resolve(file: str, folders: Mapping[str, Path]) -> str | None:
    """The name under which a file is shown; None for files that are nobody's here."""
    path = PurePosixPath(file)
    for name in (STEP_NAME, LINEAGE_NAME, COMMON_NAME):
        if name in folders and path.is_relative_to(name):
            inside = path.relative_to(name)
            if name != STEP_NAME and "backend" in inside.parts:
                return None
            return f"{name}/{inside}"
    return None


def _branches(where: str, number: int, copies: Iterable[Mapping[str, Any]]) -> Branches:
    """Branches of one line over its copies: inlined functions have one in each caller.

    A side that some copy has taken counts as taken: roles share functions, and what a role needs
    of one is its own affair.
    """
    executions, function = 0, ""
    sides: dict[int, int] = {}
    for copy in copies:
        executions += int(copy["count"])
        function = function or str(copy.get("function_name", ""))
        for index, count in enumerate(_conditions(copy["branches"])):
            sides[index] = sides.get(index, 0) + count
    taken = sum(count > 0 for count in sides.values())
    return Branches(where, number, function, executions, taken, len(sides))


def _conditions(branches: list[Mapping[str, Any]]) -> Iterator[int]:
    """Counts of the sides of conditions; a call that may throw is none."""
    pairs = [branches[i : i + 2] for i in range(0, len(branches), 2)]
    for pair in pairs:
        if not any(branch["throw"] for branch in pair):
            yield from (int(branch["count"]) for branch in pair)


def _with_text(missed: Iterable[Branches], folders: Mapping[str, Path]) -> Iterator[Branches]:
    texts: dict[Path, list[str]] = {}
    for found in missed:
        name = next(name for name in folders if found.file.startswith(f"{name}/"))
        path, shown = located(folders[name], PurePosixPath(found.file).relative_to(name))
        if path not in texts:
            try:
                texts[path] = path.read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                texts[path] = []
        lines = texts[path]
        text = lines[found.line - 1].strip() if found.line <= len(lines) else ""
        yield Branches(
            shown, found.line, found.function, found.executions,
            found.taken, found.sides, text,
        )  # fmt: skip
