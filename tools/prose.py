"""Count the words of ``docs/`` that people write: ``python tools/prose.py`` prints them.

Code blocks, tables, comments, generated blocks and generated pages are not counted.
"""

import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE, ALL = 1_500, 28_000
_LEFT_OUT = (
    r"^(```|:::)[^\n]*\n.*?^\1",
    r"<!-- ([\w-]+?)(:begin)? -->.*?<!-- (/\1|\1:end) -->",
    r"<!--.*?-->|^\s*\|[^\n]*|^\([\w-]+\)=$|(?<=\])\([^)]*\)",
)


def words_of(text: str) -> int:
    """Words of a page's running text, headings and lists."""
    for pattern in _LEFT_OUT:
        text = re.sub(pattern, "", text, flags=re.MULTILINE | re.DOTALL)
    return sum(any(letter.isalnum() for letter in word) for word in text.split())


if __name__ == "__main__":
    pages = [
        p for p in DOCS.rglob("*.md") if p.parent.name != "findings" and "evidence-" not in p.name
    ]
    counts = {str(page.relative_to(DOCS)): words_of(page.read_text()) for page in pages}
    for name, count in sorted(counts.items(), key=lambda item: -item[1]):
        print(f"{count:7,}  {name}{'' if count <= PAGE else f'  (over {PAGE:,})'}")
    print(f"{sum(counts.values()):7,}  docs/, of {ALL:,}")
    sys.exit(sum(counts.values()) > ALL)
