"""The directive ``public-api``: every name that a module exports, as autodoc documents it.

The names come from ``__all__``, so that a page cannot leave one out.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class PublicApi(SphinxDirective):
    """``.. public-api:: kernelbench``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """One autodoc directive a name."""
        module = importlib.import_module(self.arguments[0])
        lines: list[str] = []
        for name in module.__all__:
            value = getattr(module, name)
            if name.startswith("__"):
                continue
            directive = "autoclass" if inspect.isclass(value) else "autofunction"
            lines += [f".. {directive}:: {module.__name__}.{name}"]
            lines += ["   :members:"] if directive == "autoclass" else []
            lines += [""]
        return self.parse_text_to_nodes("\n".join(["```{eval-rst}", *lines, "```"]))


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("public-api", PublicApi)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
