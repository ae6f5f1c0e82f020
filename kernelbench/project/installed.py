"""Problems and peers that other packages bring, by entry points.

``kernelbench.problems``
    A name, and the object or class that is the problem: ``problem = "NAME"`` in a
    ``lineage.toml`` means it.
``kernelbench.peers``
    A name, and the package whose folder is a lineage with ``peers_of`` in its ``lineage.toml``. Its
    steps are peers in every project that has a lineage of that name.

No torch here.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelbench.base.errors import EnvironmentProblem, UnknownNameError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PROBLEMS = "kernelbench.problems"
PEERS = "kernelbench.peers"


def entry_points_of(group: str) -> list[EntryPoint]:
    """A group's, by name. Where no package has one, ``list`` is spared a tenth of its time."""
    if not any(_may_name(group, Path(place)) for place in sys.path):
        return []
    from importlib.metadata import entry_points

    return sorted(entry_points(group=group), key=lambda point: point.name)


def _may_name(group: str, place: Path) -> bool:
    """Whether a package in a place of ``sys.path`` has the group; an archive may."""
    if not place.is_dir():
        return place.is_file()
    lists = place.glob("*-info/entry_points.txt")
    return any(group.encode() in file.read_bytes() for file in lists)


def installed_problem(name: str, said: str) -> Any:
    """The object that an installed package gives for a problem's name.

    Args:
        said: How a message begins: the file that names it.

    Raises:
        UnknownNameError: If no package has it, with the nearest that one has.
        Exception: What importing it raises.
    """
    points = installed_problems()
    if name not in points:
        where = f" in {said.removesuffix(': ')}" if said else ""
        raise UnknownNameError("installed problem", name, points, where)
    return points[name].load()


def installed_problems() -> dict[str, EntryPoint]:
    """The problems that packages bring, by name; none is imported."""
    return {point.name: point for point in entry_points_of(PROBLEMS)}


@functools.cache
def installed_peers() -> tuple[Path, ...]:
    """The peers' lineages that packages bring, by name; EnvironmentProblem for a folder of none."""
    return tuple(_folder(point) for point in entry_points_of(PEERS))


def _folder(point: EntryPoint) -> Path:
    package = point.dist.name if point.dist else "?"
    where = f"peers {point.name!r} of the installed package {package!r} ({point.value})"
    advice = f"update or uninstall {package}"
    try:
        # The module is found, its parents being imported; it is not run.
        spec = importlib.util.find_spec(point.module)
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise EnvironmentProblem(f"{where} cannot be found: {text}", advice) from error
    if spec is None:
        raise EnvironmentProblem(f"{where} cannot be found", advice)
    places = [*(spec.submodule_search_locations or [])]
    places += [str(Path(spec.origin).parent)] if spec.origin else []
    for place in places:
        if (Path(place) / "lineage.toml").is_file():
            return Path(place)
    raise EnvironmentProblem(f"{where}: no lineage.toml in its folder", advice)
