"""What changed between two steps, in lines."""

from __future__ import annotations

from pathlib import Path

from conftest import write_step

from kernelbench.compare.comparer import identical
from kernelbench.lineages.source_diff import changed_files, counted
from kernelbench.project.model import Step
from kernelbench.project.step_files import read_lineage, read_step, read_submission


def step(root: Path, name: str, source: str, extra: str = "") -> Step:
    lineage = root / "tiny"
    lineage.mkdir(exist_ok=True)
    (lineage / "lineage.toml").write_text(
        'name = "tiny"\ntitle = "t"\nproblem = "kernelbench.problems.group_gemm:PROBLEM"\n'
    )
    write_step(lineage, name, source, extra)
    return read_step(lineage / name, read_lineage(lineage))


KERNEL = "a = 1\nb = 2\n\n\ndef custom_kernel(data):\n    return data\n"


def test_lines_and_files(tmp_path: Path) -> None:
    base = step(tmp_path, "s0", KERNEL)
    cand = step(tmp_path, "s1", KERNEL.replace("b = 2", "b = 3\nc = 4"))
    (cand.path / "extra.cuh").write_text("one\ntwo\n")
    assert counted(changed_files(base, cand)) == "+4 −1 lines in extra.cuh, submission.py"
    assert counted(changed_files(cand, base)) == "+1 −4 lines in extra.cuh, submission.py"


def test_prose_and_line_ends_do_not_count(tmp_path: Path) -> None:
    base = step(tmp_path, "s0", KERNEL)
    cand = step(tmp_path, "s1", KERNEL.replace("a = 1", "a = 1   "))
    (cand.path / "README.md").write_text("prose")
    assert counted(changed_files(base, cand)) == "no change"


def test_a_submission_is_held_against_the_steps_file(tmp_path: Path) -> None:
    base = step(tmp_path, "s0", KERNEL)
    file = tmp_path / "mine.py"
    file.write_text(KERNEL + "# end\n")
    assert counted(changed_files(base, read_submission(file))) == "+1 −0 lines in submission.py"


def test_identical_code(tmp_path: Path) -> None:
    """Bytes decide, whatever the file's name and what ``step.toml`` says of it."""
    base = step(tmp_path, "s0", KERNEL)
    same = step(tmp_path, "s1", KERNEL, '[config]\ntile = "x"')
    file = tmp_path / "mine.py"
    file.write_text(KERNEL)
    assert identical(base, base)
    assert identical(base, same)
    assert identical(base, read_submission(file))
    file.write_text(KERNEL + " \n")
    assert not identical(base, read_submission(file))
    (same.path / "glue.py").write_text("")
    assert not identical(base, same)
