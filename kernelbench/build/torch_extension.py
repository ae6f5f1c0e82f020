"""Extensions of the installed torch: what nvcc and the linker are told of it, and the import."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import sysconfig
from pathlib import Path
from types import ModuleType

from kernelbench.machine import devices

#: What torch's own builder of extensions compiles with: half and bfloat16 have torch's operators.
_FLAGS = (
    "-DTORCH_API_INCLUDE_EXTENSION_H", "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__", "--expt-relaxed-constexpr",
)  # fmt: skip


_HEADER = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"]((?:torch|ATen|c10|pybind11)/[^>\"\n]+)", re.M
)


def torch_headers(text: str) -> list[str]:
    """Which headers of torch a source without comments includes."""
    return _HEADER.findall(text)


def uses_torch(text: str) -> bool:
    """Whether a source without comments includes a header of torch."""
    return _HEADER.search(text) is not None


def imported_extension(name: str, library: Path) -> ModuleType:
    """The module in an extension's library.

    Raises:
        ImportError: If it cannot be imported, with the symbol that it lacks, say.
    """
    import torch  # noqa: F401  what the extension is linked with

    loader = importlib.machinery.ExtensionFileLoader(name, str(library))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def torch_folder() -> Path:
    """The folder of the installed torch, which is not imported.

    Raises:
        EnvironmentProblem: If there is none.
    """
    devices.require_torch("an extension")
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def torch_fact() -> str:
    """Its version, as one of the facts that decide what is built."""
    info = devices.torch_info()
    return f"torch {info.version if info is not None else '?'}"


def torch_flags(name: str) -> list[str]:
    """nvcc's flags for an extension that is imported by a name."""
    headers = torch_folder() / "include"
    found = [headers, headers / "torch" / "csrc" / "api" / "include", sysconfig.get_path("include")]
    where = [word for each in found for word in ("-isystem", str(each))]
    return [f"-DTORCH_EXTENSION_NAME={name}", *_FLAGS, *where]


def torch_link() -> list[str]:
    """The linker's flags for an extension: torch's libraries, those for a GPU if they are there."""
    libraries = torch_folder() / "lib"
    names = ["c10", "torch", "torch_cpu", "torch_python", "c10_cuda", "torch_cuda"]
    there = [name for name in names if (libraries / f"lib{name}.so").is_file()]
    return ["-L", str(libraries), *(f"-l{name}" for name in there)]
