"""How Sphinx builds the documentation: `make docs`, warnings are errors."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE.parent)]

from kernelbench.base.version import __version__  # noqa: E402 (the path is needed for it)

project = "kernelbench"
author = "the kernelbench authors"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "command_examples",
    "house_table",
    "package_picture",
    "public_api",
    "terminal_gallery",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["pictures/*.md"]

myst_enable_extensions = ["colon_fence", "deflist", "fieldlist"]
myst_heading_anchors = 3
# GitHub shows the pages too: a link to another page is one to its file.
suppress_warnings = ["myst.strikethrough"]

# An option is typed with two hyphens.
smartquotes = False

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"kernelbench {version}"
# Nothing is loaded from elsewhere, and nothing is copied that a reader has in the repository.
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
