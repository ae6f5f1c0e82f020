"""What tests of the emulator share: kernels of ``tests/emulator``, built for it and loaded.

Not a conftest.py in that folder: there can be one module of that name, and tests import the other.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.build import compiler
from kernelbench.emulator import runtime as emulator
from kernelbench.emulator import symbols
from kernelbench.emulator.settings import DEFAULT_EMULATION

HERE = Path(__file__).parent / "emulator"
COMMON = HERE.parents[1] / "kernels" / "common"


def _place(array: Any) -> tuple[int, int]:
    """Address and size of a numpy array, a torch tensor or a ctypes object."""
    if hasattr(array, "data_ptr"):
        assert array.is_contiguous()
        return array.data_ptr(), array.numel() * array.element_size()
    if hasattr(array, "__array_interface__"):
        assert array.flags.c_contiguous
        return array.__array_interface__["data"][0], array.nbytes
    return ctypes.addressof(array), ctypes.sizeof(array)


class Emulated:
    """One file of ``tests/emulator``, built for the emulator and loaded.

    Attributes:
        lib: The library, for ctypes.
        path: Where it is.
        check: Whether it was built for the checker.
    """

    def __init__(self, runtime: emulator.Runtime, source: Path, check: bool) -> None:
        self._runtime = runtime
        self._source = source
        self.check = check
        self.path = emulator.step_library(source.name, source, COMMON, check=check)
        self.lib = emulator.load_emulated(self.path)
        self._kept: list[Any] = []

    def configure(self, **options: Any) -> None:
        """Options by name (``sms``, ``mma_rounding`` and those of ``Runtime.configure``).

        Forgets earlier findings and registered memory. ``check`` is as the file was built.
        """
        self._kept.clear()
        self._runtime.unregister_all()
        emulation = DEFAULT_EMULATION
        for name in ("sms", "mma_rounding"):
            if name in options:
                emulation = replace(emulation, **{name: options.pop(name)})
        self._runtime.configure(emulation, **({"check": self.check} | options))

    def register(self, array: Any, name: str, writable: bool = False, fresh: bool = False) -> None:
        """Let kernels access an array; it is kept alive until the next ``configure``."""
        self._kept.append(array)
        self._runtime.register(*_place(array), name, writable=writable, fresh=fresh)

    def report(self) -> dict[str, Any]:
        """The runtime's report, as it is."""
        return self._runtime.report()

    def findings(self) -> list[dict[str, Any]]:
        """The report's findings, with ``line`` (in the test's file, else the building block's),
        ``file``, ``function``, ``other_line`` and ``shared_name`` where they are known."""
        folders = {emulator.STEP_NAME: self._source.parent, emulator.COMMON_NAME: COMMON}
        return symbols.Symbols(folders).findings(self.report())


@pytest.fixture(scope="session")
def emulator_runtime() -> emulator.Runtime:
    if compiler.host_compiler() is None:
        pytest.skip("no C++ compiler")
    return emulator.runtime(COMMON)


@pytest.fixture(scope="session")
def emulated_files() -> dict[tuple[str, bool], Emulated]:
    return {}


@pytest.fixture
def emulated(
    emulator_runtime: emulator.Runtime, emulated_files: dict[tuple[str, bool], Emulated]
) -> Iterator[Callable[..., Emulated]]:
    """``emulated("file.cu", check=False, **options)``: a file of ``tests/emulator``, built and set.

    Libraries are built once (cached on disk) and loaded once a session; options and findings are
    set anew by every call.
    """

    def get(name: str, *, check: bool = False, **options: Any) -> Emulated:
        if (name, check) not in emulated_files:
            try:
                emulated_files[name, check] = Emulated(emulator_runtime, HERE / name, check)
            except EnvironmentProblem as error:
                pytest.fail(str(error), pytrace=False)
        found = emulated_files[name, check]
        found.configure(**options)
        return found

    yield get
    emulator_runtime.unregister_all()
