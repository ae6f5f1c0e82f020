"""A compiled step as one Python file that builds and calls it with nothing but nvcc and torch.

The file holds the step's source with all building blocks (:mod:`kernelbench.build.flatten`), a copy
of the host path, and what builds and loads a library (:mod:`kernelbench.lineages.standalone`).
An exported file must stand alone, and must do what the harness does: so it holds a copy of the very
functions, not others that do the same.
"""

from __future__ import annotations

import ast
import importlib.util
import pprint
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernelbench.base.errors import UsageError
from kernelbench.executors.exported import BROKEN_BY, MARK, ExportedStep
from kernelbench.kinds.compiled import flat_source, standalone_flags
from kernelbench.kinds.protocol import ExportableProblem, HostPath
from kernelbench.project.model import Step

_PACKAGE = "kernelbench"
_WORD, _OTHER_WORD = "stream", "queue"
#: The one attribute with that word whose owner is copied, too, so that both change.
_OWN_ATTRIBUTE = "stream_on"

_Definition = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
_Import = ast.Import | ast.ImportFrom

_STANDALONE = Path(__file__).with_name("standalone.py")
_LICENCE = Path(__file__).with_name("standalone_licence.txt")
_BANNED = re.compile("(str)(eam)", re.IGNORECASE)
_WIDTH = 98

_NOTES = """\
Written by `kernelbench export {name}`. On import nvcc builds SOURCE for {arch}; the library is kept
in ~/.cache/exported-steps. All work is put where torch has it current, and nowhere else.
The server refuses a word that CUDA's own names contain: in SOURCE it is broken by {mark!r}, and in
Python it reads "queue"."""

_KERNEL = '''\
_entry = StandaloneStep(
    STEP["name"], STEP["arch"], build_standalone(STEP["name"], SOURCES, FLAGS{build}){load}
)
_kernel = None


def custom_kernel(data):
    """{what}"""
    global _kernel
    if _kernel is None:
        _kernel = {function}(_entry, _entry.device{arguments})
{convert}    return _kernel(data)
'''


def bundle(roots: Sequence[tuple[Path, str]]) -> str:
    """Imports, then the definitions of ``roots`` (file and name) and what they use, in order.

    What comes from kernelbench's modules is copied too, all else is imported. Where code and
    comments have the letters that GPU MODE's server refuses, the copy says ``queue``.

    Raises:
        UsageError: If a definition is not at a file's top level, two files mean different things
            by a name, or a method of torch has those letters in its name.
    """
    copy = _Copy()
    for file, name in roots:
        copy.add(file, name)
    names: dict[str, list[str]] = {}
    for text in sorted(copy.imports):
        module, _, name = text.partition(" import ")
        names.setdefault(module, []).append(name)
    # A plain import has no second half.
    plain = [module for module in names if module.startswith("import ")]
    chosen = [f"{of} import {', '.join(names[of])}" for of in names if of not in plain]
    text = "\n".join([*plain, *chosen]) + "".join(copy.texts) + "\n"
    return re.sub(f"(?i){_WORD}", _replacement, text)


def _replacement(found: re.Match[str]) -> str:
    return _OTHER_WORD.capitalize() if found[0][0].isupper() else _OTHER_WORD


@dataclass
class _Copy:
    """What is copied so far, and where each name comes from."""

    imports: set[str] = field(default_factory=set)
    texts: list[str] = field(default_factory=list)
    origins: dict[str, str] = field(default_factory=dict)
    modules: dict[Path, _Module] = field(default_factory=dict)
    after_constant: bool = False

    def add(self, file: Path, name: str) -> None:
        """Copy a definition after those that it uses, or what it is imported from."""
        if file not in self.modules:
            self.modules[file] = _Module.read(file)
        module = self.modules[file]
        for each in module.imports.get(name, ()):
            self._import(file, each, name)
        if name in module.imports:
            return
        if name not in module.definitions:
            raise UsageError(f"{file} defines no {name} at its top level")
        node = module.definitions[name]
        if self._is_new(name, str(file)):
            self._refuse_foreign_words(file, node)
            names = (each for each in ast.walk(node) if isinstance(each, ast.Name))
            # Those of annotations too.
            for used in (each.id for each in names if isinstance(each.ctx, ast.Load)):
                if used in module.definitions or used in module.imports:
                    self.add(file, used)
            constant = isinstance(node, ast.Assign | ast.AnnAssign)
            gap = "\n" if constant and self.after_constant else "\n\n\n"
            self.texts.append(gap + module.text_of(node))
            self.after_constant = constant

    def _is_new(self, name: str, origin: str) -> bool:
        if name not in self.origins:
            self.origins[name] = origin
            return True
        if self.origins[name] != origin:
            raise UsageError(f"{name} is one thing in {self.origins[name]}, another in {origin}")
        return False

    def _import(self, file: Path, node: _Import, name: str) -> None:
        alias = next(each for each in node.names if _bound_by(each) == name)
        if isinstance(node, ast.Import):
            text = ast.unparse(ast.Import([alias]))
            # "import a.b" and "import a.c" both bind a.
            self._is_new(name, text if alias.asname else f"import {name}")
            self.imports.add(text)
        elif (node.module or "").split(".")[0] != _PACKAGE:
            text = ast.unparse(ast.ImportFrom(node.module, [alias], node.level))
            self._is_new(name, text)
            self.imports.add(text)
        elif alias.asname or node.level:
            raise UsageError(f"{file}:{node.lineno}: {name} cannot be copied under this name")
        else:
            spec = importlib.util.find_spec(node.module or "")
            if spec is None or spec.origin is None:
                raise UsageError(f"{file}:{node.lineno}: there is no {node.module} to copy from")
            self.add(Path(spec.origin), name)

    def _refuse_foreign_words(self, file: Path, node: ast.AST) -> None:
        for each in (each for each in ast.walk(node) if isinstance(each, ast.Attribute)):
            if _WORD in each.attr and each.attr != _OWN_ATTRIBUTE:
                raise UsageError(
                    f"{file}:{each.lineno}: .{each.attr} has letters that the server refuses",
                    f"use entry.{_OWN_ATTRIBUTE}(device)",
                )


@dataclass(frozen=True)
class _Module:
    """A file's top level: what defines or imports each name, and the lines."""

    definitions: dict[str, _Definition]
    imports: dict[str, list[_Import]]
    lines: list[str]

    @classmethod
    def read(cls, file: Path) -> _Module:
        try:
            text = file.read_text(encoding="utf-8")
            tree = ast.parse(text)
        except (OSError, ValueError, SyntaxError) as error:
            raise UsageError(f"{file} cannot be copied from: {error}") from error
        found = cls({}, {}, text.splitlines())
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.definitions[node.name] = node
            elif isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    found.imports.setdefault(_bound_by(alias), []).append(node)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                for each in ast.walk(node):
                    if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                        found.definitions[each.id] = node
        return found

    def text_of(self, node: _Definition) -> str:
        """A definition with its decorators and the comments right above it."""
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(each.lineno for each in decorators)]) - 1
        while first > 0 and self.lines[first - 1].startswith("#"):
            first -= 1
        return "\n".join(self.lines[first : node.end_lineno])


def _bound_by(alias: ast.alias) -> str:
    return alias.asname or alias.name.split(".")[0]


def compiled_text(step: Step, problem: ExportableProblem) -> str:
    """The file of a compiled step, without a server's directives; or UsageError."""
    if not hasattr(problem, "host_path"):
        raise UsageError(
            f"problem {problem.name} has no host_path: its compiled steps cannot be exported"
        )
    host = problem.host_path(step)
    roots = [(_STANDALONE, "StandaloneStep"), (_STANDALONE, "build_standalone")]
    roots += [(host.file, name) for name in (host.function, host.data) if name]
    sources = {"launch.cu": flat_source(step)}
    if host.extension:
        sources["extension.cpp"] = host.extension[1].read_text(encoding="utf-8")
    exported = ExportedStep(step.name, step.lineage, step.arch, step.config, step.limits).as_dict()
    entries = (f'"{file}": {_constant(file)}.replace({MARK}, "")' for file in sources)
    parts = [
        _comment(step),
        "from __future__ import annotations\n",
        bundle(roots),
        "",
        f"STEP = {_broken(pprint.pformat(exported, width=_WIDTH, sort_dicts=False))}",
        f"FLAGS = {pprint.pformat(standalone_flags(step), width=_WIDTH)}",
        f"{MARK} = {BROKEN_BY!r}\n",
        *(f"{_constant(file)} = {_literal(text, step)}\n" for file, text in sources.items()),
        f"SOURCES = {{{', '.join(entries)}}}\n",
        _kernel_text(step, host),
    ]
    return "\n".join(parts)


def _constant(file: str) -> str:
    return "SOURCE" if file.endswith(".cu") else "EXTENSION"


def _comment(step: Step) -> str:
    notes = _NOTES.format(name=step.name, arch=step.arch, mark=BROKEN_BY)
    title = textwrap.fill(f"{step.name}: {step.title}. {step.technique}", _WIDTH)
    lines = "\n\n".join((title, notes, _LICENCE.read_text(encoding="utf-8"))).splitlines()
    text = "".join(f"# {line}".rstrip() + "\n" for line in lines)
    return _broken(text)


def _literal(text: str, step: Step) -> str:
    """A source as a raw string in which the word that the server refuses is broken."""
    if BROKEN_BY in text or '"""' in text:
        raise UsageError(
            f"{step.name} cannot be written as one file: a source has {BROKEN_BY} or three quotes"
        )
    return f'r"""\n{_broken(text)}"""'


def _broken(text: str) -> str:
    return _BANNED.sub(rf"\1{BROKEN_BY}\2", text)


def _kernel_text(step: Step, host: HostPath) -> str:
    arguments = [repr(each) for each in host.arguments]
    build = load = ""
    if host.extension:
        build, load = ", extension=True", f",\n    {host.extension[0]!r},"
        arguments.append("_entry.extension()")
    convert = ""
    if host.data:
        convert = f"    if type(data) is tuple:\n        data = {host.data}(*data)\n"
    return _KERNEL.format(
        what=_broken(f"{step.name}: {step.title}.").replace('"', "'"),
        function=host.function,
        arguments="".join(f", {each}" for each in arguments),
        build=build,
        load=load,
        convert=convert,
    )
