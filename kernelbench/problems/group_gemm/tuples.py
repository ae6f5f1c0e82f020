"""The extension that takes tuples of tensors apart in C++, built where it runs.

Only pybind11 is needed, whose headers come with torch, and Python's own headers. No torch here: the
command line builds it before a worker starts.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import sysconfig
from pathlib import Path
from typing import Any

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.build.compiler import compile_shared, host_compiler
from kernelbench.build.torch_extension import imported_extension
from kernelbench.machine.devices import torch_info

#: What ``[config] marshal`` says where calls that are timed go through the extension.
EXTENDED = ("tuples", "items")
#: The module's name and source.
SOURCE = ("kernelbench_group_gemm_tuples", Path(__file__).parent / "tuples.cpp")
_FLAGS = ("-std=c++17", "-O2", "-fvisibility=hidden")


def tuples_library() -> Path:
    """The extension, cached or built now; EnvironmentProblem without a compiler or a header."""
    compiler = host_compiler()
    if compiler is None:
        raise EnvironmentProblem(
            "steps that pass tuples need a C++ compiler, and there is no g++ or clang++",
            "install one, or name it in CXX",
        )
    torch = importlib.util.find_spec("torch")
    places = torch.submodule_search_locations if torch is not None else None
    includes = [Path(place) / "include" for place in places or ()]
    includes.append(Path(sysconfig.get_path("include")))
    for header, hint in (
        ("pybind11/pybind11.h", "it comes with torch: reinstall torch"),
        ("Python.h", "install Python's headers (Debian, Ubuntu: apt-get install python3-dev)"),
    ):
        if not any((folder / header).is_file() for folder in includes):
            raise EnvironmentProblem(f"steps that pass tuples need {header}, not found here", hint)
    found = torch_info()
    # As system folders: their headers are not read for the key, their versions are part of it.
    folders = [part for folder in includes for part in ("-isystem", str(folder))]
    return compile_shared(
        "extension for tuples of tensors", [SOURCE[1]], [*_FLAGS, *folders], compiler=compiler,
        facts=(sys.version, found.version if found is not None else ""),
    )  # fmt: skip


@functools.cache
def load_tuples() -> Any:
    """The extension as a module, with ``call``."""
    library = tuples_library()
    try:
        return imported_extension(SOURCE[0], library)
    except ImportError as error:
        raise EnvironmentProblem(f"the extension for tuples cannot be loaded: {error}") from error
