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
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from kernelbench.base.errors import EnvironmentProblem, UnknownNameError

PROBLEMS = "kernelbench.problems"
PEERS = "kernelbench.peers"


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
    return {point.name: point for point in entry_points(group=PROBLEMS)}


@functools.cache
def installed_peers() -> tuple[Path, ...]:
    """The folders of the peers' lineages that packages bring, in the order of their names.

    Raises:
        EnvironmentProblem: If a package names a folder that is no lineage of peers.
    """
    points = sorted(entry_points(group=PEERS), key=lambda point: point.name)
    return tuple(_folder(point) for point in points)


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
