"""Other values of a step's constants: which there are, what is predicted, what is measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import write_project, write_step

from kernelbench.base.errors import ExitCode, UsageError
from kernelbench.cli import invoke
from kernelbench.cli import tune as command
from kernelbench.predict import api
from kernelbench.predict.model import device
from kernelbench.predict.tune import Tuning, Variation, constants_of, tune, variations_of
from kernelbench.project.context import Context
from kernelbench.project.model import Step


def step(name: str) -> Step:
    return Context.find().lineages.select([name])[0]


@pytest.fixture
def sized(tmp_path: Path) -> Step:
    """A step with two files that have a constant of one name."""
    (tmp_path / "a.cuh").write_text(
        "// constexpr int kNone = 1;\n"
        "inline constexpr uint32_t kStages = 4;  // of a ring\n"
        "template <int kN>\n"
        "inline constexpr uint32_t kPace = kN == 16 ? 3\n"
        "                                           : 2;\n"
    )
    (tmp_path / "launch.cu").write_text("void f() {\n  constexpr int kStages = 2, kWarps = 3;\n}\n")
    return replace(step("m05"), name="s1", path=tmp_path, entry=tmp_path / "launch.cu", base=None)


def test_constants_are_found_by_name_value_and_place(sized: Step) -> None:
    assert [(c.name, c.value, c.place) for c in constants_of(sized)] == [
        ("kStages", "4", "a.cuh:2"),
        ("kPace", "kN == 16 ? 3 : 2", "a.cuh:4"),
        ("kStages", "2", "launch.cu:2"),
        ("kWarps", "3", "launch.cu:2"),
    ]


def test_every_combination_but_the_steps_own_is_tried(sized: Step) -> None:
    trials = variations_of(sized, ["a.cuh:2=4,5", "kPace=1,1"])
    assert [each.words for each in trials] == ["kPace = 1", "a.cuh:2 = 5, kPace = 1"]
    assert [each.step.name for each in trials] == ["s1-kPace-1", "s1-a_cuh_2-5-kPace-1"]
    (text,) = trials[1].texts.values()
    assert "kStages = 5;  // of a ring" in text
    assert "kPace = 1;\n" in text
    assert "4" not in text.split("template")[0]


def test_a_variation_has_the_other_files_beside_it(sized: Step) -> None:
    made = variations_of(sized, ["kPace=7"])[0].step
    assert made.entry is not None
    assert "kPace = 7;" in (made.entry.parent / "a.cuh").read_text()
    assert made.entry.read_text() == (sized.path / "launch.cu").read_text()
    assert (made.lineage_path, made.parent) == (sized.lineage_path, "s1")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("kPacee=1", "unknown constant 'kPacee' of s1; did you mean 'kPace'"),
        ("kStages=1", "s1 has kStages at a.cuh:2, launch.cu:2; name it by its place"),
        ("kPace", "kPace: expected kPace=VALUE"),
        ("kPace=1,", "expected kPace=VALUE"),
    ],
)
def test_what_cannot_be_tried_is_refused(sized: Step, asked: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        variations_of(sized, [asked])
    with pytest.raises(UsageError, match="named twice"):
        variations_of(sized, ["kPace=1", "a.cuh:4=2"])


def tried(name: str, us: float, schedule: str, wrong: str = "") -> Variation:
    base, cand = (
        api.Prediction(each, "A", us, None, "", us, us, schedule)
        for each, us, schedule in (("m05", 100.0, "a"), (name, us, schedule))
    )
    (trial,) = variations_of(step("m05"), [f"kIds={name}"])
    if wrong:
        return replace(trial, wrong=wrong)
    return replace(trial, changes=(api.changed(device("h200"), base, cand),))


def test_what_is_measured_is_right_and_another_schedule() -> None:
    given = [tried("1", 50, "b", "wrong"), tried("2", 100, "a"), tried("3", 60, "c")]
    given += [tried("5", 40, "d")]
    found = Tuning(
        device("h200"), step("m05"), (), tuple(sorted(given, key=lambda each: each.change))
    )
    assert [each.words for each in found.best(2)] == ["kIds = 5", "kIds = 3"]
    assert [row["predicted"] for row in found.rows()] == [
        "faster", "faster", "same schedule", "wrong",
    ]  # fmt: skip


def test_a_change_below_what_the_model_resolves_is_no_call() -> None:
    spread = device("h200").spread["change"].value
    (change,) = tried("3", 100 * (1 - spread / 2), "b").changes
    assert change.verdict == "no call"


def test_values_are_predicted_and_wrong_ones_said() -> None:
    found = tune("m05", ["kBlockWarps=2,128 / 32,kNone"], ["s5"])
    assert [(each.step, each.shape) for each in found.base] == [("m05", "s5")]
    tried = {each.words.partition(" = ")[2]: each for each in found.tried}
    same = tried["128 / 32"]
    assert (same.wrong, [each.verdict for each in same.changes]) == ("", ["same schedule"])
    assert "got nan" in tried["2"].wrong
    assert "kNone" in tried["kNone"].wrong
    assert "\n" not in tried["kNone"].wrong
    assert found.tried[0] is same
    assert found.best(9) == []


def test_a_variation_becomes_one_variant(
    sized: Step, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right_source: str
) -> None:
    root = write_project(tmp_path / "project", {"one": right_source})
    monkeypatch.setenv("KERNELBENCH_ROOT", str(root))
    monkeypatch.chdir(root)
    write_step(root / "tiny", "s1", None)
    text = (root / "tiny" / "s1" / "step.toml").read_text()
    text = text.replace("planned", "works").replace("python", "step").replace('"any"', '"sm_90a"')
    (root / "tiny" / "s1" / "step.toml").write_text(text)
    for name in ("a.cuh", "launch.cu"):
        (root / "tiny" / "s1" / name).write_text((sized.path / name).read_text())
    found = Tuning(device("h200"), step("s1"), (), ())
    (trial,) = variations_of(found.step, ["kPace=7"])
    assert command._variant(found, trial) == command._variant(found, trial) == "s1-kPace-7"
    made = step("s1-kPace-7")
    assert [each.name for each in made.path.iterdir() if each.suffix == ".cuh"] == ["a.cuh"]
    assert "kPace = 7;" in (made.path / "a.cuh").read_text()
    assert made.technique == "kPace = 7; all else as s1"
    (other,) = variations_of(found.step, ["kPace=8"])
    with pytest.raises(UsageError, match="s1-kPace-7 exists"):
        command._variant(found, replace(other, step=trial.step))


def test_measuring_takes_a_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kernelbench.machine.devices.gpus", list)
    assert invoke(["tune", "m05", "kIds=2", "--measure", "1"]) == ExitCode.ENVIRONMENT
    assert "--measure times on a GPU" in capsys.readouterr().err


def test_the_constants_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["tune", "m05"]) == ExitCode.PASS
    assert "count_layout.cuh:13" in capsys.readouterr().out
