"""Words and prose of ``docs/`` and README.md; ``make check`` refuses what breaks the rules.

Pages written by hand count, without code blocks, tables, comments and generated blocks. A sentence
has at most 35 words and none of :data:`PHRASES`. ``--words`` lists the pages by length.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGE, ALL, SENTENCE = 1_500, 28_000, 35
LEFT_OUT = (
    r"^[ \t]*(```|:::)[^\n]*\n.*?^[ \t]*\1[ \t]*$",
    r"<!-- ([\w-]+?)(:begin)? -->.*?<!-- (/\1|\1:end) -->",
    r"<!--.*?-->|^\s*\|[^\n]*|^\([\w-]+\)=$|(?<=\])\([^)]*\)",
)
_ORDINAL = r"the (first|second|third|fourth|last) (one|is|are|was|has|says|tells|does|needs)"
#: What English says otherwise, and how.
PHRASES = {
    r"\bby turns\b": "alternately",
    r"\bof (its|their) own\b": "its own X, a separate X",
    rf"\b({_ORDINAL}|the (former|latter)|the one (before|after) the)\b": "name what is meant",
}
#: Where a sentence ends: also at the end of a paragraph, a heading or a list's item.
_END = re.compile(r"[.!?](?=[)*\"”]*\s)|\n(?=\s*(?:\n|[*+-] |\d+\. |#))|\Z", re.MULTILINE)


def prose_of(text: str) -> str:
    """A page's text with blank lines in place of what is not prose."""
    for pattern in LEFT_OUT:
        blank = re.compile(pattern, re.MULTILINE | re.DOTALL)
        text = blank.sub(lambda found: "\n" * found[0].count("\n"), text)
    return text


def words_of(text: str) -> int:
    """How many words a text has."""
    return sum(any(letter.isalnum() for letter in word) for word in text.split())


def sentences_of(prose: str) -> Iterator[tuple[int, str]]:
    """The sentences, each with the line that it begins in; code in backticks is one word."""
    prose = re.sub(r"`[^`]+`", lambda code: "`code`" + "\n" * code[0].count("\n"), prose)
    begin = 0
    for end in _END.finditer(prose):
        sentence = prose[begin : end.end()]
        lead = begin + len(sentence) - len(sentence.lstrip())
        yield prose.count("\n", 0, lead) + 1, " ".join(sentence.split())
        begin = end.end()


def mistakes_in(prose: str) -> Iterator[tuple[int, str]]:
    """Lines of a page's prose and what is wrong there."""
    for line, sentence in sentences_of(prose):
        count = words_of(sentence)
        if count > SENTENCE:
            yield line, f"a sentence of {count} words, at most {SENTENCE}: {sentence[:60]}…"
        for pattern, instead in PHRASES.items():
            for found in re.finditer(pattern, sentence, re.IGNORECASE):
                yield line, f'"{found[0]}" ({instead}): …{sentence[found.start() :][:60]}'


def main() -> int:
    """Print what is wrong and the number of words; 1 if anything is wrong."""
    wrong, counts = [], {}
    for page in [*sorted(DOCS.rglob("*.md")), ROOT / "README.md"]:
        name = str(page.relative_to(ROOT))
        if "evidence-" in name:
            continue
        prose = prose_of(page.read_text(encoding="utf-8"))
        wrong += [f"{name}:{line}: {what}" for line, what in mistakes_in(prose)]
        if page.is_relative_to(DOCS) and page.parent.name != "findings":
            counts[name] = words_of(prose)
            if counts[name] > PAGE:
                wrong.append(f"{name}: {counts[name]:,} words, at most {PAGE:,}: cut or split it")
    if "--words" in sys.argv:
        for name, count in sorted(counts.items(), key=lambda item: -item[1]):
            print(f"{count:7,}  {name}")
    print(*wrong, f"{sum(counts.values()):,} words in docs/, of {ALL:,}", sep="\n")
    return int(bool(wrong) or sum(counts.values()) > ALL)


if __name__ == "__main__":
    sys.exit(main())
