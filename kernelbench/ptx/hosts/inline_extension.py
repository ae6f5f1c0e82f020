"""``torch.utils.cpp_extension.load`` and ``load_inline`` for the emulator.

The sources are compiled as torch would have them compiled, against torch's own headers and those of
:file:`torch_cuda/include`, and linked with the CUDA runtime that stands in. Text that stands in the
calling script as it is keeps its lines there.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelbench.base.errors import UsageError
from kernelbench.build import compiler
from kernelbench.build.compiler import CompileFailure, Recipe
from kernelbench.build.includes import reached_files, without_comments
from kernelbench.build.torch_extension import imported_extension, uses_torch
from kernelbench.project.overlay import written_source
from kernelbench.ptx.hosts.cuda_build import (
    emulated_flags,
    extension_recipe,
    lacking_at_import,
    tensors_on_cpu,
    unique_flags,
)
from kernelbench.ptx.hosts.cuda_host import linked_first

HINT = "docs/load-inline.md lists what is there"
_STANDARD = "-std=c++20"
#: Of nvcc's flags, those that choose a GPU: --arch does.
_ARCH_FLAG = re.compile(r"-{1,2}(gencode|arch|code|gpu-architecture|gpu-code|generate-code)(=|$)")
_LIBRARIES = ("-lm", "-ldl", "-lpthread", "-lrt", "-lstdc++")
_STOOD_IN_FOR = ("-lcuda", "-lcudart")


@dataclass(frozen=True)
class Extension:
    """An extension that a script asks for.

    Attributes:
        script: The file that asks; None if it is none.
        sources: Texts by file name, ``.cpp`` and ``.cu``.
        flags: For nvcc; link: for the linker.
    """

    name: str
    script: Path | None
    sources: Mapping[str, str]
    include_dirs: tuple[Path, ...]
    flags: tuple[str, ...]
    link: tuple[str, ...]

    def library(self, arch: int) -> Path:
        """Its library with PTX for an arch, from the cache or built now.

        Raises:
            UsageError: If it does not compile, with the first error in one line.
            EnvironmentProblem: Without nvcc or torch.
        """
        recipe = Recipe(
            self.name, compiler.needed_nvcc(self.name),
            [self._written(name, text) for name, text in self.sources.items()],
            [*emulated_flags(arch), *unique_flags(), *self.flags], self.include_dirs, self.link,
        )  # fmt: skip
        try:
            return compiler.build(extension_recipe(recipe, self.name))
        except CompileFailure as error:
            hint = HINT if "::cuda" in error.reason else error.hint
            raise UsageError(f"{self._shown}: {error.reason}", hint) from error

    def _written(self, name: str, text: str) -> Path:
        """A source, in which cuda is the CPU if it has torch's headers."""
        file = written_source(name, text)
        reached = reached_files([file], self.include_dirs)
        texts = [without_comments(each.read()) for each in reached]
        if not any(map(uses_torch, texts)):
            return file
        return written_source(name, f"{tensors_on_cpu(texts)}\n{text}")

    def imported(self, library: Path) -> ModuleType:
        """Its module; its kernels are registered with the runtime that stands in.

        Raises:
            UsageError: If it calls what is not there, or has no module.
        """
        try:
            with linked_first():
                return imported_extension(self.name, library)
        except ImportError as error:
            raise UsageError(f"{self._shown}: {lacking_at_import(error)}", HINT) from error

    @property
    def _shown(self) -> str:
        where = f"{self.script.name}: " if self.script is not None else ""
        return f"{where}extension {self.name}"


def inline_extension(
    script: Path | None, name: str, cpp_sources: str | Sequence[str],
    cuda_sources: str | Sequence[str] | None = None, functions: Any = None, *,
    no_implicit_headers: bool = False, with_pytorch_error_handling: bool = True, **options: Any,
) -> Extension:  # fmt: skip
    """What ``load_inline`` is asked for, with its parameters.

    Raises:
        UsageError: For what is not there.
    """
    cpp, cuda = _texts(cpp_sources), _texts(cuda_sources)
    own = script.read_text() if script is not None else ""
    headers = [] if no_implicit_headers else ["#include <torch/extension.h>"]
    main = [*headers, *(_placed(each, own, script) for each in cpp)]
    main += _bindings(functions, with_pytorch_error_handling)
    sources = {f"{name}.cpp": "\n".join([*main, ""])}
    if cuda:
        headers = ["#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>"]
        kernels = [*([] if no_implicit_headers else headers)]
        kernels += [_placed(each, own, script) for each in cuda]
        sources[f"{name}.cu"] = "\n".join([*kernels, ""])
    return _extension(name, script, sources, options)


def file_extension(
    script: Path | None, name: str, sources: str | Sequence[str], **options: Any
) -> Extension:
    """What ``load`` is asked for, with its parameters.

    Raises:
        UsageError: For a file that is not there, and for what is not there.
    """
    texts: dict[str, str] = {}
    for each in [sources] if isinstance(sources, str) else sources:
        file = Path(each).resolve()
        if not file.is_file():
            raise UsageError(f"extension {name}: there is no file {each}")
        suffix = ".cu" if file.suffix == ".cu" else ".cpp"
        stem = f"{file.stem}-{len(texts)}" if f"{file.stem}{suffix}" in texts else file.stem
        texts[f"{stem}{suffix}"] = f'#include "{file}"\n'
    return _extension(name, script, texts, options)


def _extension(
    name: str, script: Path | None, sources: Mapping[str, str], options: Mapping[str, Any]
) -> Extension:
    if not options.get("is_python_module", True):
        raise UsageError(f"extension {name}: is_python_module=False is not there", HINT)
    if options.get("sycl_sources"):
        raise UsageError(f"extension {name}: sycl_sources are not there", HINT)
    folders = tuple(Path(each).resolve() for each in options.get("extra_include_paths") or ())
    return Extension(
        name, script, sources, folders,
        _flags(options.get("extra_cflags"), options.get("extra_cuda_cflags")),
        _link(name, options.get("extra_ldflags")),
    )  # fmt: skip


def _texts(given: str | Sequence[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def _bindings(functions: Any, handling: bool) -> list[str]:
    """The module that ``functions`` asks for: a name, names, or texts by name."""
    if functions is None:
        return []
    names = [functions] if isinstance(functions, str) else list(functions)
    lines = ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {"]
    for each in names:
        callee = f"torch::wrap_pybind_function({each})" if handling else f"&{each}"
        lines.append(f'm.def("{each}", {callee});')
    return [*lines, "}"]


def _placed(source: str, script_text: str, script: Path | None) -> str:
    """A source that says where it stands in the script, if it stands there as it is."""
    at = script_text.find(source) if source else -1
    if at < 0:
        return source
    return f'#line {script_text.count(chr(10), 0, at) + 1} "{script}"\n{source}'


def _flags(for_cpp: Sequence[str] | None, for_cuda: Sequence[str] | None) -> tuple[str, ...]:
    """nvcc's flags; one command compiles both, so that the host compiler's are handed on."""
    found: list[str] = []
    standard = _STANDARD
    skip = False
    for each in for_cuda or ():
        if skip or _ARCH_FLAG.match(each):
            skip = not skip and "=" not in each and not each.startswith("-arch=")
            continue
        if each.startswith(("-std=", "--std=")):
            standard = each
            continue
        found += [word for word in shlex.split(each) if not word.startswith("-O")]
    for each in for_cpp or ():
        if each.startswith(("-std=", "-O")):
            continue
        found += [each] if each[:2] in ("-D", "-I", "-U") else ["-Xcompiler", each]
    # Of the host's code: torch's headers take long, and PTX comes out the same.
    return (standard, "-O0", *found)


def _link(name: str, given: Sequence[str] | None) -> tuple[str, ...]:
    found: list[str] = []
    for each in given or ():
        if each in _STOOD_IN_FOR or each.startswith("-L"):
            continue
        if each.startswith("-l") and each not in _LIBRARIES:
            raise UsageError(
                f"extension {name}: links with {each}, a library that the emulator lacks", HINT
            )
        found += [each] if each in _LIBRARIES else ["-Xcompiler", each]
    return tuple(found)
