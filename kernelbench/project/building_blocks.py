"""The building blocks that a step is built with, and the hash of all that makes its code."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

from kernelbench.base.errors import UnknownNameError
from kernelbench.project.model import Lineage, Step
from kernelbench.project.project_file import shipped_project
from kernelbench.project.shipped import shipped_blocks, shipped_root
from kernelbench.project.source_files import code_in, sources_of
from kernelbench.project.step_files import read_lineage


def source_sha(step: Step) -> str:
    """SHA-256 (hex) of what makes the step's code: sources by name and bytes, config, GPU flags.

    Prose (README, title, hypothesis, figures) does not count. A compiled step's sources include the
    building blocks that its lineage and all lineages share (``common/``): a change there can change
    any step. The stand-ins for a GPU (``backend/emu``, ``backend/soft``) are not among them.
    """
    import hashlib

    digest = hashlib.sha256()
    files = sources_of(step)
    if step.compiled:
        # As seen from a folder of the lineage's, so that a variant in a subfolder compares.
        near = step.lineage_path / step.name
        for common in building_blocks(step.lineage_path):
            stand_ins = [common / "backend" / name for name in ("emu", "soft")]
            files |= {
                _seen_from(near, file): file
                for file in code_in(common)
                if not any(file.is_relative_to(folder) for folder in stand_ins)
            }
    for name, file in files.items():
        content = file.read_bytes()
        # Lengths keep (name, bytes) pairs apart: moving bytes between files changes the hash.
        digest.update(b"%d %d\n" % (len(name.encode()), len(content)) + name.encode() + content)
    digest.update(json.dumps(step.config, sort_keys=True).encode())
    if step.gpu_flags:
        digest.update(json.dumps(step.gpu_flags).encode())
    if step.function:
        digest.update(json.dumps([step.function, step.arguments, step.arch]).encode())
    return digest.hexdigest()


def building_blocks(lineage: Path) -> list[Path]:
    """The folders ``common`` that a lineage's steps are built with, those that are there.

    They are its own, or that of the shipped lineage that it names as ``building_blocks``; and that
    of ``kernels``: the one beside the lineage, else the one that ships.

    Raises:
        UsageError: If its ``lineage.toml`` cannot be read or names no shipped lineage.
    """
    folders = [lineage / "common"]
    if not folders[0].is_dir() and (lineage / "lineage.toml").is_file():
        named = read_lineage(lineage).building_blocks
        if named:
            folders.append(_shipped_lineage(named, lineage / "lineage.toml").path / "common")
    beside = lineage.parent / "kernels" / "common"
    folders.append(beside if beside.is_dir() else shipped_blocks())
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def _shipped_lineage(name: str, file: Path) -> Lineage:
    found = {lineage.name: lineage for lineage in _shipped_lineages()}
    if name not in found:
        where = f" (field 'building_blocks') in {file}"
        raise UnknownNameError("shipped lineage", name, found, where)
    return found[name]


@functools.cache
def _shipped_lineages() -> tuple[Lineage, ...]:
    return tuple(read_lineage(folder) for folder in shipped_project().lineages)


def _seen_from(near: Path, file: Path) -> str:
    """A building block's path as a step's folder sees it; the same wherever kernelbench is."""
    if not near.is_relative_to(shipped_root()) and file.is_relative_to(shipped_root()):
        return f"../../{file.relative_to(shipped_root()).as_posix()}"
    return os.path.relpath(file, near).replace(os.sep, "/")
