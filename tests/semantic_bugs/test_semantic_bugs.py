"""The semantic bugs: every entry can be planted, and says beforehand what is to be found."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import semantic_trial as trial
from planted_check import ROOT

ENTRIES = trial.read_entries()
BUGS = [entry for entry in ENTRIES if entry.is_bug]
VARIANTS = [entry for entry in ENTRIES if not entry.is_bug]


def test_there_are_as_many_as_the_readme_says() -> None:
    assert len(BUGS) >= 80
    assert len({bug.family for bug in BUGS}) == 10
    assert sum(bug.subtle for bug in BUGS) >= 25
    assert len(VARIANTS) >= 50
    assert len({variant.step for variant in VARIANTS}) >= 12


def test_every_text_that_is_replaced_is_there_once() -> None:
    for entry in ENTRIES:
        texts: dict[str, str] = {}
        for file, old, new in entry.edits:
            text = texts.setdefault(file, trial.origin_of(file, ROOT).read_text())
            assert text.count(old) == 1, f"{entry.id}: {file}"
            texts[file] = text.replace(old, new)
        changed = [text != trial.origin_of(file, ROOT).read_text() for file, text in texts.items()]
        assert changed and all(changed), entry.id


def test_every_bug_says_what_is_to_be_found() -> None:
    silent = [b.id for b in BUGS if not (b.text and b.expected and b.objects and b.causes)]
    assert silent == []


def test_a_cause_is_right_if_it_names_object_and_cause() -> None:
    bug = replace(BUGS[0], objects=("empty",), causes=("hang",))
    assert trial.right_cause(bug, "u1: Hang: load_warp waits for empty[1]")
    assert not trial.right_cause(bug, "u1: hang: load_warp waits for full[1]")
    assert not trial.right_cause(bug, "u1: a race on empty[1]")


def test_an_entry_is_planted_in_a_copy(tmp_path: Path) -> None:
    entry = BUGS[0]
    file, old, new = entry.edits[0]
    trial.plant(entry, tmp_path)
    assert new in (tmp_path / file).read_text()
    assert old in (ROOT / file).read_text()


def test_a_file_of_the_base_is_copied_before_it_is_changed(tmp_path: Path) -> None:
    for name, base in (("a", ""), ("b", 'base = "a"\n'), ("c", 'base = "b"\n')):
        (tmp_path / "own" / name).mkdir(parents=True)
        (tmp_path / "own" / name / "step.toml").write_text(base)
    (tmp_path / "own" / "a" / "gemm.cuh").write_text("")
    assert trial.origin_of("own/c/gemm.cuh", tmp_path) == tmp_path / "own" / "a" / "gemm.cuh"
    with pytest.raises(SystemExit, match=r"own/c/none\.cuh is in no folder"):
        trial.origin_of("own/c/none.cuh", tmp_path)


def test_a_record_of_another_edit_does_not_count(tmp_path: Path) -> None:
    rows = [{"id": BUGS[0].id, "digest": BUGS[0].digest}, {"id": BUGS[1].id, "digest": "old"}]
    record = tmp_path / "record.jsonl"
    record.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert set(trial.read_record(record)) == {BUGS[0].id}
