"""``kernelbench demo``: the broken copy, its finding, and a copy that is kept and mended."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from conftest import launch

from kernelbench.cli.demo import COMMIT, SHAPE, broken_step, removed_lines
from kernelbench.project.shipped import shipped_root

ONE_SCHEDULE = ("--shape", SHAPE, "--sms", 1, "--schedules", 1, "--seed", 7, "--no-save")


def test_the_demo_shows_the_line_the_hang_and_the_reason() -> None:
    done = launch("demo")
    assert done.code == 0, done.err
    taken_out = done.out.index(f"-      {COMMIT}")
    finding = done.out.index("error[hang]: deadlock: load_warp at ")
    assert taken_out < finding < done.out.index("why: ")
    assert "waits for empty[0]: phase parity 0" in done.out


def test_a_kept_copy_can_be_mended(tmp_path: Path) -> None:
    kept = tmp_path / "broken"
    assert launch("demo", "--keep", kept).code == 0
    step = kept / "kernels" / "demo"
    source = (shipped_root() / "kernels" / "v07" / "kernel.cuh").read_text()
    (step / "kernel.cuh").write_text(source)
    assert removed_lines(step) == []
    mended = launch("check", step, *ONE_SCHEDULE)
    assert mended.code == 0, mended.out + mended.err
    refused = launch("demo", "--keep", kept)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)


def test_a_closer_look_at_a_folder_is_at_that_folder(tmp_path: Path) -> None:
    # It has the name of a step that ships, and is not that step.
    step = broken_step(tmp_path, name="v07")
    trace, shortest = tmp_path / "trace.json", tmp_path / "shortest"
    done = launch(
        "check", step, *ONE_SCHEDULE, "--no-sequence", "--trace", trace, "--minimize", shortest,
    )  # fmt: skip
    assert done.code == 3, done.err
    (rerun,) = re.findall(r"= rerun: kernelbench (check .+)", done.out)
    assert f"check {step} --shape " in rerun
    assert launch(*shlex.split(rerun), "--no-sequence", "--no-save").code == 3
    events = json.loads(trace.read_text())["traceEvents"]
    assert [each["name"] for each in events if each["ph"] == "i"], "the trace has the finding"
    (file,) = shortest.iterdir()
    assert launch("replay", file).code == 3
