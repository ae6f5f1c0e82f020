"""Compile to shared libraries, cached by content.

An artefact's name has two hashes: of what is known before a build (sources, flags, compilers,
environment, machine: its key), and of all that the compiler then read (:mod:`.dependencies`). An
entry appears by the rename of a finished folder, so that a reader, Ctrl-C or a power cut never
meets half of one, and a lock keeps two builds of one key apart.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from kernelbench.base.cache_folder import CACHE_VARIABLE, cache_dir, disk_full, writing
from kernelbench.base.errors import EnvironmentProblem
from kernelbench.build.dependencies import (
    Dependencies,
    content_hash,
    dependencies_from,
    dependencies_of,
    prerequisites,
    search_folders,
)
from kernelbench.build.recipe import Recipe, recipe_key
from kernelbench.machine.toolchain import (
    INSTALL_NVCC,
    Compiler,
    cpu_count,
    cuda_arch_flags,
    host_compiler,
    host_compilers,
    nvcc,
)
from kernelbench.project.overlay import with_real_files

# What others import of those below by way of this module.
__all__ = [
    "CACHE_VARIABLE", "Compiler", "Recipe", "cache_dir", "cuda_arch_flags", "host_compiler",
    "host_compilers", "nvcc",
]  # fmt: skip

LIBRARY_FILE, META_FILE, _LOG, _DEPENDENCIES = "lib.so", "meta.json", "log", "dependencies.json"
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
    precompiled: Path | None = None,
) -> Path:
    """A shared library made of ``sources``, from the cache or built now.

    Args:
        compiler: :func:`nvcc` by default; the others are those of :class:`Recipe`.
        precompiled: Kept in the cache, parsed.

    Raises:
        CompileFailure: If the sources do not compile (first error and the log's path).
        EnvironmentProblem: If there is no compiler, or the cache folder cannot be written or is
            full.
    """
    compiler = compiler or needed_nvcc(name)
    recipe = Recipe(
        name, compiler, sources, flags, include_dirs, link_flags, facts, names or {}, precompiled,
        keeps_parsed=True,
    )  # fmt: skip
    return build(recipe)


def needed_nvcc(name: str) -> Compiler:
    """:func:`nvcc`, to build something of this name.

    Raises:
        EnvironmentProblem: If there is none, or no C++ compiler, which it calls.
    """
    compiler = nvcc()
    if compiler is None:
        raise EnvironmentProblem(
            f"cannot build {name}: no nvcc on PATH, in CUDA_HOME or in the Python environment",
            INSTALL_NVCC,
        )
    if host_compiler() is None and "NVCC_CCBIN" not in os.environ:
        raise EnvironmentProblem(
            f"cannot build {name}: nvcc needs a C++ compiler, and there is no g++ or clang++",
            "install g++, or name one in NVCC_CCBIN",
        )
    return compiler


def build(recipe: Recipe) -> Path:
    """What a recipe makes, from the cache or built now.

    Raises:
        CompileFailure: If the sources do not compile (first error and the log's path).
        EnvironmentProblem: If the cache folder cannot be written or is full.
    """
    key = recipe_key(recipe)
    root = cache_dir()
    if (entry := _found(recipe, key, root)) is None:
        with writing(root):
            (root / "locks").mkdir(parents=True, exist_ok=True)
            (root / "builds").mkdir(exist_ok=True)
            with _lock(root / "locks" / f"{key}.lock", recipe.name):
                entry = _found(recipe, key, root, warn=True) or _build(recipe, key, root)
    return entry / LIBRARY_FILE


def artefact_sha(library: Path) -> str:
    """SHA-256 of a library that :func:`compile_shared` returned."""
    return str(json.loads((library.parent / META_FILE).read_text())["sha256"])


def build_log(library: Path) -> str:
    """What the compiler said when it made a library that :func:`compile_shared` returned.

    Of sources that were compiled one by one it has the linker's part only.
    """
    return (library.parent / _LOG).read_text()


def _found(recipe: Recipe, key: str, root: Path, *, warn: bool = False) -> Path | None:
    """The entry of a key whose dependencies are as they were; with a warning if it is damaged."""
    roots = recipe.roots
    for entry in (root / "builds").glob(f"{key}-*"):
        with contextlib.suppress(OSError, ValueError, TypeError):
            needs = dependencies_from((entry / _DEPENDENCIES).read_text())
            if entry.name == _name(key, needs, roots):
                if _valid(entry):
                    _touch(entry)
                    return entry
                if warn:
                    _warn_damaged(recipe.name, entry)
    return None


def _name(key: str, needs: Dependencies, roots: Sequence[Path]) -> str:
    return f"{key}-{needs.digest(roots)[:32]}"


def _valid(entry: Path) -> bool:
    """Whether the entry is whole: a library cut short by a full disk must not be loaded."""
    try:
        meta = json.loads((entry / META_FILE).read_text())
        return bool(meta["sha256"] == content_hash(entry / LIBRARY_FILE))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _warn_damaged(name: str, entry: Path) -> None:
    from kernelbench.base import console

    console.warn(
        f"the cached build of {name} is damaged ({entry / LIBRARY_FILE}); building it anew"
    )


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


def _build(recipe: Recipe, key: str, root: Path) -> Path:
    temporary = Path(tempfile.mkdtemp(prefix="tmp-", dir=root))
    try:
        library = temporary / LIBRARY_FILE
        start, began = time.monotonic(), time.time_ns()
        objects, read = _compile(recipe, key, root, temporary)
        command = [str(recipe.compiler.path), *_position_independent(recipe, "-shared")]
        if recipe.link_flags is None:
            command += [*recipe.compiler_flags, *map(str, recipe.sources)]
        else:
            # Libraries after the objects that need them.
            command += [*map(str, objects), *recipe.link_flags]
        done = _run([*command, "-o", str(library)], temporary, recipe)
        if done.status != 0 or not library.is_file():
            raise _failure(recipe, key, root, done)
        (temporary / _LOG).write_text(done.log)
        for file in objects:
            file.unlink()
        needs = _dependencies(recipe, [done.read] if recipe.link_flags is None else read, temporary)
        roots = recipe.roots
        changed = needs is not None and needs.changed_since(began, roots)
        if changed or recipe_key(recipe) != key:
            raise EnvironmentProblem(
                f"the sources of {recipe.name} changed while they were compiled", "run it again"
            )
        if needs is not None:
            (temporary / _DEPENDENCIES).write_text(needs.text())
        _write_meta(recipe, temporary, round(time.monotonic() - start, 3))
        # What is not known to be the same is not found again.
        entry = root / "builds" / (_name(key, needs, roots) if needs else temporary.name)
        if entry.exists():
            shutil.rmtree(entry)
        return temporary.rename(entry)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_meta(recipe: Recipe, folder: Path, seconds: float) -> None:
    library = folder / LIBRARY_FILE
    meta = {
        "name": recipe.name,
        "compiler": f"{recipe.compiler.kind} {recipe.compiler.version}",
        "flags": list(recipe.flags),
        "sources": [source.name for source in recipe.sources],
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": seconds,
        "sha256": content_hash(library),
    }
    (folder / META_FILE).write_text(json.dumps(meta, indent=1) + "\n")
    for file in (library, folder / META_FILE):
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
    folder.chmod(0o755)


def _dependencies(recipe: Recipe, rules: Sequence[str], temporary: Path) -> Dependencies | None:
    """What commands have read whose dependency files these are; None if one does not say."""
    compiler = recipe.compiler
    searched = search_folders(compiler.path, recipe.compiler_flags, is_nvcc=compiler.kind == "nvcc")
    read = [prerequisites(each) for each in rules]
    if not searched or not all(read):
        return None
    own = {str(source) for source in recipe.sources}
    files = {
        file
        for each in read
        for file in each
        if file not in own and not file.startswith(f"{temporary}/")
    }
    given = [
        *recipe.words,
        *(source.read_text(errors="surrogateescape") for source in recipe.sources),
    ]
    return dependencies_of(files, searched, recipe.roots, given)


def _compile(recipe: Recipe, key: str, root: Path, folder: Path) -> tuple[list[Path], list[str]]:
    """Every source as an object file, compiled at the same time on as many cores as there are.

    Returns:
        The objects, and the dependency file of each.
    """
    if recipe.link_flags is None:
        return [], []
    objects = [folder / f"{i}-{source.stem}.o" for i, source in enumerate(recipe.sources)]
    head = [str(recipe.compiler.path), *_position_independent(recipe, "-c")]
    head += recipe.compiler_flags
    with _precompiled(recipe, folder) as (ahead, read), ThreadPoolExecutor(cpu_count()) as pool:

        def compiled(source: Path, made: Path, before: Sequence[str] = ahead) -> _Done:
            done = _run([*head, *before, "-o", str(made), str(source)], folder, recipe)
            # What is wrong with a source does not depend on what was parsed before it.
            return compiled(source, made, ()) if done.status != 0 and before else done

        # A build can begin in dlopen, for whose lock a thread that starts would wait for ever.
        each = map if len(recipe.sources) == 1 else pool.map
        try:
            for made, done in zip(objects, each(compiled, recipe.sources, objects), strict=True):
                if done.status != 0 or not made.is_file():
                    raise _failure(recipe, key, root, done)
                read.append(done.read)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    return objects, read


@contextlib.contextmanager
def _precompiled(recipe: Recipe, folder: Path) -> Iterator[tuple[list[str], list[str]]]:
    """The words that have the recipe's header come first, parsed; and what parsing it has read."""
    source, compiler = recipe.precompiled, recipe.compiler
    through_nvcc = compiler.kind == "nvcc"
    host = host_compiler() if through_nvcc else compiler
    if source is None or host is None or host.kind != "g++" or not source.is_file():
        return (yield [], [])
    header = folder / source.name
    parsed = header.with_name(f"{header.name}.gch")
    as_header = ["-fPIC", "-x", "c++-header"]
    if through_nvcc:
        as_header = ["-x", "c++", "-Xcompiler", ",".join(as_header)]
    as_header = ["-c", *as_header]
    try:
        if recipe.keeps_parsed:
            with contextlib.suppress(CompileFailure):
                if kept := _kept(recipe, source, as_header):
                    parsed.symlink_to(kept)
            if not parsed.is_symlink():
                return (yield [], [])
            # What is read then has the header's files, too.
            return (yield ["-fpch-deps", "-include", str(header)], [])
        shutil.copyfile(source, header)
        command = [str(compiler.path), *recipe.compiler_flags, *as_header]
        done = _run([*command, "-o", str(parsed), str(header)], folder, recipe)
        yield (["-include", str(header)], [done.read]) if done.status == 0 else ([], [])
    finally:
        for file in (header, parsed):
            file.unlink(missing_ok=True)


def _kept(recipe: Recipe, source: Path, as_header: Sequence[str]) -> Path | None:
    """A header parsed, for this place; None for a first build, which would gain nothing."""
    name = f"{source.name}, parsed for {recipe.name.rpartition('(')[2].rstrip(')')}"
    folders = [each for each in recipe.include_dirs if source.is_relative_to(each)]
    here = [str(each) for each in (source, *folders)]
    flags = [*recipe.flags, *as_header]
    header = Recipe(name, recipe.compiler, [source], flags, folders, None, here)
    asked = cache_dir() / "locks" / f"{recipe_key(header)}.asked"
    if asked.exists():
        return build(header)
    asked.touch()
    return None


def _position_independent(recipe: Recipe, what: str) -> list[str]:
    return [what, *(["-Xcompiler", "-fPIC"] if recipe.compiler.kind == "nvcc" else ["-fPIC"])]


@dataclass(frozen=True)
class _Done:
    """A command that has run.

    Attributes:
        read: Its dependency file; empty if it wrote none.
    """

    command: Sequence[str]
    status: int
    log: str
    read: str


def _run(command: Sequence[str], folder: Path, recipe: Recipe) -> _Done:
    # SUNPRO_DEPENDENCIES ends at a space.
    place = folder if " " not in str(folder) else Path("/tmp")
    number, rules = tempfile.mkstemp(suffix=".d", dir=place)
    os.close(number)
    # The compiler's own temporary files go where the artefact goes: one disk to be full.
    environment = {**os.environ, "TMPDIR": str(folder), "LC_ALL": "C"}
    if recipe.compiler.kind == "clang++":
        command = [*command, "-MD", "-MF", rules]
    else:
        environment["SUNPRO_DEPENDENCIES"] = rules
    try:
        run = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            text=True, errors="replace", timeout=_BUILD_TIMEOUT_S, env=environment, check=False,
        )  # fmt: skip
        read = Path(rules).read_text(errors="surrogateescape")
    except subprocess.TimeoutExpired:
        log = f"error: the compiler took longer than {_BUILD_TIMEOUT_S:.0f} s\n"
        return _Done(command, -1, log, "")
    finally:
        Path(rules).unlink()
    return _Done(command, run.returncode, with_real_files(run.stdout), read)


def _failure(recipe: Recipe, key: str, root: Path, done: _Done) -> EnvironmentProblem:
    log = done.log
    if "No space left on device" in log:
        return disk_full(root)
    path = root / "logs" / f"{key[:16]}.log"
    path.parent.mkdir(exist_ok=True)
    path.write_text(" ".join(done.command) + "\n" + log)
    lines = [" ".join(line.split()) for line in log.splitlines() if line.strip()]
    first = next((line for line in lines if _ERROR_LINE.search(line)), "")
    first = first or (lines[-1] if lines else f"it ended with status {done.status}")
    if reduces := _REDUCES.search(log):
        first += f" ({reduces[0]})"
    compiler = recipe.compiler
    return CompileFailure(
        f"{compiler.kind} {compiler.version} cannot build {recipe.name}: {first}",
        f"the log is {path}",
        first,
    )
