"""Outcomes reach the results once, whenever the client is killed; from workers only records do."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stand_ins import run_files

from kernelbench.base import schema
from kernelbench.base.errors import EnvironmentProblem
from kernelbench.campaign import outcome_files
from kernelbench.campaign.outcome_files import PIECE_SCHEMA, OutcomeFiles, PieceOutcome
from kernelbench.records import ledger, run_record
from kernelbench.records.ledger import ArmRecord, LedgerEntry

ID = "20300101T000000Z-00000001"
OUTCOME = PieceOutcome(
    PIECE_SCHEMA, "a" * 32, ("run", "v00"), "run v00", 0, "node", "", 1.5, "2030-01-01T00:00:00"
)


def entry(identifier: str, shape: str) -> LedgerEntry:
    arm = ArmRecord("v00", "0")
    return LedgerEntry(
        ledger.SCHEMA, identifier, "2030-01-01T00:00:00+00:00", "NVIDIA H200", "kernelbench ab", "",
        arm, arm, shape, "device", "graph", "SAME", "", 1.0, 1.0, 0.0, (0.0, 0.0), 1.0,
    )  # fmt: skip


def lines(*entries: LedgerEntry) -> bytes:
    return b"".join(json.dumps(schema.encode(each)).encode() + b"\n" for each in entries)


def test_a_run_is_saved_as_the_command_saves_it(tmp_path: Path) -> None:
    outcomes = OutcomeFiles(tmp_path, "trial")
    kept = outcomes.keep(OUTCOME, run_files(ID, median=12.5))
    device = tmp_path / "nvidia-h200"
    record = run_record.read_run(device / "runs" / f"{ID}.json.gz")
    assert record.results[0].metrics.get("device") is not None
    assert record.results[0].metrics["device"].median == 12.5
    assert "12.5" in (device / "table.csv").read_text()
    assert kept.records == (ID,)
    assert kept.files == {}
    assert outcomes.find(OUTCOME.key) == kept
    assert list(device.glob(".saving-*")) == []


@pytest.mark.parametrize("moment", ["before", "between", "after"])
def test_a_client_that_is_killed_while_it_keeps_an_outcome(
    tmp_path: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before anything is in the results, in the middle, and before the outcome says so."""
    files = run_files(ID) | {"ledger.jsonl": lines(entry("x", "A"), entry("x", "B"))}
    outcomes = OutcomeFiles(tmp_path, "trial")

    class Killed(BaseException):
        pass

    def die(*_: Any) -> Any:
        raise Killed

    name = {"before": "_add_run", "between": "_add_to_ledger", "after": "_write"}[moment]
    with monkeypatch.context() as patched, pytest.raises(Killed):
        if moment == "after":
            outcomes._write(replace(OUTCOME, files=_packed(files)))
            patched.setattr(OutcomeFiles, name, die)
            outcomes.merge(outcomes.find(OUTCOME.key) or OUTCOME)
        patched.setattr(OutcomeFiles, name, die)
        outcomes.keep(OUTCOME, files)
    again = OutcomeFiles(tmp_path, "trial")
    found = again.find(OUTCOME.key)
    assert found is not None, "what a worker has done is not lost"
    assert again.merge(found).records == (ID, "x")
    assert again.merge(again.find(OUTCOME.key) or found).files == {}
    assert len(list(tmp_path.glob("*/runs/*.json.gz"))) == 2
    assert [(each.id, each.shape) for each in ledger.read_ledger(tmp_path)] == [
        ("x", "A"), ("x", "B"),
    ]  # fmt: skip


def _packed(files: dict[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(data).decode() for name, data in files.items()}


def test_only_records_come_from_a_worker(tmp_path: Path) -> None:
    bad = {
        "../evil.json.gz": b"x", "/etc/evil.json.gz": b"x", "gpu/runs/../../evil.json.gz": b"x",
        "gpu/table.csv": b"x", "gpu/checks/.hidden.json.gz": b"x", "best.json": b"x",
    }  # fmt: skip
    results = tmp_path / "results"
    OutcomeFiles(results, "trial").keep(OUTCOME, {**bad, "gpu/checks/1-a.json.gz": b"good"})
    found = {
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert found == {
        f"results/campaigns/trial/{OUTCOME.key}.json.gz", "results/gpu/checks/1-a.json.gz",
    }  # fmt: skip


def test_a_broken_outcome_is_none(tmp_path: Path) -> None:
    outcomes = OutcomeFiles(tmp_path, "trial")
    outcomes.keep(OUTCOME, {})
    path = outcomes.folder / f"{OUTCOME.key}.json.gz"
    path.write_bytes(path.read_bytes()[:40])
    assert outcomes.find(OUTCOME.key) is None


def test_two_clients_do_not_share_a_campaign(tmp_path: Path) -> None:
    with (
        OutcomeFiles(tmp_path, "trial").alone(),
        pytest.raises(EnvironmentProblem, match="another sweep"),
        OutcomeFiles(tmp_path, "trial").alone(),
    ):
        pass
    assert outcome_files.PIECE_SCHEMA == "kernelbench.piece/1"
