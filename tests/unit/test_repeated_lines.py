"""The tool that counts what steps repeat."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import repeated_lines

COMMON = """// Waits.
template <typename T>
KB_DEVICE void drain(T& shared,
                     uint32_t count) {
  wait(shared, count);
}
"""
OWN = """namespace kb::step {

struct Stage {
  uint8_t a[16];
};

KB_DEVICE uint32_t own() {
  return NUMBER;
}

"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for number, name in enumerate(("v01", "v02", "v03")):
        folder = tmp_path / "kernels" / name
        folder.mkdir(parents=True)
        text = OWN.replace("NUMBER", str(number)) + (COMMON if number else "") + "\n}\n"
        (folder / "kernel.cuh").write_text(text)
    (tmp_path / "kernels" / "common").mkdir()
    (tmp_path / "kernels" / "common" / "drain.cuh").write_text(COMMON)
    return tmp_path


def test_functions_are_compared_as_a_whole(tree: Path) -> None:
    file = tree / "kernels" / "v02" / "kernel.cuh"
    own, common = repeated_lines.functions_of(file)
    assert own == "KB_DEVICE uint32_t own() {\n  return 1;\n}\n"
    assert common == COMMON.partition("\n")[2]


def test_every_copy_but_one_counts(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert repeated_lines.main(["--tree", str(tree), "--functions", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "     5  group_gemm, main line"
    assert lines[-2] == "     5  all of them together"
    assert lines[-1].startswith("    2 copies of   5 lines  template <typename T>")


def test_a_tree_without_steps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        repeated_lines.main(["--tree", str(tmp_path)])


def test_steps_of_one_kernel_share_their_mechanism() -> None:
    """A third of the 1,956 lines that m08 to m16 repeated before it was in moe/common."""
    tree = Path(__file__).parents[2]
    steps = repeated_lines.files_of(tree, ("moe/m0[89]", "moe/m1[0-6]"))
    assert len({file.parent for file in steps}) == 9
    assert repeated_lines.repeated(repeated_lines.copies(steps)) <= 1956 / 3
