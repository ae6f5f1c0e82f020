"""References that the steps of a run share: computed once, the same verdicts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelbench.measure.correctness import Checker, CheckResult
from kernelbench.problems.group_gemm.problem import GroupGemm
from kernelbench.runs.api import shared_folder

SHAPE = GroupGemm().parse_shape("small", {"m": [8, 24], "n": 128, "k": 256})


class Counting(GroupGemm):
    """The group GEMM, and how often its reference was computed."""

    computed = 0

    def reference(self, inputs: Any, shape: Any, input_class: str) -> Any:
        Counting.computed += 1
        return super().reference(inputs, shape, input_class)


def right(data: Any) -> list[torch.Tensor]:
    """A step that is right: its outputs are the rounded reference."""
    outputs = [c for _, _, c in data[0]]
    found = GroupGemm().reference(SimpleNamespace(data=data), SHAPE, "gpu-mode")  # type: ignore[arg-type]
    for c, of_group in zip(outputs, found, strict=True):
        c[:, :, 0] = of_group.rounded
    return outputs


def off_by_one(data: Any) -> list[torch.Tensor]:
    """A step with one wrong element."""
    outputs = right(data)
    outputs[1][23, 127] += 1
    return outputs


def check(
    folder: Path | str, step: Any = right, input_class: str = "full", seed: int = 3
) -> tuple[CheckResult, int]:
    """The verdict, and how many references were computed for it."""
    Counting.computed = 0
    announce = lambda *_: None  # noqa: E731
    checker = Checker(step, Counting(), SHAPE, "cpu", seed, announce, 60, references=str(folder))
    return checker.check(input_class), Counting.computed


@pytest.mark.parametrize("input_class", GroupGemm.input_classes)
def test_the_second_step_computes_none(tmp_path: Path, input_class: str) -> None:
    alone, _ = check("", input_class=input_class)
    first, computed = check(tmp_path, input_class=input_class)
    assert (first, computed) == (alone, 2)
    assert check(tmp_path, input_class=input_class) == (alone, 0)


@pytest.mark.parametrize("input_class", GroupGemm.input_classes)
def test_a_wrong_step_is_as_wrong(tmp_path: Path, input_class: str) -> None:
    alone, _ = check("", off_by_one, input_class)
    assert alone.status == "wrong"
    check(tmp_path, input_class=input_class)
    assert check(tmp_path, off_by_one, input_class) == (alone, 0)
    assert check(tmp_path, input_class=input_class)[0].status == "pass"


def test_other_inputs_have_another_reference(tmp_path: Path) -> None:
    check(tmp_path)
    assert check(tmp_path, seed=4)[1] == 2
    assert check(tmp_path, input_class="gpu-mode")[1] == 2
    assert check(tmp_path) == (check("")[0], 0)


def test_a_folder_that_holds_nothing_costs_time_only(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    assert check(gone) == (check("")[0], 2)
    assert check(gone)[1] == 2


def run_of(*, submission: bool = False, gpu: bool = False) -> Any:
    step = SimpleNamespace(submission=submission)
    return SimpleNamespace(step=step, target=SimpleNamespace(gpu=object() if gpu else None))


def test_several_steps_on_a_cpu_share() -> None:
    with shared_folder([run_of(), run_of()]) as folder:
        assert Path(folder).is_dir()
    assert not Path(folder).exists()


@pytest.mark.parametrize(
    "other", [None, {"submission": True}, {"gpu": True}], ids=["alone", "submission", "gpu"]
)
def test_others_do_not(other: dict[str, bool] | None) -> None:
    runs = [run_of()] + ([run_of(**other)] if other else [])
    with shared_folder(runs) as folder:
        assert folder == ""
