"""Count words of ``docs/`` without code blocks, tables, comments, generated blocks and pages."""

import re
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE, ALL = 1_500, 28_000
LEFT_OUT = (
    r"^(```|:::)[^\n]*\n.*?^\1",
    r"<!-- ([\w-]+?)(:begin)? -->.*?<!-- (/\1|\1:end) -->",
    r"<!--.*?-->|^\s*\|[^\n]*|^\([\w-]+\)=$|(?<=\])\([^)]*\)",
)
counts = {}
for page in DOCS.rglob("*.md"):
    if page.parent.name != "findings" and "evidence-" not in page.name:
        text = page.read_text()
        for pattern in LEFT_OUT:
            text = re.sub(pattern, "", text, flags=re.MULTILINE | re.DOTALL)
        words = sum(any(letter.isalnum() for letter in word) for word in text.split())
        counts[str(page.relative_to(DOCS))] = words
for name, count in sorted(counts.items(), key=lambda item: -item[1]):
    print(f"{count:7,}  {name}{'' if count <= PAGE else f'  (over {PAGE:,})'}")
print(f"{sum(counts.values()):7,}  docs/, of {ALL:,}")
sys.exit(sum(counts.values()) > ALL)
