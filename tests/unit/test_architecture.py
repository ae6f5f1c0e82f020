"""What the layout of the package promises beside the order of imports (``lint-imports``)."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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


def public_names(tree: ast.Module) -> Iterator[str]:
    """Classes, functions and type aliases that a module defines."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            # Constants are in capitals, and a schema or limit of each module's own.
            names = [t.id for t in node.targets if isinstance(t, ast.Name)]
            names = [name for name in names if name[0].isupper() and not name.isupper()]
        else:
            continue
        yield from (name for name in names if name[0] != "_")


def test_a_public_name_means_one_thing() -> None:
    where = defaultdict(list)
    for path, tree in modules():
        for name in public_names(tree):
            where[name].append(str(path))
    twice = {name: found for name, found in where.items() if len(found) > 1 and name not in _ROLES}
    assert not twice
    assert {"Metric", "L2Mode", "OnProgress"} <= where.keys(), "aliases are looked at"


def test_a_module_goes_by_its_own_name() -> None:
    """Who reads ``targets.resolve`` finds it in ``targets``; numpy is np everywhere."""
    found = []
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = getattr(node, "module", None)
                for alias in node.names:
                    whole = alias.name if module is None else f"{module}.{alias.name}"
                    if alias.asname and whole.startswith("kernelbench."):
                        found.append(f"{path}:{node.lineno} {whole} as {alias.asname}")
    assert not found


#: Folders of templates, and of what another Python process finds on its path.
_NO_PACKAGES = {Path("kinds/compat"), Path("build/noted_extensions")}


def test_packages_say_what_they_are_for() -> None:
    for folder in {path.parent for path, _ in modules()} - {Path(), *_NO_PACKAGES}:
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


#: Packages that others build on: their functions say what they take.
DESCRIBED = ("base", "checks", "compare", "machine", "measure", "records", "stats")


def public_functions(body: Sequence[ast.stmt], name: str = "") -> Iterator[tuple[str, Any]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            whole = f"{name}.{node.name}"
            if isinstance(node, ast.ClassDef):
                yield from public_functions(node.body, whole)
            else:
                yield whole, node


def test_functions_of_three_parameters_describe_them() -> None:
    """That they describe all of them is ruff's to say (D417)."""
    found, seen = [], 0
    for path, tree in modules():
        for name, node in public_functions(tree.body) if path.parts[0] in DESCRIBED else ():
            parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            if len([each for each in parameters if each.arg not in ("self", "cls")]) >= 3:
                seen += 1
                if "Args:\n" not in (ast.get_docstring(node) or ""):
                    found.append(f"{path}{name}")
    assert found == []
    assert seen > 50
