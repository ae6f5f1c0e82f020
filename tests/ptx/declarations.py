"""What the ptx layer's public headers declare, and the PTX that their comments promise."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMON = ROOT / "kernels" / "common"
HEADERS = sorted((COMMON / "ptx").glob("*.cuh"))
# Instructions that a lineage has beside the layer, with bodies in backend/ all the same.
BESIDE = (ROOT / "hopper" / "common" / "half_words.cuh",)
ARCHES = ("sm90a", "sm100a")

_DECLARATION = re.compile(
    r"(?P<comment>(?:^//.*\n)+)(?:^template <.*>\n)?^KB_DEVICE [\w:<>]+\s+(?P<name>\w+)\(", re.M
)
_INDENTED = re.compile(r"//      \S")
_ALTERNATIVES = re.compile(r"<([^<>]*)>")
# One operand: a vector, a special register, a register, a number, a name, or the sink.
_OPERAND = re.compile(r"\{[^}]*\}|%?\w[\w.$]*|_")
_REGISTER = r"%?[A-Za-z]\w*|-?\d\w*"


@dataclass(frozen=True)
class Declaration:
    """One overload: its instructions as its comment writes them, and the arches that have it."""

    name: str
    header: str
    forms: tuple[str, ...]
    arches: tuple[str, ...]


def declarations() -> list[Declaration]:
    """Every public function of every header."""
    return [found for header in HEADERS for found in _declarations_of(header)]


def declarations_beside() -> list[Declaration]:
    """Every function that a lineage has beside the layer."""
    return [found for header in BESIDE for found in _declarations_of(header)]


def _declarations_of(header: Path) -> list[Declaration]:
    text = header.read_text()
    found = []
    for match in _DECLARATION.finditer(text):
        where = f"{header.name}: {match['name']}"
        lines = match["comment"].splitlines()
        assert lines[0].startswith("// PTX: "), f"{where} states no PTX form"
        # Lines of the forms are indented; the next one says which SMs.
        count = 1 + sum(1 for _ in itertools.takewhile(_INDENTED.match, lines[1:]))
        forms = _forms([line[8:] for line in lines[:count]])
        found.append(Declaration(match["name"], header.name, forms, _arches(lines[count], where)))
    return found


def _forms(lines: list[str]) -> tuple[str, ...]:
    """Statements over several lines; one that starts with a dot continues the opcode."""
    text = "".join(line if line.startswith(".") else f" {line}" for line in lines)
    assert text.endswith(";"), text
    return tuple(form.strip() for form in text.split(";") if form.strip())


def _arches(line: str, where: str) -> tuple[str, ...]:
    """From the line behind the forms, such as ``sm_90+ · one thread.``"""
    match = re.match(r"// (every SM|sm_[^·.]*?)\s*[·.]", line)
    assert match, f"{where} states no SM: {line}"
    only = {"sm_90a": ("sm90a",), "sm_100a": ("sm100a",)}
    return only.get(match[1], ARCHES)


def expand(form: str) -> list[str]:
    """Each choice of ``<a|b>`` written out."""
    parts = _ALTERNATIVES.split(form)
    choices = [part.split("|") if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def pattern(form: str) -> re.Pattern[str]:
    """What the statement looks like in PTX: the opcode to the letter, any names as operands."""
    opcode, _, operands = form.partition(" ")
    return re.compile(re.escape(opcode) + (r"\s+" + _operands(operands) if operands else ""))


def _operands(text: str) -> str:
    text = re.sub(r"\s+", "", text)
    pieces, end = [], 0
    for match in _OPERAND.finditer(text):
        pieces += [*map(re.escape, text[end : match.start()]), _operand(match[0])]
        end = match.end()
    return r"\s*".join([*pieces, *map(re.escape, text[end:])])


def _operand(text: str) -> str:
    if text.startswith("{"):
        names = text[1:-1].split(",")
        if names[-1] == "…":
            return r"\{[^}]*\}"
        inner = r"\s*,\s*".join(_operand(name) for name in names)
        return r"\{\s*" + inner + r"\s*\}"
    if text == "_" or text[0] in "%0123456789":
        return re.escape(text)
    return f"(?:{_REGISTER})"
