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
KERNELS = TOOL.parents[1] / "kernels"
AGAIN = "run `make mutations`"
#: The share of all sites that a record must have.
ENOUGH = 0.25


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return report.read(TOOL)


def test_it_is_of_these_steps_and_operators(record: dict[str, Any]) -> None:
    now = {name: mutate.code_hash(KERNELS / name) for name in mutate.STEPS}
    assert record["sources"] == now, AGAIN
    sites = [mutant for name in mutate.STEPS for mutant in mutants(KERNELS / name)]
    ids = [row["id"] for row in record["rows"]]
    assert record["sites"] == len(sites), AGAIN
    assert len(ids) == len(set(ids))
    assert set(ids) <= {mutant.id for mutant in sites}, AGAIN
    # A campaign takes hours on two cores: parts of it, each spread over all sites, do.
    assert len(ids) >= len(sites) * ENOUGH
    assert {row["step"] for row in record["rows"]} == set(mutate.STEPS)
    counts = Counter(mutant.operator for mutant in sites)
    often = {name for name, count in counts.items() if count >= 10 / ENOUGH}
    assert often <= {row["operator"] for row in record["rows"]}


def test_the_table_is_the_records(record: dict[str, Any]) -> None:
    assert (TOOL / report.TABLE).read_text(encoding="utf-8") == report.render(record), AGAIN


def test_the_same_record_is_the_same_text(record: dict[str, Any], tmp_path: Path) -> None:
    report.write(record, tmp_path)
    files = [folder / report.RECORD for folder in (tmp_path, TOOL)]
    # Compressed bytes may differ from one zlib to another.
    assert len({gzip.decompress(file.read_bytes()) for file in files}) == 1


def test_enough_is_found_and_named(record: dict[str, Any]) -> None:
    real = report.judged(record["rows"])
    assert report.share(real, "found") >= report.FOUND
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
