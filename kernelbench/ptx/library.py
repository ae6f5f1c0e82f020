"""A PTX module built for the emulator and loaded."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import tempfile
from pathlib import Path

from kernelbench.build import compiler
from kernelbench.emulator.runtime import load_emulated
from kernelbench.machine.toolchain import emulator_compiler
from kernelbench.ptx.model import Module
from kernelbench.ptx.parser import parse
from kernelbench.ptx.translator import PTX_FOLDER, Translation, translate

# A contracted sum of a product would be rounded once where PTX says twice. Lines are all that debug
# information is needed for: with variables g++ takes twice as long.
_FLAGS = ("-x", "c++", "-std=c++20", "-g1", "-fvisibility=hidden", "-ffp-contract=off")
# -O2 takes g++ twice as long, and what runs is as fast: most of it is the runtime's.
_PLAIN_FLAGS = ("-O1",)
# What -fsanitize=thread would announce, translated loads and stores announce themselves.
_CHECK_FLAGS = ("-O1", "-DKB_PTX_CHECK")


@dataclasses.dataclass(frozen=True)
class Translated:
    """A module that can be built.

    Attributes:
        text: The PTX.
    """

    module: Module
    text: str
    translation: Translation


@functools.lru_cache(maxsize=32)
def translated(name: str, text: str) -> Translated:
    """Parse and translate PTX.

    Args:
        name: What messages and findings call it.

    Raises:
        PtxError: For what is not PTX, with its line.
        UnsupportedPtxError: With every statement that cannot be translated.
    """
    module = parse(name, text)
    return Translated(module, text, translate(module))


def library_of(source: Translated, common: Path, *, check: bool) -> Path:
    """The module's library, from the cache or built now.

    Args:
        common: The folder of the building blocks, with ``backend/emu``.
        check: Whether for the checker.

    Raises:
        EnvironmentProblem: Without a compiler, or if the cache cannot be written.
    """
    with_compiler = emulator_compiler()
    flags = [*_FLAGS, *(_CHECK_FLAGS if check else _PLAIN_FLAGS)]
    if with_compiler.kind == "g++":
        flags.append("-fno-gnu-unique")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{source.module.name}.cpp"
        file.write_text(source.translation.source)
        return compiler.compile_shared(
            f"{source.module.name} ({'PTX, checked' if check else 'PTX'})",
            [file],
            flags,
            include_dirs=(common, common / "backend" / "emu"),
            compiler=with_compiler,
            link_flags=("-pthread", "-Wl,-Bsymbolic"),
            names={file.parent: PTX_FOLDER},
        )


def load_library(path: Path) -> ctypes.CDLL:
    """Load it; the emulator's runtime must be loaded."""
    library = load_emulated(path)
    library.kb_ptx_launch.restype = ctypes.c_int
    return library
