"""The role ``{repo}`path` ``: a file or folder of the repository, which has to be there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole

ROOT = Path(__file__).resolve().parents[2]


class RepositoryFile(SphinxRole):
    """Shows the path as code; one that is not there is an error of the build."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """The node, and what is wrong with it."""
        if not (ROOT / self.text).exists():
            message = self.inliner.reporter.error(
                f"no {self.text} in the repository", line=self.lineno
            )
            return [], [message]
        return [nodes.literal(self.rawtext, self.text)], []


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_role("repo", RepositoryFile())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
