"""tools/prose.py: what it takes for a sentence, and what it refuses."""

from __future__ import annotations

import runpy

from conftest import ROOT

PROSE = runpy.run_path(str(ROOT / "tools" / "prose.py"))


def mistakes(text: str) -> list[tuple[int, str]]:
    return [*PROSE["mistakes_in"](PROSE["prose_of"](text))]


def test_long_sentences_are_named_with_their_line() -> None:
    long = "word " * 35 + "end."
    found = mistakes(f"# Title\n\nShort one. {long}\n")
    assert [(line, what[:22]) for line, what in found] == [(3, "a sentence of 36 words")]
    assert mistakes("* " + "word " * 30 + "\n* " + "word " * 30) == []
    assert (
        mistakes(f"```\n{long}\n```\n\n| {long} |\n\n<!-- a:begin -->{long}<!-- a:end -->\n") == []
    )
    assert mistakes("`" + "code " * 40 + "` is one word.") == []


def test_phrases_that_english_says_otherwise() -> None:
    for text in (
        "They run by turns.", "It has a stream\nof its own.", "The latter is faster.",
        "The second is slower.", "It is the one before the last.",
    ):  # fmt: skip
        assert len(mistakes(text)) == 1, text
    assert mistakes("Bring your own step. The last call is slow. `of its own`.") == []
