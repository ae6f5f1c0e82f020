"""The directive ``package-picture``: which package of kernelbench imports which.

It is drawn when the pages are built, from the layers of pyproject.toml and from the imports
themselves, so that it cannot be out of date.
"""

from __future__ import annotations

import ast
import html
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "kernelbench"
_CELL, _NAME, _HEAD = 18, 88, 84


def layers() -> list[str]:
    """The packages in the order of the contract, the one that may import all others first."""
    with (ROOT / "pyproject.toml").open("rb") as stream:
        contracts = tomllib.load(stream)["tool"]["importlinter"]["contracts"]
    (found,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    return list(found)


def purpose(package: str) -> str:
    """The first sentence of a package's docstring."""
    text = ast.get_docstring(ast.parse((PACKAGE / package / "__init__.py").read_text())) or ""
    first = " ".join(text.partition("\n\n")[0].split())
    return first.removesuffix(".")


def imports(package: str) -> set[str]:
    """The packages that any module of a package imports, inside functions and for types too."""
    found = set()
    for file in (PACKAGE / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            for name in names:
                parts = name.split(".")
                if parts[0] == "kernelbench" and len(parts) > 1:
                    found.add(parts[1])
    return found - {package}


def picture(packages: Sequence[str]) -> str:
    """An SVG: a row and a column for each package, a dot where the row imports the column."""
    width = _NAME + _CELL * len(packages) + 36
    height = _HEAD + _CELL * len(packages) + 8
    head = (
        f'<svg class="packages" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'aria-label="Which package imports which" xmlns="http://www.w3.org/2000/svg" '
        f'font-family="sans-serif" font-size="12" fill="currentColor">'
    )
    parts = [head]
    for column, name in enumerate(packages):
        x = _NAME + _CELL * column + _CELL / 2
        parts.append(
            f'<text transform="translate({x + 4:g} {_HEAD - 6}) rotate(-60)">{name}</text>'
        )
    for row, name in enumerate(packages):
        y = _HEAD + _CELL * row
        parts.append(f'<text x="{_NAME - 8}" y="{y + 13}" text-anchor="end">{name}</text>')
        used = imports(name)
        for column, other in enumerate(packages):
            x = _NAME + _CELL * column
            fill = "0.16" if row == column else "0.04"
            parts.append(
                f'<rect x="{x}" y="{y}" width="{_CELL - 1}" height="{_CELL - 1}" '
                f'fill-opacity="{fill}"/>'
            )
            if other in used:
                title = html.escape(f"{name} imports {other}")
                parts.append(
                    f'<circle cx="{x + _CELL / 2 - 0.5:g}" cy="{y + _CELL / 2 - 0.5:g}" r="4.5">'
                    f"<title>{title}</title></circle>"
                )
    return "".join([*parts, "</svg>"])


class PackagePicture(SphinxDirective):
    """``.. package-picture::``: the picture, and what each package is for."""

    def run(self) -> list[nodes.Node]:
        """Raw HTML and a table."""
        packages = layers()
        rows = [f"| `{name}` | {purpose(name)} |" for name in packages]
        table = self.parse_text_to_nodes("\n".join(["| package | for |", "| --- | --- |", *rows]))
        return [nodes.raw("", picture(packages), format="html"), *table]


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("package-picture", PackagePicture)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
