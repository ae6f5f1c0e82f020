"""In the Pythons of somebody's own build: extensions of torch are noted, in place of being built.

:mod:`kernelbench.checks.builds` puts this folder on their path, where Python imports this module
when it starts. Nothing of kernelbench need be installed there.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

_EXTENSIONS = "torch.utils.cpp_extension"
_FOLDER = "KERNELBENCH_EXTENSIONS"


class _Loader(importlib.abc.Loader):
    def __init__(self, torchs: Any) -> None:
        self._torchs = torchs

    def exec_module(self, module: Any) -> None:
        self._torchs.exec_module(module)
        _note_in(module)


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != _EXTENSIONS:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        if found is not None:
            found.loader = _Loader(found.loader)
        return found


def _note_in(module: Any) -> None:
    setuptools: Any = importlib.import_module("setuptools")
    import torch

    def extension(name: str, sources: list[str], *words: Any, **options: Any) -> Any:
        return setuptools.Extension(name, sources, *words, **{"language": "c++", **options})

    class BuildExtension(module.BuildExtension):  # type: ignore[misc]
        def build_extensions(self) -> None:
            for each in self.extensions:
                _write(each)

        def copy_extensions_to_source(self) -> None:
            """There is nothing to copy."""

    module.CUDAExtension = module.CppExtension = extension
    module.BuildExtension = BuildExtension
    module.CUDA_HOME = module.CUDA_HOME or os.environ["CUDA_HOME"]
    torch.cuda.is_available = lambda: True


def _write(extension: Any) -> None:
    """What ``torch.utils.cpp_extension.load`` would be called with, and who imports it."""
    flags = extension.extra_compile_args or []
    flags = flags if isinstance(flags, dict) else {"cxx": flags, "nvcc": flags}
    macros = [f"-D{name}={value or 1}" for name, value in extension.define_macros]
    libraries = [f"-l{each}" for each in extension.libraries]
    known = {
        "module": extension.name,
        "name": extension.name.rpartition(".")[2],
        "sources": [str(Path(each).absolute()) for each in extension.sources],
        "extra_include_paths": [str(Path(each).absolute()) for each in extension.include_dirs],
        "extra_cflags": flags.get("cxx", []),
        "extra_cuda_cflags": [*macros, *flags.get("nvcc", [])],
        "extra_ldflags": [*extension.extra_link_args, *libraries],
    }  # fmt: skip
    handle, _ = tempfile.mkstemp(".json", dir=os.environ[_FOLDER])
    with os.fdopen(handle, "w") as stream:
        json.dump(known, stream)


def _start_as_before() -> None:
    """The module of this name that this one hides, if there is one."""
    here = str(Path(__file__).parent)
    rest = [each for each in sys.path if each != here]
    found = importlib.machinery.PathFinder.find_spec(__name__, rest)
    if found is not None and found.loader is not None:
        found.loader.exec_module(importlib.util.module_from_spec(found))


if __name__ == "sitecustomize":
    if _FOLDER in os.environ:
        sys.meta_path.insert(0, _Finder())
    _start_as_before()
