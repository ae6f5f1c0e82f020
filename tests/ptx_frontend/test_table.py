"""Every row of the table has a test against a model that runs one of its opcodes."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from kernelbench.ptx.lowering.forms import Form, Pure
from kernelbench.ptx.lowering.table import TABLE, row_of

HERE = Path(__file__).parent
#: Rows that no model judges, by how their spellings begin, with the reason.
WITHOUT_MODEL: dict[str, str] = {}
_FILES = {"launch": ["small.ptx"], "arithmetic": ["conformance.py"]}
#: An opcode, or the source of a string that makes some: what stands in braces may be anything.
_WORD = re.compile(r"[a-z](?:[\w.:]|\{[^{}]*\})*")


def _words(name: str) -> set[str]:
    """What may be opcodes in a test's source, and in the PTX that it has as a whole."""
    module = importlib.import_module(f"test_{name}")
    texts = [Path(str(module.__file__)).read_text(), getattr(module, "TEXT", "")]
    texts += [(HERE / file).read_text() for file in _FILES.get(name, ())]
    return set().union(*(_WORD.findall(text) for text in texts))


def _runs(form: Form, words: set[str]) -> bool:
    if any(form.pattern.fullmatch(word) for word in words):
        return True
    made = [word for word in words if "{" in word and word.split(".")[0] in form.roots]
    pieces = (re.split(r"\{[^{}]*\}", word) for word in made if word.count(".") > 1)
    patterns = [re.compile(r"[\w.:]*".join(map(re.escape, each))) for each in pieces]
    return any(pattern.fullmatch(opcode) for opcode, _ in form.opcodes() for pattern in patterns)


@pytest.fixture(scope="module")
def words() -> dict[str, set[str]]:
    return {name: _words(name) for name in {form.test for form in TABLE}}


def test_a_model_judges_every_row(words):
    without = [
        form.spelling
        for form in TABLE
        if not isinstance(form, Pure)  # test_arithmetic runs every opcode of those
        and not form.spelling.startswith(tuple(WITHOUT_MODEL))
        and not _runs(form, words[form.test])
    ]
    assert without == [], without


def test_no_test_of_a_row_is_a_trial_of_a_step():
    assert not {form.test for form in TABLE} & {"steps", "parser", "table"}


def test_own_opcodes_have_rows():
    own = (HERE / "own_opcodes.txt").read_text().split()
    assert [each for each in own if row_of(each) is None] == []


def test_it_sees_a_row_without_one(words):
    made_up = Form("tcgen05.shift.cta_group::1.down", lambda *_: "", "tensor")
    assert not _runs(made_up, words["tensor"])
