"""Libraries that a wheel brings built, found by the hash of all that they are made of.

The hash has the sources, the headers of the project that they include, flags, machine and facts: no
path and no compiler. Where anything differs, and in a checkout, nothing is found and
:func:`kernelbench.build.compiler.build` builds as ever. ``tools/prebuild.py`` makes them.
"""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

from kernelbench.build.compiler import LIBRARY_FILE, Recipe
from kernelbench.build.includes import reached_files

#: Below the package, in a wheel.
FOLDER = "_prebuilt"


def library(recipe: Recipe) -> Path | None:
    """What a recipe makes, if the wheel brought it."""
    folder = Path(__file__).resolve().parents[1] / FOLDER
    if not folder.is_dir():
        return None
    found = folder / entry_name(recipe) / LIBRARY_FILE
    return found if found.is_file() else None


def entry_name(recipe: Recipe) -> str:
    """The folder of what a recipe makes: its name and the hash."""
    facts = [platform.machine(), *recipe.flags, "link", *(recipe.link_flags or ())]
    facts += ["facts", *recipe.facts, "names", *recipe.names.values()]
    digest = hashlib.sha256()
    for fact in facts:
        digest.update(b"%d %s\n" % (len(fact.encode()), fact.encode()))
    for file in reached_files(recipe.sources, recipe.include_dirs):
        content = file.read()
        digest.update(b"%s %d\n" % (file.label.encode(), len(content)))
        digest.update(content)
    return f"{recipe.name.replace(' ', '-')}-{digest.hexdigest()[:32]}"
