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

#: Those are shown where the family of errors is.
_ERRORS = "kernelbench.base.errors"


def _group(value: Any) -> int:
    """Functions first, then what they return, then what they raise."""
    if not inspect.isclass(value):
        return 0
    return 2 if issubclass(value, BaseException) else 1


class PublicApi(SphinxDirective):
    """``.. public-api:: kernelbench``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """One autodoc directive a name."""
        module = importlib.import_module(self.arguments[0])
        names = [name for name in module.__all__ if not name.startswith("__")]
        values = {name: getattr(module, name) for name in names}
        lines: list[str] = []
        for name, value in sorted(values.items(), key=lambda item: _group(item[1])):
            if _group(value) == 2 and value.__module__ == _ERRORS:
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
