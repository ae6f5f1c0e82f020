"""Compile to shared libraries, cached by content.

An artefact's key is the hash of everything that makes it: sources, the headers that they include,
flags, compiler and host compiler versions, machine. An entry appears by the rename of a finished
folder, so that a reader, Ctrl-C or a power cut never meets half of one, and a lock keeps two builds
of one key apart.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from kernelbench.base.cache_folder import CACHE_VARIABLE, cache_dir, disk_full, writing
from kernelbench.base.errors import EnvironmentProblem
from kernelbench.build.includes import reached_files
from kernelbench.machine.toolchain import (
    Compiler,
    cpu_count,
    cuda_arch_flags,
    host_compiler,
    host_compilers,
    nvcc,
)
from kernelbench.project.overlay import with_real_files

__all__ = [
    "CACHE_VARIABLE",
    "CompileFailure",
    "Compiler",
    "Recipe",
    "artefact_sha",
    "build",
    "build_log",
    "cache_dir",
    "compile_shared",
    "cuda_arch_flags",
    "host_compiler",
    "host_compilers",
    "nvcc",
]

_LAYOUT = "3"
LIBRARY_FILE, META_FILE, _LOG = "lib.so", "meta.json", "log"
_BUILD_TIMEOUT_S = 900.0
#: What g++ and clang++ say of an assertion's two sides.
_REDUCES = re.compile(r"(?:the comparison reduces to|expression evaluates to) '\([^']*\)'")
_ERROR_LINE = re.compile(r"\b(error|fatal|undefined reference)\b|not found", re.IGNORECASE)


class CompileFailure(EnvironmentProblem):
    """Sources that the compiler refuses: the fault of one step, not of the machine.

    Args:
        reason: The compiler's first error, which may be the same in several builds.
    """

    def __init__(self, message: str, hint: str, reason: str) -> None:
        super().__init__(message, hint)
        self.reason = reason


@dataclass(frozen=True)
class Recipe:
    """What a shared library (or, with such a flag, a cubin) is made of.

    Attributes:
        name: What it is, for the cache listing and messages.
        sources: ``.cu`` or ``.cpp`` files.
        flags: Compiler flags, the GPU's arch among them (:func:`cuda_arch_flags`).
        include_dirs: Passed with ``-I``; the headers that are included are part of the key.
        link_flags: None to compile and link all sources in one command; else each source is
            compiled alone, on all cores, and linked with these flags. What else the compiler
            leaves (``.gcno``) stays beside the library.
        facts: What else decides the code and is part of the key only, e.g. the CPU.
        names: What debug information calls a folder, for artefacts that do not depend on where
            the checkout is.
    """

    name: str
    compiler: Compiler
    sources: Sequence[Path]
    flags: Sequence[str] = ()
    include_dirs: Sequence[Path] = ()
    link_flags: Sequence[str] | None = None
    facts: Sequence[str] = ()
    names: Mapping[Path, str] = field(default_factory=dict)


def compile_shared(
    name: str,
    sources: Sequence[Path],
    flags: Sequence[str] = (),
    *,
    include_dirs: Sequence[Path] = (),
    compiler: Compiler | None = None,
    link_flags: Sequence[str] | None = None,
    facts: Sequence[str] = (),
    names: Mapping[Path, str] | None = None,
) -> Path:
    """A shared library made of ``sources``, from the cache or built now.

    Args:
        compiler: :func:`nvcc` by default; the others are those of :class:`Recipe`.

    Raises:
        CompileFailure: If the sources do not compile (first error and the log's path).
        EnvironmentProblem: If there is no compiler, or the cache folder cannot be written or is
            full.
    """
    compiler = compiler or needed_nvcc(name)
    return build(
        Recipe(name, compiler, sources, flags, include_dirs, link_flags, facts, names or {})
    )


def needed_nvcc(name: str) -> Compiler:
    """:func:`nvcc`, to build something of this name.

    Raises:
        EnvironmentProblem: If there is none.
    """
    compiler = nvcc()
    if compiler is None:
        raise EnvironmentProblem(
            f"cannot build {name}: no nvcc on PATH, in CUDA_HOME or in the Python environment",
            "install the CUDA toolkit, or `pip install nvidia-cuda-nvcc`",
        )
    return compiler


def build(recipe: Recipe) -> Path:
    """What a recipe makes, from the cache or built now.

    Raises:
        CompileFailure: If the sources do not compile (first error and the log's path).
        EnvironmentProblem: If the cache folder cannot be written or is full.
    """
    key = _key(recipe)
    root = cache_dir()
    entry = root / "builds" / key
    if _valid(entry):
        _touch(entry)
        return entry / LIBRARY_FILE
    with writing(root):
        (root / "locks").mkdir(parents=True, exist_ok=True)
        (root / "builds").mkdir(exist_ok=True)
        with _lock(root / "locks" / f"{key}.lock", recipe.name):
            if not _valid(entry):
                _build(recipe, key, root)
    return entry / LIBRARY_FILE


def artefact_sha(library: Path) -> str:
    """SHA-256 of a library that :func:`compile_shared` returned."""
    return str(json.loads((library.parent / META_FILE).read_text())["sha256"])


def build_log(library: Path) -> str:
    """What the compiler said when it made a library that :func:`compile_shared` returned.

    Of sources that were compiled one by one it has the linker's part only.
    """
    return (library.parent / _LOG).read_text()


def _key(recipe: Recipe) -> str:
    compiler = recipe.compiler
    host = host_compiler() if compiler.kind == "nvcc" else None
    digest = hashlib.sha256()
    facts = [_LAYOUT, platform.machine(), compiler.kind, compiler.version, *recipe.flags]
    facts += [host.kind, host.version] if host else []
    facts += recipe.facts
    facts += ["link", *recipe.link_flags] if recipe.link_flags is not None else []
    facts += [f"{i} is {name}" for i, name in enumerate(recipe.names.values())]
    for fact in facts:
        digest.update(b"%d %s\n" % (len(fact.encode()), fact.encode()))
    for label, content in _inputs(recipe):
        digest.update(b"%d %s %d\n" % (len(label.encode()), label.encode(), len(content)))
        digest.update(content)
    return digest.hexdigest()


def _inputs(recipe: Recipe) -> Iterator[tuple[str, bytes]]:
    """Every file that makes the artefact, under a name that does not depend on the checkout."""
    for source in recipe.sources:
        if not source.is_file():
            raise EnvironmentProblem(f"cannot build: source {source} is missing")
        yield source.name, b""
    for file in reached_files(recipe.sources, recipe.include_dirs):
        yield file.label, file.read()


def _valid(entry: Path) -> bool:
    """Whether the entry is whole: a library cut short by a full disk must not be loaded."""
    try:
        meta = json.loads((entry / META_FILE).read_text())
        return bool(meta["sha256"] == _sha256(entry / LIBRARY_FILE))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _touch(entry: Path) -> None:
    with contextlib.suppress(OSError):
        os.utime(entry / META_FILE)


@contextlib.contextmanager
def _lock(path: Path, name: str) -> Iterator[None]:
    from filelock import FileLock, Timeout

    try:
        with FileLock(path, timeout=_BUILD_TIMEOUT_S):
            yield
    except Timeout:
        raise EnvironmentProblem(
            f"another process has been building {name} for over {_BUILD_TIMEOUT_S / 60:.0f} min",
            f"end it, or remove {path}",
        ) from None


def _build(recipe: Recipe, key: str, root: Path) -> None:
    temporary = Path(tempfile.mkdtemp(prefix="tmp-", dir=root))
    try:
        library = temporary / LIBRARY_FILE
        start = time.monotonic()
        objects = _compile(recipe, key, root, temporary)
        command = [str(recipe.compiler.path), *_position_independent(recipe, "-shared")]
        if recipe.link_flags is None:
            command += [*recipe.flags, *_where(recipe), *map(str, recipe.sources)]
        else:
            # Libraries after the objects that need them.
            command += [*map(str, objects), *recipe.link_flags]
        command += ["-o", str(library)]
        status, log = _run(command, temporary)
        if status != 0 or not library.is_file():
            raise _failure(recipe, key, root, command, status, log)
        (temporary / _LOG).write_text(log)
        for file in objects:
            file.unlink()
        if _key(recipe) != key:
            raise EnvironmentProblem(
                f"the sources of {recipe.name} changed while they were compiled", "run it again"
            )
        meta = {
            "name": recipe.name,
            "compiler": f"{recipe.compiler.kind} {recipe.compiler.version}",
            "flags": list(recipe.flags),
            "sources": [source.name for source in recipe.sources],
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - start, 3),
            "sha256": _sha256(library),
        }
        (temporary / META_FILE).write_text(json.dumps(meta, indent=1) + "\n")
        for file in (library, temporary / META_FILE):
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
        temporary.chmod(0o755)
        entry = root / "builds" / key
        if entry.exists():
            shutil.rmtree(entry)
        temporary.rename(entry)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _compile(recipe: Recipe, key: str, root: Path, folder: Path) -> list[Path]:
    """Every source as an object file, compiled at the same time on as many cores as there are."""
    if recipe.link_flags is None:
        return []
    objects = [folder / f"{i}-{source.stem}.o" for i, source in enumerate(recipe.sources)]
    head = [str(recipe.compiler.path), *_position_independent(recipe, "-c"), *recipe.flags]
    head += _where(recipe)
    commands = [
        [*head, "-o", str(made), str(source)]
        for source, made in zip(recipe.sources, objects, strict=True)
    ]
    with ThreadPoolExecutor(cpu_count()) as pool:
        jobs = [pool.submit(_run, command, folder) for command in commands]
        try:
            for command, made, job in zip(commands, objects, jobs, strict=True):
                status, log = job.result()
                if status != 0 or not made.is_file():
                    raise _failure(recipe, key, root, command, status, log)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return objects


def _position_independent(recipe: Recipe, what: str) -> list[str]:
    return [what, *(["-Xcompiler", "-fPIC"] if recipe.compiler.kind == "nvcc" else ["-fPIC"])]


def _where(recipe: Recipe) -> list[str]:
    """Where headers are, and what debug information calls the folders."""
    maps = [f"-ffile-prefix-map={folder}={name}" for folder, name in recipe.names.items()]
    if recipe.compiler.kind == "nvcc":
        maps = [part for option in maps for part in ("-Xcompiler", option)]
    return [*maps, *(part for folder in recipe.include_dirs for part in ("-I", str(folder)))]


def _run(command: Sequence[str], folder: Path) -> tuple[int, str]:
    # The compiler's own temporary files go where the artefact goes: one disk to be full.
    environment = {**os.environ, "TMPDIR": str(folder), "LC_ALL": "C"}
    try:
        run = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_BUILD_TIMEOUT_S,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, f"error: the compiler took longer than {_BUILD_TIMEOUT_S:.0f} s\n"
    return run.returncode, with_real_files(run.stdout)


def _failure(
    recipe: Recipe, key: str, root: Path, command: Sequence[str], status: int, log: str
) -> EnvironmentProblem:
    if "No space left on device" in log:
        return disk_full(root)
    path = root / "logs" / f"{key[:16]}.log"
    path.parent.mkdir(exist_ok=True)
    path.write_text(" ".join(command) + "\n" + log)
    lines = [" ".join(line.split()) for line in log.splitlines() if line.strip()]
    first = next((line for line in lines if _ERROR_LINE.search(line)), "")
    first = first or (lines[-1] if lines else f"it ended with status {status}")
    if reduces := _REDUCES.search(log):
        first += f" ({reduces[0]})"
    compiler = recipe.compiler
    return CompileFailure(
        f"{compiler.kind} {compiler.version} cannot build {recipe.name}: {first}",
        f"the log is {path}",
        first,
    )
