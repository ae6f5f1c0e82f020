"""Where the lineages, shapes and results of the current project are."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from kernelbench.base.errors import UsageError
from kernelbench.base.toml_file import TomlTable
from kernelbench.project.shipped import shipped_root, user_results

#: Environment variable that names the project's root and overrides the search.
ROOT_VARIABLE = "KERNELBENCH_ROOT"


@dataclass(frozen=True)
class Project:
    """A folder whose ``pyproject.toml`` has a ``[tool.kernelbench]`` table."""

    root: Path  #: The folder, absolute.
    #: The lineage folders, absolute, in the order of ``lineages = [...]``.
    lineages: tuple[Path, ...]
    shapes_file: Path  #: The shapes, ``shapes.yaml`` unless ``shapes = "..."`` says otherwise.
    #: Where records and tables go, ``results`` unless ``results = "..."`` says otherwise.
    results: Path
    #: Whether the current folder is in no project: this is only what ships, which nobody adds steps
    #: to, and results go to the user's data folder.
    nowhere: bool = False


def find_project(start: Path | None = None) -> Project:
    """The project that a command works in.

    ``KERNELBENCH_ROOT`` wins; else the nearest folder at or above ``start`` (the current folder by
    default) with a ``[tool.kernelbench]`` table; else what ships with kernelbench
    (:func:`shipped_project`), so that its lineages run in any folder.

    Raises:
        UsageError: If ``KERNELBENCH_ROOT`` names none, or a table is malformed.
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
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        project = _read(folder)
        if project is not None:
            return project
    return shipped_project()


def shipped_project() -> Project:
    """The lineages that ship, as a project; its results are in the user's data folder."""
    project = _read(shipped_root())
    if project is None:
        raise UsageError(
            f"{shipped_root()}: the lineages that ship with kernelbench are not there",
            "install it again, from a wheel or with `pip install -e` from a checkout",
        )
    return replace(project, results=user_results(), nowhere=True)


def project_at(root: Path) -> Project:
    """The project whose root is ``root``; UsageError if there is none or a malformed one."""
    project = _read(root.resolve())
    if project is None:
        raise UsageError(f"{root}: no pyproject.toml with a [tool.kernelbench] table there")
    return project


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
