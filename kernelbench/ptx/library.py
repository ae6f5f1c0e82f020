"""A PTX module parsed (PTX ISA 9.1, chapters 4, 5 and 11), built for the emulator and loaded.

Not a validator: what ptxas would refuse may pass.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import tempfile
from pathlib import Path

from kernelbench.build.compiler import Recipe, build
from kernelbench.emulator.runtime import load_emulated
from kernelbench.machine.toolchain import cpu_level, emulator_compiler
from kernelbench.ptx.lowering.translator import PTX_FOLDER, Translation, translate
from kernelbench.ptx.parser.body import read_body
from kernelbench.ptx.parser.declarations import SPACES, read_parameters, read_variable
from kernelbench.ptx.parser.model import Module, PtxFunction
from kernelbench.ptx.parser.tokens import END, Tokens, number_of

_LINKING = (".visible", ".extern", ".weak", ".common")

# A contracted sum of a product would be rounded once where PTX says twice. Lines are all that debug
# information is needed for: with variables g++ takes twice as long.
_FLAGS = ("-std=c++20", "-g1", "-fvisibility=hidden", "-ffp-contract=off")
# -O2 takes g++ twice as long, and what runs is as fast: most of it is the runtime's.
_PLAIN_FLAGS = ("-O1",)
# What -fsanitize=thread would announce, translated loads and stores announce themselves.
_CHECK_FLAGS = ("-O1", "-DKB_PTX_CHECK")


def parse(name: str, text: str) -> Module:
    """Read a module.

    Args:
        name: What messages and findings call it.

    Raises:
        PtxError: With file and line, for text that is not PTX.
    """
    tokens = Tokens(name, text)
    module = Module(name)
    while tokens.peek() != END:
        _read_directive(tokens, module)
    if not module.version or not module.target:
        raise tokens.error("no .version and .target: this is not a PTX module")
    return module


def _read_directive(tokens: Tokens, module: Module) -> None:
    word = tokens.peek()
    if word in (".entry", ".func"):
        function = _read_function(tokens, module)
        # A declaration does not replace the definition.
        if function.defined or function.name not in module.functions:
            module.functions[function.name] = function
    elif word in SPACES:
        symbol = read_variable(tokens)
        module.symbols[symbol.name] = symbol
    elif word in _LINKING or word == ";":
        tokens.next()
    elif word in (".pragma", ".alias"):
        tokens.skip_past(";")
    elif word == ".version":
        tokens.next()
        module.version = tokens.next()
    elif word == ".target":
        tokens.next()
        module.target = tokens.next()
        while tokens.accept(","):
            tokens.next()
    elif word == ".address_size":
        tokens.next()
        if tokens.peek() != "64":
            raise tokens.error(f"addresses of {tokens.peek()} bits; 64 are supported")
        tokens.next()
    elif word == ".file":
        tokens.next()
        number = tokens.integer()
        module.files[number] = tokens.next().strip('"')
        while tokens.accept(","):
            tokens.integer()
    elif word == ".section":
        _read_section(tokens, module)
    else:
        raise tokens.error(f"{word!r} at the top of a module")


def _read_section(tokens: Tokens, module: Module) -> None:
    """DWARF: only the strings are of use here."""
    tokens.next()
    if tokens.next() != ".debug_str":
        tokens.skip_past("}")
        return
    tokens.expect("{")
    label, found = "", bytearray()
    strings: dict[str, bytearray] = {}
    while not tokens.accept("}"):
        word = tokens.next()
        if tokens.accept(":"):
            label, found = word, bytearray()
            strings[label] = found
        elif word == ".b8":
            found.append(tokens.integer() & 0xFF)
            while tokens.accept(","):
                found.append(tokens.integer() & 0xFF)
    for label, data in strings.items():
        module.strings[label] = data.split(b"\0")[0].decode(errors="replace")


def _read_function(tokens: Tokens, module: Module) -> PtxFunction:
    kernel = tokens.next() == ".entry"
    results = read_parameters(tokens)
    line = tokens.line
    function = PtxFunction(
        tokens.next(), line, kernel, parameters=read_parameters(tokens), results=results
    )
    while tokens.peek() not in ("{", ";"):
        word = tokens.next()
        values = []
        while number_of(tokens.peek()) is not None:
            values.append(tokens.integer())
            tokens.accept(",")
        function.directives[word[1:]] = tuple(values)
    if not tokens.accept(";"):
        function.defined = True
        read_body(tokens, function, module)
    return function


@dataclasses.dataclass(frozen=True)
class Translated:
    """A module that can be built."""

    module: Module
    text: str  #: The PTX.
    translation: Translation


@functools.lru_cache(maxsize=32)
def translated(name: str, text: str) -> Translated:
    """Parse and translate PTX.

    Args:
        name: What messages and findings call it.

    Raises:
        PtxError: For what is not PTX, with its line.
        UnsupportedPtxError: With every statement that cannot be translated, if no kernel can.
    """
    module = parse(name, text)
    return Translated(module, text, translate(module))


def library_of(source: Translated, common: Path, *, check: bool, part: str = "") -> Path:
    """The module's library, from the cache or built now.

    Args:
        common: The folder of the building blocks, with ``backend/emu``.
        check: Whether for the checker.
        part: The source of a part of it that is a library of its own; empty for all of it.

    Raises:
        EnvironmentProblem: Without a compiler, or if the cache cannot be written.
    """
    with_compiler = emulator_compiler()
    flags = [*_FLAGS, *(_CHECK_FLAGS if check else _PLAIN_FLAGS)]
    if with_compiler.kind == "g++":
        flags.append("-fno-gnu-unique")
    if (level := cpu_level()) != "native":  # fma is one instruction, and no call
        flags.append(f"-march={level}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{source.module.name}.cpp"
        file.write_text(part or source.translation.source)
        backend = common / "backend" / "emu"
        recipe = Recipe(
            f"{source.module.name} ({'PTX, checked' if check else 'PTX'})",
            with_compiler, [file], flags, (common, backend), ("-pthread", "-Wl,-Bsymbolic"),
            names={file.parent: PTX_FOLDER},
            precompiled=backend / "ptx_frontend" / "precompiled.hpp", keeps_parsed=True,
        )  # fmt: skip
        return build(recipe)


def load_library(path: Path) -> ctypes.CDLL:
    """Load it; the emulator's runtime must be loaded."""
    library = load_emulated(path)
    library.kb_ptx_launch.restype = ctypes.c_int
    return library
