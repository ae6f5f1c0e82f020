"""Where the lineages, shapes and results of the current project are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelbench.base.errors import UsageError
from kernelbench.base.toml_file import TomlTable

#: Environment variable that names the project's root and overrides the search.
ROOT_VARIABLE = "KERNELBENCH_ROOT"


@dataclass(frozen=True)
class Project:
    """A folder whose ``pyproject.toml`` has a ``[tool.kernelbench]`` table.

    Attributes:
        root: The folder, absolute.
        lineages: The lineage folders, absolute, in the order of ``lineages = [...]``.
        shapes_file: The shapes, ``shapes.yaml`` unless ``shapes = "..."`` says otherwise.
        results: Where records and tables go, ``results`` unless ``results = "..."`` says otherwise.
    """

    root: Path
    lineages: tuple[Path, ...]
    shapes_file: Path
    results: Path


def find_project(start: Path | None = None) -> Project:
    """The project that a command works in.

    ``KERNELBENCH_ROOT`` wins; else the nearest folder at or above ``start`` (the current folder by
    default) with a ``[tool.kernelbench]`` table; else the source checkout that this package was
    imported from, which is how an editable install works from any folder.

    Raises:
        UsageError: If there is none, or its table is malformed.
    """
    named = os.environ.get(ROOT_VARIABLE)
    if named:
        root = Path(named).resolve()
        project = _read(root)
        if project is None:
            raise UsageError(
                f"{ROOT_VARIABLE}={named}: no pyproject.toml with a [tool.kernelbench] table there",
                f"point {ROOT_VARIABLE} at a project's root, or unset it",
            )
        return project
    for folder in _candidates(start):
        project = _read(folder)
        if project is not None:
            return project
    raise UsageError(
        f"no pyproject.toml with a [tool.kernelbench] table in {(start or Path.cwd()).resolve()} "
        "or above",
        f'add one with lineages = ["..."], or set {ROOT_VARIABLE}',
    )


def project_at(root: Path) -> Project:
    """The project whose root is ``root``, wherever the current folder is.

    Raises:
        UsageError: If there is none, or its table is malformed.
    """
    project = _read(root.resolve())
    if project is None:
        raise UsageError(f"{root}: no pyproject.toml with a [tool.kernelbench] table there")
    return project


def _candidates(start: Path | None) -> Iterator[Path]:
    here = (start or Path.cwd()).resolve()
    yield from (here, *here.parents)
    yield Path(__file__).resolve().parents[2]


def _read(root: Path) -> Project | None:
    """The project at ``root``, or None where there is no ``[tool.kernelbench]`` table."""
    file = root / "pyproject.toml"
    if not file.is_file():
        return None
    top = TomlTable.read(file)
    tool = top.table("tool")
    table = tool.table("kernelbench") if tool else None
    if table is None:
        return None
    lineages = table.strings("lineages")
    if not lineages:
        raise table.fail("lineages", "expected a list with the folder of at least one lineage")
    shapes = table.string("shapes", default="shapes.yaml")
    results = table.string("results", default="results")
    table.done()
    return Project(
        root=root,
        lineages=tuple(root / folder for folder in lineages),
        shapes_file=root / shapes,
        results=root / results,
    )
