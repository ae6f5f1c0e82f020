"""Records of older versions: upgraded when they are read, and rewritten once."""

from __future__ import annotations

import json
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, result_row, run_record, with_metrics

from kernelbench.base import json_file
from kernelbench.base.errors import RecordError
from kernelbench.records import run_record as records
from kernelbench.records import store
from kernelbench.records.run_record import UPGRADES, upgraded

#: What `kernelbench run mref --shape qwen35` measured on an H200 on 2026-11-20, with schema 1.
OLD = ROOT / "tests" / "fixtures" / "run_1.json"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder with that record as it was saved."""
    name = json.loads(OLD.read_text())["id"]
    folder = tmp_path / "nvidia-h200" / "runs"
    folder.mkdir(parents=True)
    shutil.copy(OLD, folder / f"{name}.json")
    records.write_samples(folder / f"{name}.samples.json.gz", [{"t_us": [1.5]}])
    return tmp_path


def numbers(value: Any) -> list[bytes]:
    """Every number of a JSON value, bit for bit, in order; None has no bits."""
    if isinstance(value, dict):
        return [bits for item in value.values() for bits in numbers(item)]
    if isinstance(value, list):
        return [bits for item in value for bits in numbers(item)]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return [struct.pack("d", value)] if number else []


def test_every_older_schema_has_one_upgrade() -> None:
    newest = int(records.RUN_SCHEMA.rpartition("/")[2])
    assert sorted(UPGRADES) == [*range(1, newest)]


def test_a_record_of_schema_1_is_read() -> None:
    old = json.loads(OLD.read_text())
    assert old["schema"] == "kernelbench.run/1"
    assert not {"floor", "rel_rms_err"} & set(old["results"][0])
    run = records.read_run(OLD)
    assert run.schema == records.RUN_SCHEMA
    first = run.results[0]
    assert (first.floor, first.rel_rms_err) == (None, None)
    assert first.metrics.get("call") is not None
    assert first.metrics["call"].median == old["results"][0]["call_us"]["median"]
    assert json.loads(OLD.read_text()) == old, "reading changes no file"


def test_the_least_that_schema_1_allowed() -> None:
    """Fields that had a default when schema 1 was in use could be absent."""
    old = json.loads(OLD.read_text())
    for name in ("notes", "sol_us", "sm_mhz", "source_sha", "binary_sha"):
        del old["results"][0][name]
    for name in ("complete", "samples_file", "extra"):
        del old[name]
    del old["environment"]["mig"], old["environment"]["gpu_processes"]
    del old["protocol"]["time_budget_s"]
    run = records.parse_run(old, "here")
    assert (run.complete, run.extra, run.environment.mig) == (True, {}, False)
    assert run.results[0].notes == ()


def test_schema_2_holds_every_field(tmp_path: Path) -> None:
    value = json_file.read_json(store.save_run(tmp_path, run_record(result_row()), []))
    del value["results"][0]["floor"]
    with pytest.raises(RecordError, match=r"results\[0\]: missing field 'floor'"):
        records.parse_run(value, "here")


@pytest.mark.parametrize("schema", ["kernelbench.run/99", "kernelbench.ab/1", 1, None])
def test_what_cannot_be_upgraded_is_as_it_was(schema: Any) -> None:
    value = {"schema": schema, "results": 1}
    assert upgraded(value) == value
    with pytest.raises(RecordError, match="not a run record of this version"):
        records.parse_run(value, "here")


def test_conversion_keeps_every_figure(results: Path) -> None:
    old = json.loads(OLD.read_text())
    before = records.read_run(next(results.glob("*/runs/*[0-9a-f].json")))
    (done,) = store.convert_records(results)
    assert done.after < done.before
    assert {path.name for path in done.path.parent.iterdir()} == {
        f"{old['id']}.json.gz", f"{old['id']}.samples.json.gz",
    }  # fmt: skip
    new = json_file.read_json(done.path)
    assert numbers(new) == numbers(old)
    assert records.read_run(done.path) == before


def test_a_second_conversion_finds_nothing(results: Path) -> None:
    (done,) = store.convert_records(results)
    content = done.path.read_bytes()
    assert [*store.convert_records(results)] == []
    assert done.path.read_bytes() == content


def test_a_conversion_that_was_stopped_goes_on(results: Path) -> None:
    """Both files are there if the process ended before it removed the old one."""
    (old,) = results.glob("*/runs/*[0-9a-f].json")
    records.write_run(old.with_name(f"{old.name}.gz"), records.read_run(old))
    assert len(records.list_runs(results)) == 1, "one run, not two"
    assert len([*store.convert_records(results)]) == 1
    assert not old.exists()


def test_a_packed_record_of_schema_1_is_rewritten(results: Path) -> None:
    (old,) = results.glob("*/runs/*[0-9a-f].json")
    new = old.with_name(f"{old.name}.gz")
    json_file.write_gzip(new, old.read_bytes())
    old.unlink()
    before = records.read_run(new)
    (done,) = store.convert_records(results)
    assert json_file.read_json(done.path)["schema"] == records.RUN_SCHEMA
    assert records.read_run(new) == before
    assert [*store.convert_records(results)] == []


def test_two_contents_of_one_run_are_refused(results: Path) -> None:
    (old,) = results.glob("*/runs/*[0-9a-f].json")
    run = records.read_run(old)
    other = with_metrics(
        run.results[0], call_us=replace(run.results[0].metrics["call"], median=1.0)
    )
    records.write_run(
        old.with_name(f"{old.name}.gz"), replace(run, results=(other, *run.results[1:]))
    )
    with pytest.raises(RecordError, match=r"differ at record\.results\[0\]\.call_us\.median"):
        [*store.convert_records(results)]
    assert old.exists()


def test_what_cannot_be_read_is_left_alone(results: Path) -> None:
    (old,) = results.glob("*/runs/*[0-9a-f].json")
    old.write_text(old.read_text()[:100])
    with pytest.raises(RecordError, match="is not valid JSON"):
        [*store.convert_records(results)]
    assert old.exists()
