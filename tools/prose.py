"""Count the words of the documentation that people write: ``python tools/prose.py`` prints them.

Not counted: code blocks, tables, comments, what stands between generated markers, and pages that a
tool prints whole (``evidence-*.md``, ``findings/``). The sum is over ``docs/``; README.md is apart.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGE, ALL = 1_500, 28_000
_LEFT_OUT = (
    r"^(```|:::)[^\n]*\n.*?^\1",
    r"<!-- ([\w-]+?)(:begin)? -->.*?<!-- (/\1|\1:end) -->",
    r"<!--.*?-->",
    r"^\s*\|[^\n]*",
    r"^\([\w-]+\)=$",
)


def words_of(text: str) -> int:
    """Words of a page's running text, headings and lists."""
    for pattern in _LEFT_OUT:
        text = re.sub(pattern, "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return sum(any(letter.isalnum() for letter in word) for word in text.split())


def pages() -> dict[str, int]:
    """Words of each page that people write."""
    files = [file for file in sorted(DOCS.rglob("*.md")) if file.parent.name != "findings"]
    files = [file for file in files if not file.name.startswith("evidence-")]
    return {str(file.relative_to(DOCS)): words_of(file.read_text()) for file in files}


def main() -> int:
    """Print words per page; 1 if a page or the sum has more than it may."""
    counts = pages()
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        print(f"{count:7,}  {name}{'' if count <= PAGE else f'  (over {PAGE:,})'}")
    print(f"{sum(counts.values()):7,}  docs/, of {ALL:,}")
    print(f"{words_of((ROOT / 'README.md').read_text()):7,}  README.md")
    return 1 if sum(counts.values()) > ALL or max(counts.values()) > PAGE else 0


if __name__ == "__main__":
    sys.exit(main())
