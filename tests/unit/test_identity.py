"""A finding is the same one after edits that do not touch it, and another after one that does."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelbench.base.errors import UsageError
from kernelbench.checks.allowances import require_allowances
from kernelbench.emulator.identity import code_at, identity_of, without_indices
from kernelbench.project.model import IDENTITY

SOURCE = """void f() {
  arrive(&shared.full[i]);  // the first
  use(a);
  arrive(&shared.full[i]);
}
"""


def identities(file: Path, text: str, where: str = "v07") -> list[str]:
    """Of a finding at each line that arrives."""
    file.write_text(text)
    lines = [i for i, line in enumerate(text.splitlines(), 1) if "arrive(" in line]
    return [
        identity_of(
            "race", "gemm", "full[2]", [("load_warp", f"{where}/k.cuh:{n}", code_at(file, n))]
        )
        for n in lines
    ]


def test_comments_blanks_lines_and_the_steps_name_do_not_count(tmp_path: Path) -> None:
    file = tmp_path / "k.cuh"
    before = identities(file, SOURCE)
    assert len(set(before)) == 2, "two equal lines are two places"
    edited = SOURCE.replace("void f", "// more\n\nvoid f").replace("// the first", "/* 1 */")
    edited = edited.replace("  arrive", "      arrive").replace("use(a);", "use(a);\n  use(b);")
    assert identities(file, edited, "v08") == before


def test_code_roles_kernels_classes_and_objects_count(tmp_path: Path) -> None:
    file = tmp_path / "k.cuh"
    before = identities(file, SOURCE)
    assert not set(before) & set(identities(file, SOURCE.replace("[i]", "[j]")))
    place = ("load_warp", "v07/k.cuh:2", "arrive();")
    first = identity_of("race", "gemm", "full[2]", [place])
    assert IDENTITY.fullmatch(first)
    assert first == identity_of("race", "gemm", "full[0] + 0x40", [place])
    others = [
        identity_of("overwrite", "gemm", "full[2]", [place]),
        identity_of("race", "other", "full[2]", [place]),
        identity_of("race", "gemm", "empty[2]", [place]),
        identity_of("race", "gemm", "full[2]", [("mma_warp", *place[1:])]),
        identity_of("race", "gemm", "full[2]", [place, place]),
    ]
    assert len({first, *others}) == 6


def test_which_side_came_first_does_not_count() -> None:
    sides = [("a", "v/k.cuh:1", "x;"), ("b", "v/k.cuh:2", "y;")]
    assert identity_of("race", "", "", sides) == identity_of("race", "", "", sides[::-1])


@pytest.mark.parametrize(
    ("name", "bare"),
    [("stages[2].a + 0x40", "stages[].a"), ("TMEM column 64", "TMEM"), ("", ""), ("row", "row")],
)
def test_indices_and_offsets_do_not_count(name: str, bare: str) -> None:
    assert without_indices(name) == bare


def test_a_line_that_is_not_there_has_no_code(tmp_path: Path) -> None:
    assert code_at(tmp_path / "none", 1) == ""
    (tmp_path / "k").write_text("one\n")
    assert [code_at(tmp_path / "k", n) for n in (0, 1, 2)] == ["", "one", ""]


@pytest.mark.parametrize(
    ("allow", "said"),
    [({"race": "because"}, "not a finding's identity"), ({"race-0123456789": " "}, "no reason")],
)
def test_an_allowance_names_a_finding_and_a_reason(allow: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        require_allowances(allow)
