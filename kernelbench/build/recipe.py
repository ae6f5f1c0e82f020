"""What a library is made of, and what of that is known before it is built: the key."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.build.dependencies import content_hash, files_named
from kernelbench.machine.toolchain import Compiler, host_compiler

_LAYOUT = "4"
#: What compilers take from the environment.
_VARIABLES = (
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH",
    "GCC_EXEC_PREFIX", "SOURCE_DATE_EPOCH",
)  # fmt: skip
_NVCC_VARIABLES = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN")


@dataclass(frozen=True)
class Recipe:
    """What a shared library (or, with such a flag, a cubin) is made of.

    Attributes:
        name: What it is, for the cache listing and messages.
        sources: ``.cu`` or ``.cpp`` files.
        flags: Compiler flags, the GPU's arch among them (:func:`cuda_arch_flags`).
        include_dirs: Passed with ``-I``.
        link_flags: None to compile and link all sources in one command; else each source is
            compiled alone, on all cores, and linked with these flags. What else the compiler
            leaves (``.gcno``) stays beside the library.
        facts: What else decides the code and is part of the key only, e.g. the CPU.
        names: What debug information calls a folder, for artefacts that do not depend on where
            the checkout is.
        precompiled: A header of the standard library's headers, which g++ parses once for all
            sources; their language is by their names. It decides nothing: no part of the key.
        keeps_parsed: Whether that stays in the cache, for builds with the same flags. Then it may
            have headers of ours, with which every source begins anyway.
    """

    name: str
    compiler: Compiler
    sources: Sequence[Path]
    flags: Sequence[str] = ()
    include_dirs: Sequence[Path] = ()
    link_flags: Sequence[str] | None = None
    facts: Sequence[str] = ()
    names: Mapping[Path, str] = field(default_factory=dict)
    precompiled: Path | None = None
    keeps_parsed: bool = False

    @property
    def roots(self) -> list[Path]:
        """Folders that may be elsewhere when the build is used again."""
        return [*dict.fromkeys(source.parent for source in self.sources), *self.include_dirs]

    @property
    def words(self) -> list[str]:
        """All that is said to the compiler beside sources and folders."""
        return [*self.flags, *(self.link_flags or ()), *_environment(self).values()]

    @property
    def compiler_flags(self) -> list[str]:
        """Flags, where headers are, and what debug information calls the folders."""
        maps = [f"-ffile-prefix-map={folder}={name}" for folder, name in self.names.items()]
        if self.compiler.kind == "nvcc":
            maps = [part for option in maps for part in ("-Xcompiler", option)]
        folders = [part for folder in self.include_dirs for part in ("-I", str(folder))]
        return [*self.flags, *maps, *folders]


def recipe_key(recipe: Recipe) -> str:
    """A hash of what is known before the build.

    Raises:
        EnvironmentProblem: If a source is missing.
    """
    digest = hashlib.sha256()
    for fact in [*_tool_facts(recipe), *_own_facts(recipe)]:
        digest.update(b"%d %s\n" % (len(fact.encode()), fact.encode()))
    for path in [*recipe.sources, *files_named(recipe.words)]:
        if not path.is_file():
            raise EnvironmentProblem(f"cannot build: source {path} is missing")
        digest.update(b"%s %s\n" % (os.fsencode(path.name), content_hash(path).encode()))
    return digest.hexdigest()[:32]


def _own_facts(recipe: Recipe) -> list[str]:
    """What the recipe says beside its sources, wherever they are."""
    facts = [*recipe.flags, *recipe.facts]
    facts += ["link", *recipe.link_flags] if recipe.link_flags is not None else []
    # Of two folders that are one, the first has the files.
    facts += [f"folder {recipe.roots.index(root)}" for root in recipe.roots]
    return facts + [f"{i} is {name}" for i, name in enumerate(recipe.names.values())]


def _tool_facts(recipe: Recipe) -> list[str]:
    """What compiles: the compilers, as files too, their environment and the machine."""
    compiler = recipe.compiler
    facts = [_LAYOUT, platform.machine(), compiler.kind, compiler.version]
    tools = [compiler.path]
    if compiler.kind == "nvcc":
        tools += [compiler.path.parent / "nvcc.profile"]
        tools += [Path(found) for name in ("gcc", "g++") if (found := shutil.which(name))]
        host = host_compiler()
        facts += [host.kind, host.version] if host else []
    for tool in tools:
        with contextlib.suppress(OSError):
            status = tool.stat()
            facts.append(f"{tool.resolve()} {status.st_size} {status.st_mtime_ns}")
    return facts + [f"{name}={value}" for name, value in _environment(recipe).items()]


def _environment(recipe: Recipe) -> dict[str, str]:
    names = [*_VARIABLES, *(_NVCC_VARIABLES if recipe.compiler.kind == "nvcc" else ())]
    return {name: os.environ[name] for name in names if os.environ.get(name)}
