"""The record of the last campaign: of these sources, good enough, and rendered as the table says;
and a few mutants, drawn by a seed, found here and now."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import mutate
import pytest
import report
from campaign import LIMIT_S
from mutant import mutants

from kernelbench.build import compiler

TOOL = Path(mutate.__file__).parent
AGAIN = "run `make mutations`"
#: The share of all sites that a record must have.
ENOUGH = {"kernels": 0.99, "moe": 0.99}


@pytest.fixture(scope="module", params=mutate.STEPS)
def folder(request: pytest.FixtureRequest) -> Path:
    return mutate.table_folder(request.param)


@pytest.fixture(scope="module")
def record(folder: Path) -> dict[str, Any]:
    return report.read(folder)


def test_it_is_of_these_steps_and_operators(record: dict[str, Any]) -> None:
    lineage, enough = TOOL.parents[1] / record["lineage"], ENOUGH[record["lineage"]]
    steps = mutate.STEPS[record["lineage"]]
    now = {name: mutate.code_hash(lineage / name) for name in steps}
    assert record["sources"] == now, AGAIN
    sites = [mutant for name in steps for mutant in mutants(lineage / name)]
    ids = [row["id"] for row in record["rows"]]
    assert record["sites"] == len(sites), AGAIN
    assert len(ids) == len(set(ids))
    proofs = {mutant.id: mutant.proof for mutant in sites}
    assert [row["id"] for row in record["rows"] if row["equivalent"] != proofs.get(row["id"])] == []
    # A campaign takes hours on two cores: parts of it, each spread over all sites, do.
    assert len(ids) >= len(sites) * enough
    assert {row["step"] for row in record["rows"]} == set(steps)
    counts = Counter(mutant.operator for mutant in sites)
    often = {name for name, count in counts.items() if count >= 10 / enough}
    assert often <= {row["operator"] for row in record["rows"]}


def test_the_table_is_the_records(record: dict[str, Any], folder: Path) -> None:
    assert (folder / report.TABLE).read_text(encoding="utf-8") == report.render(record), AGAIN


def test_the_same_record_is_the_same_text(
    record: dict[str, Any], folder: Path, tmp_path: Path
) -> None:
    report.write(record, tmp_path)
    files = [each / report.RECORD for each in (tmp_path, folder)]
    # Compressed bytes may differ from one zlib to another.
    assert len({gzip.decompress(file.read_bytes()) for file in files}) == 1


def test_enough_is_found_and_named(record: dict[str, Any]) -> None:
    real = report.judged(record["rows"])
    assert report.share(real, "found") >= report.FOUND
    if record["lineage"] == "kernels":  # of others nobody has written down objects
        assert report.share(real, "object_right") >= report.DIAGNOSED
    assert all(row["run_s"] <= LIMIT_S for row in real if row["found"])


def test_no_equivalent_is_found(record: dict[str, Any]) -> None:
    assert [row["id"] for row in record["rows"] if row["equivalent"] and row["found"]] == []


def test_nothing_ends_the_checker_itself(record: dict[str, Any]) -> None:
    # A watchdog or a signal is no diagnosis.
    assert [row["id"] for row in record["rows"] if row["status"] in ("stuck", "died")] == []


@pytest.mark.long
def test_a_sample_is_found(tmp_path: Path) -> None:
    if compiler.host_compiler() is None:
        pytest.skip("no C++ compiler")
    arguments = ["--steps", "v11,v20", "--sample", "5", "--seed", "5", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, str(TOOL / "mutate.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = report.read(tmp_path)["rows"]
    assert len(rows) == 5
    assert [row["id"] for row in rows if not row["found"]] == []
    assert report.share(rows, "object_right") >= report.DIAGNOSED
