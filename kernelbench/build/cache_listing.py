"""What the compile cache holds, and clearing it."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelbench.base.cache_folder import cache_dir, writing
from kernelbench.build.compiler import LIBRARY_FILE, META_FILE
from kernelbench.project import overlay

#: A younger temporary folder may be a build in progress.
_STALE_TEMPORARY_S = 3600.0


@dataclass(frozen=True)
class CacheEntry:
    """One finished artefact in the cache.

    Attributes:
        used: When it was last asked for, in seconds since the epoch.
        sha256: Hash of the library itself.
        build_s: How long it took to build.
    """

    key: str
    name: str
    compiler: str
    path: Path
    bytes: int
    created: str
    used: float
    sha256: str
    build_s: float


def cache_entries() -> list[CacheEntry]:
    """What the cache holds, last used first; entries that cannot be read are left out."""
    entries = []
    for meta_file in (cache_dir() / "builds").glob(f"*/{META_FILE}"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            entries.append(_entry(meta_file, json.loads(meta_file.read_text())))
    return sorted(entries, key=lambda entry: -entry.used)


def _entry(meta_file: Path, meta: Mapping[str, Any]) -> CacheEntry:
    folder = meta_file.parent
    return CacheEntry(
        key=folder.name, name=str(meta["name"]), compiler=str(meta["compiler"]),
        path=folder / LIBRARY_FILE, bytes=_size([folder]), created=str(meta["created"]),
        used=meta_file.stat().st_mtime, sha256=str(meta["sha256"]), build_s=float(meta["seconds"]),
    )  # fmt: skip


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
            meta = folder / META_FILE
            used = (meta if meta.is_file() else folder).stat().st_mtime
            if older_than_days is None or now - used > older_than_days * 86400:
                doomed.append(folder)
    leavings = [
        folder for folder in root.glob("tmp-*") if now - folder.stat().st_mtime > _STALE_TEMPORARY_S
    ]
    if older_than_days is None:
        leavings += [root / name for name in ("logs", overlay.FOLDER) if (root / name).is_dir()]
    freed = _size([*doomed, *leavings])
    with writing(root):
        for folder in [*doomed, *leavings]:
            shutil.rmtree(folder)
    return len(doomed), freed
