"""Words and prose of ``docs/`` and README.md; ``make check`` refuses what breaks the rules.

Counted are pages written by hand, without code blocks, tables, comments and generated blocks. A
sentence has at most 35 words, and none of the phrases in :data:`PHRASES`.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGE, ALL, SENTENCE = 1_500, 28_000, 35
#: Taken out before words are counted; sentences end at them.
LEFT_OUT = (
    r"^[ \t]*(```|:::)[^\n]*\n.*?^[ \t]*\1[ \t]*$",
    r"<!-- ([\w-]+?)(:begin)? -->.*?<!-- (/\1|\1:end) -->",
    r"<!--.*?-->|^\s*\|[^\n]*|^\([\w-]+\)=$|(?<=\])\([^)]*\)",
)
#: What English says otherwise, and how.
PHRASES = {
    r"\bby turns\b": "alternately",
    r"\bof (its|their) own\b": "its own X",
    r"\bthe (former|latter)\b": "name it",
    r"\bthe (first|second|third|fourth|last) (one )?(is|are|was|has|says|tells|does|needs|one)\b":
        "name it",
    r"\bthe one (before|after) the\b": "name it",
}  # fmt: skip


def prose_of(text: str) -> str:
    """A page's text without what is not prose, as blank lines."""
    for pattern in LEFT_OUT:
        text = re.sub(
            pattern, lambda m: "\n" * m[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL
        )
    return text


def words_of(text: str) -> int:
    """How many words a text has."""
    return sum(any(letter.isalnum() for letter in word) for word in text.split())


def sentences_of(text: str) -> Iterator[tuple[int, str]]:
    """The sentences of prose, each with the line that it begins in.

    A list's item, a heading and a paragraph end one, too; what stands in backticks is one word.
    """
    text = re.sub(r"`[^`]+`", lambda m: "`code`" + "\n" * m[0].count("\n"), text)
    ends = re.compile(r"[.!?](?=[)*\"”]*\s)|\n(?=\s*(?:\n|[*+-] |\d+\. |#))|\Z", re.MULTILINE)
    begin = 0
    for end in ends.finditer(text):
        sentence = text[begin : end.end()]
        lead = len(sentence) - len(sentence.lstrip())
        yield text.count("\n", 0, begin + lead) + 1, " ".join(sentence.split())
        begin = end.end()


def mistakes_in(prose: str) -> Iterator[tuple[int, str]]:
    """Lines of a page's prose and what is wrong there."""
    for line, sentence in sentences_of(prose):
        count = words_of(sentence)
        if count > SENTENCE:
            yield line, f"a sentence of {count} words (at most {SENTENCE}): {sentence[:60]}…"
        for pattern, instead in PHRASES.items():
            if found := re.search(pattern, sentence, re.IGNORECASE):
                yield (
                    line,
                    f'"{found[0]}" ({instead}): …{sentence[max(found.start() - 20, 0) :][:60]}',
                )


def main() -> int:
    """Print what is wrong and the words; 1 if anything is."""
    wrong, counts = 0, {}
    for page in [*sorted(DOCS.rglob("*.md")), ROOT / "README.md"]:
        name = str(page.relative_to(ROOT))
        prose = prose_of(page.read_text(encoding="utf-8"))
        for line, what in mistakes_in(prose):
            wrong += 1
            print(f"{name}:{line}: {what}")
        if page.is_relative_to(DOCS) and "findings/" not in name and "evidence-" not in name:
            counts[name] = words_of(prose)
            if counts[name] > PAGE:
                wrong += 1
                print(
                    f"{name}: {counts[name]:,} words (at most {PAGE:,}): split the page or cut it"
                )
    if "--words" in sys.argv:
        for name, count in sorted(counts.items(), key=lambda item: -item[1]):
            print(f"{count:7,}  {name}")
    print(f"{sum(counts.values()):7,} words in docs/, of {ALL:,}; {wrong} to mend")
    return int(wrong > 0 or sum(counts.values()) > ALL)


if __name__ == "__main__":
    sys.exit(main())
