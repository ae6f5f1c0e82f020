"""Compile to shared libraries, cached by content.

An artefact's key is the hash of everything that makes it: sources, headers, flags, compiler and
host compiler versions, machine. An entry appears by the rename of a finished folder, so that a
reader, Ctrl-C or a power cut never meets half of one, and a lock keeps two builds of one key apart.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelbench.errors import EnvironmentProblem

CACHE_VARIABLE = "KERNELBENCH_CACHE"
_HEADERS = (".h", ".hpp", ".cuh", ".inl")
_LAYOUT = "1"
_LIBRARY, _META = "lib.so", "meta.json"
_BUILD_TIMEOUT_S = 900.0
_STALE_TEMPORARY_S = 3600.0
_ERROR_LINE = re.compile(r"\b(error|fatal|undefined reference)\b|not found", re.IGNORECASE)


@dataclass(frozen=True)
class Compiler:
    """A compiler: ``kind`` is ``nvcc``, ``g++`` or ``clang++``."""

    kind: str
    path: Path
    version: str


@dataclass(frozen=True)
class CacheEntry:
    """One finished artefact in the cache.

    Attributes:
        used: When it was last asked for, in seconds since the epoch.
        sha256: Hash of the library itself.
        seconds: How long it took to build.
    """

    key: str
    name: str
    compiler: str
    path: Path
    bytes: int
    created: str
    used: float
    sha256: str
    seconds: float


@functools.cache
def nvcc() -> Compiler | None:
    """The CUDA compiler: on ``PATH``, in ``CUDA_HOME``, in the usual place, or from PyPI."""
    for path in _nvcc_candidates():
        version = _version(path, r"release [\d.]+, V([\d.]+)")
        if version:
            return Compiler("nvcc", path, version)
    return None


def _nvcc_candidates() -> Iterator[Path]:
    found = shutil.which("nvcc")
    if found:
        yield Path(found)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin" / "nvcc"
    yield Path("/usr/local/cuda/bin/nvcc")
    for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        # nvidia-cuda-nvcc installs below nvidia/cu13, its CUDA 12 forerunner below cuda_nvcc.
        yield from sorted(Path(folder).glob("nvidia/*/bin/nvcc"), reverse=True)


@functools.cache
def host_compiler() -> Compiler | None:
    """The C++ compiler: ``$CXX``, else g++, else clang++."""
    for compiler in host_compilers():
        return compiler
    return None


def host_compilers() -> list[Compiler]:
    """Every C++ compiler found, the preferred one first."""
    found = []
    for name in dict.fromkeys(filter(None, (os.environ.get("CXX"), "g++", "clang++"))):
        path = shutil.which(name)
        version = _version(Path(path), r"(\d+\.\d+[\w.]*)") if path else None
        if path and version:
            kind = "clang++" if "clang" in Path(name).name else "g++"
            found.append(Compiler(kind, Path(path), version))
    return found


def _version(path: Path, pattern: str) -> str | None:
    try:
        run = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(pattern, run.stdout) if run.returncode == 0 else None
    return match[1] if match else None


def cuda_arch_flags(capability: tuple[int, int]) -> list[str]:
    """nvcc flags for exactly one GPU: arch-specific code ("a") from compute capability 9.0 on."""
    number = f"{capability[0]}{capability[1]}" + ("a" if capability[0] >= 9 else "")
    return ["-gencode", f"arch=compute_{number},code=sm_{number}"]


def cache_dir() -> Path:
    """``$KERNELBENCH_CACHE``, else ``kernelbench`` below the XDG cache folder."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    xdg = os.environ.get("XDG_CACHE_HOME")
    if xdg and Path(xdg).is_absolute():
        return Path(xdg) / "kernelbench"
    try:
        return Path.home() / ".cache" / "kernelbench"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / "kernelbench-cache"


def compile_shared(
    name: str,
    sources: Sequence[Path],
    flags: Sequence[str] = (),
    *,
    include_dirs: Sequence[Path] = (),
    compiler: Compiler | None = None,
) -> Path:
    """A shared library made of ``sources``, from the cache or built now.

    Args:
        name: What it is, for the cache listing and messages.
        sources: ``.cu`` or ``.cpp`` files, compiled in one command.
        flags: Compiler flags, the GPU's arch among them (:func:`cuda_arch_flags`).
        include_dirs: Passed with ``-I``; every header below them is part of the key.
        compiler: :func:`nvcc` by default.

    Raises:
        EnvironmentProblem: If there is no compiler, the sources do not compile (first error and
            the log's path), or the cache folder cannot be written or is full.
    """
    compiler = compiler or nvcc()
    if compiler is None:
        raise EnvironmentProblem(
            f"cannot build {name}: no nvcc on PATH, in CUDA_HOME or in the Python environment",
            "install the CUDA toolkit, or `pip install nvidia-cuda-nvcc`",
        )
    key = _key(compiler, sources, flags, include_dirs)
    root = cache_dir()
    entry = root / "builds" / key
    if _valid(entry):
        _touch(entry)
        return entry / _LIBRARY
    with _writing(root):
        (root / "locks").mkdir(parents=True, exist_ok=True)
        (root / "builds").mkdir(exist_ok=True)
        with _lock(root / "locks" / f"{key}.lock", name):
            if not _valid(entry):
                _build(name, key, root, compiler, sources, flags, include_dirs)
    return entry / _LIBRARY


def artefact_sha(library: Path) -> str:
    """SHA-256 of a library that :func:`compile_shared` returned."""
    return str(json.loads((library.parent / _META).read_text())["sha256"])


def _key(
    compiler: Compiler,
    sources: Sequence[Path],
    flags: Sequence[str],
    include_dirs: Sequence[Path],
) -> str:
    host = host_compiler() if compiler.kind == "nvcc" else None
    digest = hashlib.sha256()
    facts = [_LAYOUT, platform.machine(), compiler.kind, compiler.version, *flags]
    facts += [host.kind, host.version] if host else []
    for fact in facts:
        digest.update(b"%d %s\n" % (len(fact.encode()), fact.encode()))
    for label, path in _inputs(sources, include_dirs):
        content = path.read_bytes()
        digest.update(b"%d %s %d\n" % (len(label.encode()), label.encode(), len(content)))
        digest.update(content)
    return digest.hexdigest()


def _inputs(sources: Sequence[Path], include_dirs: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Every file that makes the artefact, under a name that does not depend on the checkout."""
    for source in sources:
        if not source.is_file():
            raise EnvironmentProblem(f"cannot build: source {source} is missing")
        yield source.name, source
    folders = [*dict.fromkeys(source.parent for source in sources)]
    for i, folder in enumerate([*folders, *include_dirs]):
        # Beside a source only its own folder is searched by #include "..."; -I folders are deep.
        files = folder.rglob("*") if i >= len(folders) else folder.glob("*")
        for path in sorted(files):
            if path.suffix in _HEADERS and path.is_file():
                yield f"{i}:{path.relative_to(folder).as_posix()}", path


def _valid(entry: Path) -> bool:
    """Whether the entry is whole: a library cut short by a full disk must not be loaded."""
    try:
        meta = json.loads((entry / _META).read_text())
        return bool(meta["sha256"] == _sha256(entry / _LIBRARY))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _touch(entry: Path) -> None:
    with contextlib.suppress(OSError):
        os.utime(entry / _META)


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


@contextlib.contextmanager
def _writing(root: Path) -> Iterator[None]:
    """Turn failures to write below the cache folder into one line."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full(root) from error
        raise EnvironmentProblem(
            f"cannot write the cache folder {root}: {error.strerror or error}",
            f"point {CACHE_VARIABLE} at a folder that you can write",
        ) from error


def _disk_full(root: Path) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"the disk that holds the cache folder {root} is full",
        f"`kernelbench cache clear`, or point {CACHE_VARIABLE} elsewhere",
    )


def _build(
    name: str,
    key: str,
    root: Path,
    compiler: Compiler,
    sources: Sequence[Path],
    flags: Sequence[str],
    include_dirs: Sequence[Path],
) -> None:
    temporary = Path(tempfile.mkdtemp(prefix="tmp-", dir=root))
    try:
        library = temporary / _LIBRARY
        shared = ["-shared", "-Xcompiler", "-fPIC"] if compiler.kind == "nvcc" else _HOST_SHARED
        command = [str(compiler.path), *shared, *flags]
        command += [part for folder in include_dirs for part in ("-I", str(folder))]
        command += ["-o", str(library), *map(str, sources)]
        start = time.monotonic()
        status, log = _run(command, temporary)
        if status != 0 or not library.is_file():
            raise _failure(name, key, root, compiler, command, status, log)
        meta = {
            "name": name,
            "compiler": f"{compiler.kind} {compiler.version}",
            "flags": list(flags),
            "sources": [source.name for source in sources],
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - start, 3),
            "sha256": _sha256(library),
        }
        (temporary / _META).write_text(json.dumps(meta, indent=1) + "\n")
        for file in (library, temporary / _META):
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
        temporary.chmod(0o755)
        entry = root / "builds" / key
        if entry.exists():
            shutil.rmtree(entry)
        temporary.rename(entry)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


_HOST_SHARED = ["-shared", "-fPIC"]


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
    return run.returncode, run.stdout


def _failure(
    name: str,
    key: str,
    root: Path,
    compiler: Compiler,
    command: Sequence[str],
    status: int,
    log: str,
) -> EnvironmentProblem:
    if "No space left on device" in log:
        return _disk_full(root)
    path = root / "logs" / f"{key[:16]}.log"
    path.parent.mkdir(exist_ok=True)
    path.write_text(" ".join(command) + "\n" + log)
    lines = [" ".join(line.split()) for line in log.splitlines() if line.strip()]
    first = next((line for line in lines if _ERROR_LINE.search(line)), "")
    first = first or (lines[-1] if lines else f"it ended with status {status}")
    return EnvironmentProblem(
        f"{compiler.kind} {compiler.version} cannot build {name}: {first}", f"the log is {path}"
    )


def cache_entries() -> list[CacheEntry]:
    """What the cache holds, last used first; entries that cannot be read are left out."""
    entries = []
    for meta_file in (cache_dir() / "builds").glob(f"*/{_META}"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            entries.append(_entry(meta_file, json.loads(meta_file.read_text())))
    return sorted(entries, key=lambda entry: -entry.used)


def _entry(meta_file: Path, meta: Mapping[str, Any]) -> CacheEntry:
    folder = meta_file.parent
    return CacheEntry(
        key=folder.name,
        name=str(meta["name"]),
        compiler=str(meta["compiler"]),
        path=folder / _LIBRARY,
        bytes=_size([folder]),
        created=str(meta["created"]),
        used=meta_file.stat().st_mtime,
        sha256=str(meta["sha256"]),
        seconds=float(meta["seconds"]),
    )


def _size(folders: Iterable[Path]) -> int:
    total = 0
    for folder in folders:
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                total += path.lstat().st_size if not path.is_dir() else 0
    return total


def clear_cache(older_than_days: float | None = None) -> tuple[int, int]:
    """Remove artefacts; a running process keeps the libraries that it has loaded.

    Args:
        older_than_days: Only those not used for so many days; all, logs included, if None.

    Returns:
        How many artefacts and how many bytes went.

    Raises:
        EnvironmentProblem: If the folder cannot be changed.
    """
    root = cache_dir()
    now = time.time()
    doomed: list[Path] = []
    for folder in (root / "builds").glob("*"):
        with contextlib.suppress(OSError):
            meta = folder / _META
            used = (meta if meta.is_file() else folder).stat().st_mtime
            if older_than_days is None or now - used > older_than_days * 86400:
                doomed.append(folder)
    leavings = [
        folder
        for folder in root.glob("tmp-*")
        # A younger one may be a build in progress.
        if now - folder.stat().st_mtime > _STALE_TEMPORARY_S
    ]
    if older_than_days is None and (root / "logs").is_dir():
        leavings.append(root / "logs")
    freed = _size([*doomed, *leavings])
    with _writing(root):
        for folder in [*doomed, *leavings]:
            shutil.rmtree(folder)
    return len(doomed), freed
