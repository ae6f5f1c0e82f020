"""Commands side by side with a record: what is done is not done again, what was stopped is."""

from __future__ import annotations

import sys

import jobs
import pytest

ROW = "import json, sys; print(json.dumps({'row': sys.argv[1]}), flush=True)"


def _job(key: str, code: str = ROW, after: str = "", limit_s: float = 60) -> jobs.Job:
    return jobs.Job(key, [sys.executable, "-c", code, key], after, limit_s)


def test_a_record_is_gone_on_from(tmp_path):
    record = tmp_path / "record.jsonl"
    jobs.run([_job("a"), _job("b", after="a")], 2, record)
    assert [line["rows"] for line in jobs.read(record).values()] == [[{"row": "a"}], [{"row": "b"}]]
    jobs.run([_job("a", "raise SystemExit('not again')"), _job("c")], 1, record)
    found = jobs.read(record)
    assert list(found) == ["a", "b", "c"] and "error" not in found["a"]


def test_what_fails_says_why(tmp_path):
    record = tmp_path / "record.jsonl"
    jobs.run([_job("a", ROW + "; raise SystemExit('no compiler')")], 1, record)
    line = jobs.read(record)["a"]
    assert line["rows"] == [{"row": "a"}] and line["error"] == "no compiler"
    assert "partial" not in line


@pytest.mark.parametrize("by", ["limit", "until"])
def test_what_was_stopped_keeps_its_rows_and_is_made_again(tmp_path, by):
    record = tmp_path / "record.jsonl"
    slow = ROW + "; import time; print('{\"cut', end='', flush=True); time.sleep(60)"
    limit, until = (1.0, 60.0) if by == "limit" else (60.0, 1.0)
    jobs.run([_job("a", slow, limit_s=limit)], 1, record, until)
    assert jobs.read(record)["a"]["partial"] and jobs.read(record)["a"]["rows"] == [{"row": "a"}]
    jobs.run([_job("a")], 1, record)
    assert "partial" not in jobs.read(record)["a"]
