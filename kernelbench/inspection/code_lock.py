"""The code lock: what each step's kernels compile to, kept in ``results/code.lock``.

Steps share building blocks, so that a change there can change the code of any step, also of one
that was measured long ago. The lock holds a hash of every kernel's machine code and literals, by
step, arch and version of nvcc; comments, names and line numbers do not reach it. It also holds a
hash of the step's own sources, which tells a step that was edited from one that was moved, and for
each build (native and gpu-soft) that neither spilled nor warned a key of what it was made of: text
without comments, flags, allowances. A build whose key is still the same is not repeated.

``python -m kernelbench.inspection.code_lock --check`` names every step whose code is not as
recorded or whose builds complain; ``--update`` (``make lock``) records it; ``--anew`` with either
builds whatever the keys say. Only nvcc is needed, no GPU.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from kernelbench.base import schema
from kernelbench.base.console import Status
from kernelbench.base.errors import EnvironmentProblem, KernelbenchError, RecordError, UsageError
from kernelbench.base.files import write_text
from kernelbench.base.observer import OnProgress
from kernelbench.base.toml_file import toml_key
from kernelbench.build import compiler
from kernelbench.build.includes import reached_files, without_comments
from kernelbench.inspection import cubin, resources
from kernelbench.machine.toolchain import INSTALL_NVCC, cpu_count
from kernelbench.project.project_file import Project, find_project
from kernelbench.project.registry import Step, load_lineages
from kernelbench.project.source_files import sources_of

NAME = "code.lock"
#: Of each SHA-256: 64 bits, too many for changed code to keep its hash by chance.
_DIGITS = 16
#: The builds of a step: for its own arch, and for one of sm_100a in software on sm_90a.
NATIVE, SOFT = "native", "soft"
_HEAD = """\
# What each step's kernels compile to, by step, arch and version of nvcc: `make lock` writes it,
# `make check` compares. A step whose hash moves though its own sources stay was changed through a
# building block that it shares. Builds are repeated only where a key is not as recorded.
"""
_KEY_VERSION = 1


@dataclass(frozen=True, order=True)
class LockKey:
    """What an entry of the lock is about; ``nvcc`` is the compiler's version."""

    step: str
    arch: str
    nvcc: str

    def __str__(self) -> str:
        return f"{self.step} ({self.arch})"


@dataclass(frozen=True)
class LockedKernel:
    """One kernel's code. Registers and bytes only tell a reader how far it moved."""

    sha256: str
    registers: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.registers} registers, {self.bytes} B"


@dataclass(frozen=True)
class LockedStep:
    """One step for one GPU."""

    sources: str  #: Hash of the step's files, those of its base included.
    kernels: dict[str, LockedKernel]  #: By mangled name.
    #: :func:`build_key` by build (:data:`NATIVE`, :data:`SOFT`), of those without complaint.
    keys: dict[str, str] = field(default_factory=dict)


Lock = Mapping[LockKey, LockedStep]


@dataclass(frozen=True)
class Move:
    """A step whose code is not as recorded."""

    key: LockKey
    own: bool  #: Whether its own sources changed too.
    what: str  #: What is different, in one line.

    def __str__(self) -> str:
        return f"{self.key}: {self.what}"


def locked_steps(steps: Iterable[Step]) -> list[Step]:
    """The steps that the lock covers: those with code, experiments included."""
    return [step for step in steps if step.compiled and step.status != "planned"]


def build_entries(
    steps: Sequence[Step],
    recorded: Lock | None = None,
    on_progress: OnProgress = lambda _text: None,
) -> tuple[dict[LockKey, LockedStep], list[Move]]:
    """The entries of steps as they are now, and what is wrong with their builds.

    Args:
        recorded: What is not built again where its keys still hold; None to build everything.

    Raises:
        CompileFailure: If one does not compile.
        EnvironmentProblem: If there is no nvcc.
    """
    nvcc = _nvcc()
    known = recorded or {}
    keys = {
        step.name: {
            SOFT if soft else NATIVE: build_key(step, soft=soft)
            for soft in resources.flavours(step, "all")
        }
        for step in steps
    }
    entries: dict[LockKey, LockedStep] = {}
    changed: list[Step] = []
    for step in steps:
        old = known.get(key := LockKey(step.name, step.arch, nvcc))
        if old is None or old.keys != keys[step.name]:
            changed.append(step)
        else:
            entries[key] = LockedStep(sources_hash(step), old.kernels, old.keys)
    complaints: list[Move] = []
    if changed:
        on_progress(f"building {len(changed)} steps")
    with ThreadPoolExecutor(cpu_count()) as pool:
        built = pool.map(lambda step: _build(step, keys[step.name]), changed)
        for done, (step, (entry, found)) in enumerate(zip(changed, built, strict=True), 1):
            key = LockKey(step.name, step.arch, nvcc)
            entries[key] = entry
            complaints += [Move(key, True, complaint) for complaint in found]
            on_progress(f"built {done} of {len(changed)} steps")
    return entries, complaints


def _nvcc() -> str:
    nvcc = compiler.nvcc()
    if nvcc is None:
        raise EnvironmentProblem(
            "the code lock needs nvcc: none on PATH, in CUDA_HOME or in the Python environment",
            INSTALL_NVCC,
        )
    return nvcc.version


def build_key(step: Step, *, soft: bool) -> str:
    """SHA-256 of what decides a step's device code and what may be said of it, for one nvcc.

    That is the text that nvcc sees of the project's files, comments apart, by name; the flags;
    the allowances of the step. Headers of the toolkit come with its version.
    """
    recipe = cubin.cubin_recipe(step, soft=soft)
    allowed = sorted({allowance.what for allowance in step.allowances})
    texts = [
        (file.label, without_comments(file.read()))
        for file in reached_files(recipe.sources, recipe.include_dirs)
    ]
    said = json.dumps([_KEY_VERSION, list(recipe.flags), allowed, texts])
    return hashlib.sha256(said.encode()).hexdigest()[:_DIGITS]


def _build(step: Step, keys: Mapping[str, str]) -> tuple[LockedStep, list[str]]:
    """A step's entry, with the keys of the builds without complaint, and the complaints."""
    kernels: dict[str, LockedKernel] = {}
    clean: dict[str, str] = {}
    complaints: list[str] = []
    for name, key in keys.items():
        code = cubin.compile_cubin(step, soft=name == SOFT)
        if name == NATIVE:
            kernels = _locked_kernels(code)
        if found := cubin.complaints(code, step.allowances):
            complaints += [f"{name} build: {complaint}" for complaint in found]
        else:
            clean[name] = key
    return LockedStep(sources_hash(step), kernels, clean), complaints


def _locked_kernels(code: cubin.Cubin) -> dict[str, LockedKernel]:
    sizes = {each.symbol: (each.registers, each.code_bytes) for each in code.functions}
    return {
        symbol: LockedKernel(sha[:_DIGITS], *sizes.get(symbol, (0, 0)))
        for symbol, sha in code.hashes.items()
    }


def sources_hash(step: Step) -> str:
    """SHA-256 of a step's sources without building blocks, by name and bytes, and its GPU flags."""
    digest = hashlib.sha256()
    for name, file in sources_of(step).items():
        content = file.read_bytes()
        digest.update(b"%d %d\n" % (len(name.encode()), len(content)) + name.encode() + content)
    digest.update("".join(f"{flag}\n" for flag in step.gpu_flags).encode())
    return digest.hexdigest()[:_DIGITS]


def compare_locks(recorded: Lock, current: Lock) -> list[Move]:
    """What differs between the lock and the steps as they are, both for one version of nvcc."""
    moves = []
    for key in sorted({*recorded, *current}):
        old, new = recorded.get(key), current.get(key)
        if old is None:
            moves.append(Move(key, True, "is not recorded"))
            continue
        if new is None:
            moves.append(Move(key, True, "is recorded, but there is no such compiled step"))
            continue
        own = old.sources != new.sources
        how = "with its own sources" if own else "through common/, its own sources are as recorded"
        if old.kernels != new.kernels:
            parts = [_difference(name, old, new) for name in sorted({*old.kernels, *new.kernels})]
            moves.append(Move(key, own, f"changed {how}: {'; '.join(filter(None, parts))}"))
        elif any(old.keys.get(name) != sha for name, sha in new.keys.items()):
            moves.append(Move(key, own, f"its keys changed {how}; its code did not"))
    return moves


def _difference(symbol: str, old: LockedStep, new: LockedStep) -> str:
    before, after = old.kernels.get(symbol), new.kernels.get(symbol)
    name = cubin.demangled(symbol)
    if before == after:
        return ""
    if before is None:
        return f"{name} is new"
    if after is None:
        return f"{name} is gone"
    if str(before) == str(after):
        return f"{name} ({after})"
    return f"{name} ({before} → {after})"


def read_lock(path: Path) -> dict[LockKey, LockedStep]:
    """The lock in a file, empty if there is none; RecordError, with the field, if malformed."""
    if not path.is_file():
        return {}
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
        steps = schema.decode(dict[str, dict[str, dict[str, LockedStep]]], value, path.name)
    except (OSError, ValueError) as error:
        raise RecordError(
            f"{path}: not a code lock: {' '.join(str(error).split())}",
            "restore it, or remove it and `make lock`",
        ) from error
    return {
        LockKey(step, arch, nvcc): entry
        for step, arches in steps.items()
        for arch, versions in arches.items()
        for nvcc, entry in versions.items()
    }


def text_of(lock: Lock) -> str:
    """The lock as TOML, sorted."""
    parts = [_HEAD]
    for key in sorted(lock):
        entry = lock[key]
        parts.append(f"\n[{toml_key(key.step)}.{toml_key(key.arch)}.{toml_key(key.nvcc)}]\n")
        parts.append(f'sources = "{entry.sources}"\n')
        for name, sha in sorted(entry.keys.items()):
            parts.append(f'keys.{toml_key(name)} = "{sha}"\n')
        if not entry.kernels:
            parts.append("kernels = {}\n")
        for symbol, kernel in sorted(entry.kernels.items()):
            parts.append(
                f"kernels.{toml_key(symbol)}={{registers={kernel.registers},"
                f'bytes={kernel.bytes},sha256="{kernel.sha256}"}}\n'
            )
    return "".join(parts)


def check_lock(
    project: Project, on_progress: OnProgress = lambda _text: None, *, anew: bool = False
) -> tuple[list[Move], str]:
    """What is not as recorded, and why nothing could be compared (else empty).

    Args:
        anew: Whether to build every step, whatever the keys say.
    """
    recorded = read_lock(project.results / NAME)
    steps = locked_steps(load_lineages(project).steps)
    versions = sorted({key.nvcc for key in recorded})
    nvcc = compiler.nvcc()
    if nvcc is None:
        return [], "there is no nvcc here"
    if versions and nvcc.version not in versions:
        return [], f"it is of nvcc {', '.join(versions)}, here is {nvcc.version}"
    mine = {key: entry for key, entry in recorded.items() if key.nvcc == nvcc.version}
    entries, complaints = build_entries(steps, None if anew else mine, on_progress)
    return compare_locks(mine, entries) + complaints, ""


def update(
    project: Project, on_progress: OnProgress = lambda _text: None, *, anew: bool = False
) -> list[Move]:
    """Record the steps as they are for the nvcc here; what that changes in the lock.

    Entries of other versions stay while there is such a step. A build that complains gets no key,
    so that :func:`check` goes on to say so.

    Args:
        anew: Whether to build every step, whatever the keys say.

    Raises:
        KernelbenchError: If there is no nvcc or a step does not compile; the lock stays as it was.
    """
    path = project.results / NAME
    recorded = read_lock(path)
    steps = locked_steps(load_lineages(project).steps)
    current, complaints = build_entries(steps, None if anew else recorded, on_progress)
    nvcc = _nvcc()
    names = {(step.name, step.arch) for step in steps}
    others = {
        key: entry
        for key, entry in recorded.items()
        if key.nvcc != nvcc and (key.step, key.arch) in names
    }
    write_text(path, text_of(others | current))
    mine = {key: entry for key, entry in recorded.items() if key.nvcc == nvcc}
    return compare_locks(mine, current) + complaints


def main(arguments: Sequence[str]) -> int:
    """``--check`` (the default) or ``--update``, with or without ``--anew``; the exit code."""
    given = [*arguments]
    anew = "--anew" in given
    if anew:
        given.remove("--anew")
    if given not in ([], ["--check"], ["--update"]):
        raise UsageError(
            "usage: python -m kernelbench.inspection.code_lock [--check|--update] [--anew]"
        )
    project = find_project()
    where = (project.results / NAME).relative_to(project.root)
    if given == ["--update"]:
        with Status() as status:
            moves = update(project, status, anew=anew)
        for move in moves:
            print(move)
        return 0
    with Status() as status:
        moves, why_not = check_lock(project, status, anew=anew)
    if why_not:
        print(f"{where}: not compared: {why_not}")
    for move in moves:
        print(f"{where}: {move}")
    if moves:
        print("if that is meant, `make lock` records it")
    return 1 if moves else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KernelbenchError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(problem.exit_code)
