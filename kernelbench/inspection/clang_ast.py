"""A compiled step as clang's syntax tree, by libclang, which is optional.

The step is parsed as the emulator's build compiles it, so that no CUDA headers are needed, with the
standard library that the emulator's compiler has. libclang is imported where it is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.build.dependencies import search_folders
from kernelbench.kinds import compiled
from kernelbench.machine.toolchain import emulator_compiler
from kernelbench.project import overlay
from kernelbench.project.model import Step
from kernelbench.project.source_files import sources_of

_FLAGS = ("-x", "c++", "-std=c++20", "-pthread", "-w", "-ferror-limit=1")
_NO_LIBCLANG = "lint reads C++ with libclang, and {reason}"

# CXBinaryOperatorKind (clang-c/Index.h, from LLVM 17 on).
_OPERATORS = {
    3: "*", 4: "/", 5: "%", 6: "+", 7: "-", 8: "<<", 9: ">>", 11: "<", 13: "<=", 16: "!=", 17: "&",
    18: "^", 19: "|", 22: "=", 23: "*=", 24: "/=", 25: "%=", 26: "+=", 27: "-=", 28: "<<=",
    29: ">>=", 30: "&=", 31: "^=", 32: "|=", 33: ",",
}  # fmt: skip


@dataclass(frozen=True)
class StepTree:
    """A step's syntax tree."""

    unit: Any  #: ``clang.cindex.TranslationUnit``.
    #: The files that count, by the name that clang gives them: those of the step, its bases and its
    #: building blocks.
    files: dict[str, Path]
    _texts: dict[str, bytes] = field(default_factory=dict)

    def is_own(self, cursor: Any) -> bool:
        """Whether it stands in a file that counts."""
        file = cursor.location.file
        return file is not None and file.name in self.files

    def text(self, cursor: Any) -> str:
        """Its source text on one line; empty if no file has it."""
        start, end = cursor.extent.start, cursor.extent.end
        if start.file is None or end.file is None or start.file.name != end.file.name:
            return ""
        name = start.file.name
        if name not in self._texts:
            self._texts[name] = Path(name).read_bytes()
        text = self._texts[name][start.offset : end.offset].decode("utf-8", "replace")
        return " ".join(re.sub(r"//[^\n]*", " ", text).split())


def cindex() -> Any:
    """The module ``clang.cindex`` with its library; EnvironmentProblem if missing or too old."""
    hint = "`pip install libclang`, 17 or newer"
    try:
        from clang import cindex as module
    except ImportError:
        raise EnvironmentProblem(_NO_LIBCLANG.format(reason="it is not installed"), hint) from None
    try:
        kind_of = module.conf.lib.clang_getCursorBinaryOperatorKind
    except (module.LibclangError, AttributeError) as error:
        reason = f"it cannot be used: {' '.join(str(error).split())}"
        raise EnvironmentProblem(_NO_LIBCLANG.format(reason=reason), hint) from None
    kind_of.argtypes = [module.Cursor]
    return module


def operator_of(cursor: Any) -> str:
    """The operator of a binary or assigning expression: ``*``, ``+=``; empty if it has none."""
    lib = cindex().conf.lib
    return _OPERATORS.get(lib.clang_getCursorBinaryOperatorKind(cursor), "")


def parse_unit(step: Step) -> StepTree:
    """Parse a compiled step; UsageError without its entry, EnvironmentProblem if clang cannot."""
    module = cindex()
    entry = overlay.entry_of(step)
    common = compiled.common_folder(step)
    blocks = compiled.lineage_blocks(step)
    args = [*_FLAGS, "-nostdinc++"]
    compiler = emulator_compiler()
    folders = search_folders(compiler.path, [], is_nvcc=False)
    if not folders:
        raise EnvironmentProblem(f"{compiler.path} does not say where its headers are")
    for folder in folders:
        args += ["-isystem", folder]
    for path in (*blocks, common, common / "backend" / "emu"):
        args += ["-I", str(path)]
    try:
        unit = module.Index.create().parse(str(entry), args=args)
    except module.TranslationUnitLoadError as error:
        raise EnvironmentProblem(f"{step.name}: libclang cannot parse it: {error}") from None
    for found in unit.diagnostics:
        if found.severity >= module.Diagnostic.Error:
            at = found.location
            file = f"{overlay.real_file(Path(at.file.name))}:{at.line}: " if at.file else ""
            raise EnvironmentProblem(
                f"{step.name}: libclang cannot parse it: {file}{found.spelling}",
                f"`kernelbench check {step.name}` says what the emulator's compiler says",
            )
    return StepTree(unit, _files(unit, step, (*blocks, common), common / "backend"))


def _files(unit: Any, step: Step, blocks: tuple[Path, ...], backend: Path) -> dict[str, Path]:
    """What counts of the files that clang has read, and which files they are."""
    sources = {file.resolve() for file in sources_of(step).values()}
    found = {}
    for name in {str(unit.spelling), *(include.include.name for include in unit.get_includes())}:
        file = Path(name).resolve()
        shared = any(file.is_relative_to(folder.resolve()) for folder in blocks)
        if file in sources or (shared and not file.is_relative_to(backend.resolve())):
            found[name] = file
    return found


def walk(tree: StepTree) -> Iterator[Any]:
    """Every cursor of the files that count, a parent before its children."""
    waiting = [*tree.unit.cursor.get_children()][::-1]
    namespace = cindex().CursorKind.NAMESPACE
    while waiting:
        cursor = waiting.pop()
        if cursor.kind == namespace or tree.is_own(cursor):
            yield cursor
            if cursor.kind != namespace or cursor.spelling != "std":
                waiting += [*cursor.get_children()][::-1]
