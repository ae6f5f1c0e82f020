"""What the layout of the package promises beside the order of imports (``lint-imports``)."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from conftest import ROOT

from kernelbench.executors.targets import executors

PACKAGE = ROOT / "kernelbench"
TEMPLATES = PACKAGE / "lineages" / "templates"
#: What every command module of the command line has, and every module that is run with ``-m``.
_ROLES = {"command", "main", "View"}


def modules() -> Iterator[tuple[Path, ast.Module]]:
    """Every module of the package with its syntax tree; templates are files of others' projects."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if TEMPLATES in path.parents:
            continue
        yield path.relative_to(PACKAGE), ast.parse(path.read_text(encoding="utf-8"))


def test_a_public_name_means_one_thing() -> None:
    where = defaultdict(list)
    for path, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name[0] != "_":
                where[node.name].append(str(path))
    twice = {name: found for name, found in where.items() if len(found) > 1 and name not in _ROLES}
    assert not twice


def test_packages_say_what_they_are_for() -> None:
    for folder in {path.parent for path, _ in modules()} - {Path(), Path("executors/compat")}:
        text = ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text())) or ""
        assert len(text.split()) >= 10, f"{folder}/__init__.py says little"


def test_only_the_executors_compare_names_of_executors() -> None:
    names = {executor.name for executor in executors()}
    found = []
    for path, tree in modules():
        if path.parts[0] == "executors":
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                asked = ast.unparse(node.left)
                texts = {
                    part.value
                    for side in (node.left, *node.comparators)
                    for part in ast.walk(side)
                    if isinstance(part, ast.Constant)
                }
                if texts & names and "executor" in ast.unparse(node):
                    found.append(f"{path}:{node.lineno} {asked}")
    assert not found
