"""``check --output-format`` and ``explain``."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from kernelbench.base import console
from kernelbench.base.errors import UsageError
from kernelbench.checks.api import CheckPlan
from kernelbench.checks.rows import CheckRow, Seen, StepCheck
from kernelbench.cli import explain
from kernelbench.cli.check_view import View
from kernelbench.emulator.findings import CLASSES, Access, Finding, Waiting


def shown(layout: str, allowed: str = "", reason: str = "wrong: y[0]\nand y[1]") -> list[str]:
    """The lines of a check of one step with a race, 100 % of which nobody has mended."""
    finding = Finding(
        "race", "100% unordered", Access("", "k.cu:2", "x[0] = 1;"), None, "x", (0, 0, 0), 0, 0,
        -1, identity="race-0123456789",
    )  # fmt: skip
    seen = Seen(finding, "random", 4, 0, 1, (), allowed=allowed)
    status = "clean" if allowed else "finding"
    row = CheckRow("k.cu", "k", "", status, 1, 1, 0.0, seen=(seen,))  # type: ignore[arg-type]
    lost = CheckRow("k.cu", "other", "", "wrong", 1, 1, 0.0, reason=reason)
    text = io.StringIO()
    View(console.Console(file=text, width=80), 10, layout=layout).results(
        [StepCheck("k.cu", "", None, (row, lost))]
    )
    return text.getvalue().splitlines()


def test_concise_has_a_line_for_each_finding() -> None:
    assert shown("concise")[0] == "k.cu:2: error[race]: 100% unordered (race-0123456789)"
    assert shown("concise")[1].startswith("k.cu: error[wrong]: y[0]")
    assert shown("concise", reason="main returned 2")[1] == "k.cu: error[wrong]: main returned 2"
    assert shown("concise", "a reason")[0].startswith("k.cu:2: allowed[race]: ")


def test_github_annotates_the_line() -> None:
    first, second, summary = shown("github")
    assert first == "::error file=k.cu,line=2,title=race::100%25 unordered (race-0123456789)"
    assert second == "::error title=wrong::y[0]%0Aand y[1]"
    assert summary.startswith("→ 0 clean")
    assert shown("github", "a reason")[0].startswith("::notice file=k.cu,line=2,")


def test_a_line_that_can_be_read_has_its_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a hang that is where its cause waits."""
    monkeypatch.chdir(tmp_path)
    Path("k.cu").write_text("{\n\twait(full);\n}\n")
    access = Access("", "k.cu:2", "wait(full);")
    wait = Waiting(access, (0, 0, 0), 0, (0,), 1, "full", "", "1 more arrival")
    finding = Finding(
        "hang", "deadlock", Access(), None, "", (0, 0, 0), 0, -1, -1, identity="hang-0123456789"
    )
    row = CheckRow(
        "k.cu", "k", "", "hang", 1, 1, 0.0, seen=(Seen(finding, "random", 4, 0, 1, (wait,)),)
    )  # type: ignore[arg-type]
    for layout, start in (
        ("concise", "k.cu:2:2: error"),
        ("github", "::error file=k.cu,line=2,col=2,title=hang::"),
    ):
        text = io.StringIO()
        view = View(console.Console(file=text, width=80), 10, layout=layout)
        view._plan = cast(CheckPlan, SimpleNamespace(files=("k.cu",), steps=()))
        view.results([StepCheck("k.cu", "", None, (row,))])
        assert text.getvalue().startswith(start)


def test_a_hang_names_the_arrival_that_only_the_parent_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    init, commit = "init(full[i], 1);", "commit(full[i]);  // of the MMA"
    for name, lines in (("s0", (init, commit)), ("s1", (init, "wait(full[0]);"))):
        Path(name).mkdir()
        Path(name, "k.cuh").write_text("\n".join(lines))
    access = Access("", "s1/k.cuh:2", "wait(full[0]);")
    wait = Waiting(access, (0, 0, 0), 0, (0,), 1, "full[0]", "", "1 more arrival")
    step = SimpleNamespace(name="s1", parent="s0", path=tmp_path / "s1", lineage_path=tmp_path)
    view = View(console.Console(), 10)
    view._plan = cast(CheckPlan, SimpleNamespace(files=(), steps=(SimpleNamespace(step=step),)))
    checked = StepCheck("s1", "", None, ())
    assert dict(view._arrivals(checked, wait)) == {
        "arrivals": "k.cuh:1 init(full[i], 1);",
        "only in s0": "k.cuh:2 commit(full[i]);",
    }
    assert not [*view._arrivals(checked, dataclasses.replace(wait, needs=""))]


@pytest.mark.parametrize("line", [2, 3])
def test_a_read_of_nothing_is_part_of_the_race_at_its_line(line: int) -> None:
    write, read = Access("", "k.cu:1", "x[0] = 1;"), Access("", "k.cu:2", "y = x[0];")
    race = Finding(
        "race", "unordered", write, read, "x + 0x4", (0, 0, 0), 0, 1, 0, identity="race-0123456789"
    )
    nothing = dataclasses.replace(
        race, kind="unwritten", text="of nothing", other=None, object="x",
        access=dataclasses.replace(read, where=f"k.cu:{line}"), identity="unwritten-0123456789",
    )  # fmt: skip
    seen = tuple(Seen(each, "random", 4, 0, 1, ()) for each in (race, nothing))
    row = CheckRow("k.cu", "k", "", "finding", 1, 1, 0.0, seen=seen)
    text = io.StringIO()
    View(console.Console(file=text, width=80), 10).results([StepCheck("k.cu", "", None, (row,))])
    same = line == 2
    assert ("  = also: k.cu:2, in k (unwritten-0123456789)" in text.getvalue()) == same
    assert text.getvalue().endswith("(1 error)\n" if same else "(2 errors)\n")


def test_a_bug_is_one_block_however_many_shapes_show_it() -> None:
    """And what is allowed stands behind it; the last line counts blocks and rows."""
    finding = Finding(
        "race", "unordered", Access("", "k.cu:2", "x[0] = 1;"), None, "x", (0, 0, 0), 0, 0, -1,
        identity="race-0123456789",
    )  # fmt: skip
    formal = dataclasses.replace(finding, identity="race-9999999999", text="formal")
    rows = tuple(
        CheckRow(
            "v", name, "", "finding", 1, 1, 0.0,
            seen=(Seen(formal, "random", 4, 0, 1, (), allowed="why"),
                  Seen(finding, "random", 4, 0, 1, ())),
        )
        for name in ("A", "B", "C")
    )  # fmt: skip
    text = io.StringIO()
    View(console.Console(file=text, width=80), 10).results([StepCheck("v", "", None, rows)])
    lines = text.getvalue().splitlines()
    (block,) = (at for at, line in enumerate(lines) if line.startswith("error[race]"))
    (allowed,) = (at for at, line in enumerate(lines) if line.startswith("allowed[race]"))
    assert block < allowed
    (seen,) = (line for line in lines if line.startswith("  = seen: "))
    assert seen.startswith("  = seen: v, 3 of 3: A B C; first with random, 4 SMs, schedule 1")
    assert lines[-1] == "→ 0 clean, 3 finding of 3 (1 error)"


def explained(name: str) -> None:
    """Not by click: a command that is called alone has no -h later in this process."""
    assert explain.command.callback is not None
    explain.command.callback(name)


@pytest.mark.parametrize("name", CLASSES)
def test_explain_prints_the_page_of_a_class(capsys: pytest.CaptureFixture[str], name: str) -> None:
    explained(f"{name}-0123456789")
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0] == name
    assert {"Wrong", "Right", "Why"} <= set(lines)
    assert "```" not in out and "](" not in out
    assert [line for line in lines if len(line) > 80 and not line.startswith("    ")] == []


def test_explain_lists_classes_and_knows_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    explained("")
    out = capsys.readouterr().out
    assert all(name in out for name in CLASSES)
    with pytest.raises(UsageError) as error:
        explained("proxyfence")
    assert error.value.hint == "did you mean 'proxy-fence'?"
