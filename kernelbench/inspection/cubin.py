"""Device code as nvcc makes it: what ptxas says of each function, and the sections of its cubin.

Nothing here needs a GPU or a disassembler.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernelbench.base.demangle import cxx_name
from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.build import compiler
from kernelbench.kinds import compiled, cuda_build
from kernelbench.machine.toolchain import gencode
from kernelbench.project import overlay
from kernelbench.project.model import Allowance, Step

#: What ptxas is asked for; it changes no code.
_PTXAS = ("-Xptxas", "-v,-warn-spills,-warn-lmem-usage")

_COMPILING = re.compile(r"Compiling entry function '(?P<name>[^']+)' for '(?P<arch>[^']+)'")
_PROPERTIES = re.compile(r"Function properties for (?P<name>\S+)")
_STACK = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads"
)
_USED = re.compile(r"Used (?P<registers>\d+) registers")
_BARRIERS = re.compile(r"used (?P<barriers>\d+) barriers")
_SHARED = re.compile(r"(?P<shared>\d+) bytes smem")
# Directives stand between the parameters and the body.
_BOUND = re.compile(r"\.entry\s+(?P<name>[\w$]+)(?P<rest>[^{;]*?)\{", re.DOTALL)
_MAX_THREADS = re.compile(r"\.(?:maxntid|reqntid)\s+(?P<extents>\d+(?:\s*,\s*\d+)*)")
# ptxas warns of a spill with both sentences.
_SPILL_WARNING = re.compile(
    r"(?:spilled to local memory in|Local memory used for) function '(.+?)'"
)
_TEXT = ".text."
_INFO = ".nv.info."
# Of a kernel's attributes: the format with a length, and the numbers of MAX_THREADS and REQNTID.
_SIZED, _THREAD_BOUNDS = 4, (0x05, 0x10)
# Bank 0 has a launch's parameters; banks from 2 on hold literals that the code reads.
_LITERALS = re.compile(r"\.nv\.constant[2-9]\d*(?:\.(?P<of>.+))?|\.nv\.global\.init")
_TARGET = re.compile(r"^\s*\.target\s+(sm_\w+)", re.M)
#: The name under which a cubin's data that belongs to no single kernel is hashed.
SHARED_DATA = "(data)"


@dataclass(frozen=True)
class Function:
    """A kernel, or a function that one calls."""

    symbol: str  #: The mangled name.
    kernel: bool  #: Whether it can be launched.
    #: Per thread; 0 for a function that is called, which counts with its kernel.
    registers: int = 0
    barriers: int = 0  #: Named barriers, barrier 0 included.
    stack_bytes: int = 0
    spill_store_bytes: int = 0
    spill_load_bytes: int = 0
    shared_bytes: int = 0  #: Static shared memory.
    code_bytes: int = 0  #: Size of its section of code; 0 if it is part of another's.

    @property
    def spills(self) -> bool:
        """Whether registers were spilled."""
        return bool(self.spill_store_bytes or self.spill_load_bytes)


@dataclass(frozen=True)
class Cubin:
    """One step's device code for one GPU."""

    path: Path  #: The file, in the cache.
    functions: tuple[Function, ...]  #: Kernels first.
    warnings: tuple[str, ...]  #: What nvcc and ptxas warned of, a line each.
    #: SHA-256 of each kernel's code with the literals that it reads, by symbol.
    hashes: Mapping[str, str] = field(default_factory=dict)
    #: The most threads that a kernel may be launched with, by symbol, where it says so.
    bounds: Mapping[str, int] = field(default_factory=dict)

    @property
    def kernels(self) -> tuple[Function, ...]:
        """What can be launched."""
        return tuple(function for function in self.functions if function.kernel)

    @property
    def spilling(self) -> tuple[str, ...]:
        """Names of functions that are called and spill."""
        return tuple(demangled(f.symbol) for f in self.functions if f.spills and not f.kernel)


def compile_cubin(step: Step, *, soft: bool = False, arch: str = "") -> Cubin:
    """The step's device code, from the cache or built now, with the flags of every build.

    Args:
        soft: For gpu-soft; else for the step's own arch.
        arch: For a CUDA step, what to build for.

    Raises:
        CompileFailure: If the step does not compile.
        EnvironmentProblem: If there is no nvcc.
    """
    path = compiler.build(cubin_recipe(step, soft=soft, arch=arch))
    return read_cubin(path, compiler.build_log(path))


def read_cubin(path: Path, log: str) -> Cubin:
    """A cubin, with what ``ptxas -v`` said of it; EnvironmentProblem if it cannot be read."""
    functions, warnings = read_ptxas_log(log)
    sizes, hashes, bounds = _read_sections(path)
    sized = tuple(replace(f, code_bytes=sizes.get(f.symbol, 0)) for f in functions)
    return Cubin(path, sized, warnings, hashes, bounds)


def cubin_recipe(step: Step, *, soft: bool = False, arch: str = "") -> compiler.Recipe:
    """How nvcc makes what :func:`compile_cubin` returns."""
    flags = ("-cubin", *_PTXAS)
    if step.kind == "ptx":
        name = f"{step.name} ({arch}, cubin)"
        nvcc = compiler.needed_nvcc(name)
        command = [*gencode(arch or target_of(step)), *flags]
        return compiler.Recipe(name, nvcc, [overlay.entry_of(step)], command, (), None)
    return _recipe(step, soft, arch, flags, "cubin")


def _recipe(step: Step, soft: bool, arch: str, flags: Sequence[str], what: str) -> compiler.Recipe:
    if step.kind == "cuda":
        return cuda_build.cuda_recipe(step, arch, flags=flags, what=what)
    return compiled.gpu_recipe(step, soft=soft, flags=flags, what=what)


def complaints(code: Cubin, allowances: Sequence[Allowance]) -> list[str]:
    """What the compilers say of the code that a step does not allow with a reason, a line each."""
    allowed = {allowance.what for allowance in allowances}
    spilling = {function.symbol: function for function in code.functions if function.spills}
    found = [
        f"{demangled(symbol)} spills: {f.spill_store_bytes} bytes stored, "
        f"{f.spill_load_bytes} loaded"
        for symbol, f in spilling.items()
        if "spill" not in allowed
    ]
    for warning in code.warnings:
        match = _SPILL_WARNING.search(warning)
        what = "spill" if match and match[1] in spilling else "warning"
        if what not in allowed:
            found.append(warning)
    return found


def compile_ptx(step: Step, *, soft: bool = False, arch: str = "") -> str:
    """The step's PTX; arguments as for :func:`compile_cubin`."""
    if step.kind == "ptx":
        return overlay.entry_of(step).read_text()
    return compiler.build(_recipe(step, soft, arch, ("-ptx",), "PTX")).read_text()


def target_of(step: Step) -> str:
    """What a PTX step's file says that it is for; UsageError if it says nothing."""
    file = overlay.entry_of(step)
    found = _TARGET.search(file.read_text(errors="replace"))
    if found is None:
        raise UsageError(f"{file}: no .target")
    return found[1]


def read_ptxas_log(log: str) -> tuple[tuple[Function, ...], tuple[str, ...]]:
    """The functions that ``ptxas -v`` tells of, kernels first, and all warnings."""
    found: dict[str, Function] = {}
    kernels: set[str] = set()
    warnings: list[str] = []
    kernel = named = ""
    for line in log.splitlines():
        if re.search(r"\bwarning\b", line, re.IGNORECASE):
            warnings.append(_without_folders(" ".join(line.split())))
        elif match := _COMPILING.search(line):
            kernel = match["name"]
            kernels.add(kernel)
            found.setdefault(kernel, Function(kernel, True))
        elif match := _PROPERTIES.search(line):
            named = match["name"]
            found.setdefault(named, Function(named, named in kernels))
        elif named and (match := _STACK.search(line)):
            found[named] = replace(
                found[named],
                stack_bytes=int(match["stack"]),
                spill_store_bytes=int(match["stores"]),
                spill_load_bytes=int(match["loads"]),
            )
        elif kernel and (match := _USED.search(line)):
            found[kernel] = replace(
                found[kernel],
                registers=int(match["registers"]),
                barriers=_number(_BARRIERS, line),
                shared_bytes=_number(_SHARED, line),
            )
    functions = sorted(found.values(), key=lambda function: not function.kernel)
    return tuple(functions), tuple(dict.fromkeys(warnings))


def _number(pattern: re.Pattern[str], line: str) -> int:
    match = pattern.search(line)
    return int(match[1]) if match else 0


def _without_folders(line: str) -> str:
    """The line with file names for paths: what is wrong does not depend on the checkout."""
    return re.sub(r"(?<![\w.])/(?:[^\s/:()]+/)+", "", line)


def launch_bounds(ptx: str) -> dict[str, int]:
    """The most threads that each kernel may be launched with, where its PTX says so."""
    bounds = {}
    for entry in _BOUND.finditer(ptx):
        if match := _MAX_THREADS.search(entry["rest"]):
            bounds[entry["name"]] = math.prod(map(int, match["extents"].split(",")))
    return bounds


def _read_sections(path: Path) -> tuple[dict[str, int], dict[str, str], dict[str, int]]:
    """Size and hash of each function's code, and the most threads that a kernel allows.

    Line tables, names of files and the like are in sections of their own, so neither a comment nor
    a line that moves changes anything here.
    """
    try:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
    except ImportError as error:
        raise EnvironmentProblem(
            "pyelftools is missing, which reads device code", "`pip install pyelftools`"
        ) from error

    code: dict[str, bytes] = {}
    literals: dict[str, list[tuple[str, bytes]]] = {}
    bounds: dict[str, int] = {}
    try:
        with path.open("rb") as stream:
            for section in ELFFile(stream).iter_sections():
                if section.name.startswith(_TEXT):
                    code[section.name.removeprefix(_TEXT)] = section.data()
                elif section.name.startswith(_INFO):
                    if threads := _most_threads(section.data()):
                        bounds[section.name.removeprefix(_INFO)] = threads
                elif match := _LITERALS.fullmatch(section.name):
                    owner = match["of"] or SHARED_DATA
                    literals.setdefault(owner, []).append((section.name, section.data()))
    except ELFError as error:
        raise EnvironmentProblem(f"{path}: not a cubin: {error}") from error
    hashes = {}
    for name in sorted({*code, *literals}):
        digest = hashlib.sha256()
        for label, content in [
            (_TEXT + name, code.get(name, b"")),
            *sorted(literals.get(name, [])),
        ]:
            digest.update(b"%s %d\n" % (label.encode(), len(content)))
            digest.update(content)
        hashes[name] = digest.hexdigest()
    return {name: len(content) for name, content in code.items()}, hashes, bounds


def _most_threads(info: bytes) -> int:
    """Of ``__launch_bounds__`` or a required CTA, from a kernel's attributes; 0 if it has none.

    An attribute is a format byte, its number and two bytes: a value, or the length of what follows.
    """
    at = 0
    while at + 4 <= len(info):
        form, number, length = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != _SIZED:
            continue
        if number in _THREAD_BOUNDS and length == 12:
            x, y, z = struct.unpack_from("<III", info, at)
            return int(x * y * z)
        at += length
    return 0


def demangled(symbol: str) -> str:
    """``kb::step::group_gemm`` for its mangled name; parameters and return type are left out.

    Where there is no C++ library to ask, the name as it is.
    """
    return _bare(cxx_name(symbol) or symbol)


def _bare(name: str) -> str:
    """A demangled name without its parameters and, as templates have one, its return type."""
    depth = 0
    for i in range(len(name) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(name[i], 0)
        if name[i] == "(" and depth == 0:
            name = name[:i]
            break
    return name.removeprefix("void ")
