"""The ledger: appended whole or not at all, read strictly."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, environment_of

from kernelbench.base.errors import RecordError
from kernelbench.records import ledger
from kernelbench.records.ledger import ArmRecord, LedgerEntry


def entry(number: int = 0, why: str = "", **changes: Any) -> LedgerEntry:
    values: dict[str, Any] = {
        "schema": ledger.SCHEMA, "id": str(number), "created": "2030-01-01T00:00:00+00:00",
        "device": "d", "command": "c", "why": why, "base": ArmRecord("v00", "aa"),
        "cand": ArmRecord("v01", "bb", "cc"), "shape": "A", "metric": "device",
        "method": "graph", "verdict": "SAME", "reason": "", "base_us": 1.5, "cand_us": 1.5,
        "change": 0.0, "ci": (-0.1, 0.1), "p_holm": 1.0, "figures": {"mde": 0.01},
    }  # fmt: skip
    return LedgerEntry(**(values | changes))


def test_what_is_appended_is_read_in_order(tmp_path: Path) -> None:
    first, second = entry(1), entry(2, change=None, ci=None, p_holm=None)
    ledger.append(tmp_path / "new", [first])
    ledger.append(tmp_path / "new", [second, first])
    assert ledger.read_ledger(tmp_path / "new") == [first, second, first]


def test_packed_lines_come_before_the_others(tmp_path: Path) -> None:
    ledger.append(tmp_path, [entry(1), entry(2)])
    plain = ledger.path_of(tmp_path)
    packed = plain.with_name("ledger.jsonl.gz")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    ledger.append(tmp_path, [entry(3)])
    assert [each.id for each in ledger.read_ledger(tmp_path)] == ["1", "2", "3"]
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(RecordError, match=r"cannot read .*ledger\.jsonl\.gz: "):
        ledger.read_ledger(tmp_path)
    packed.write_bytes(gzip.compress(b"{"))
    with pytest.raises(RecordError, match=r"ledger\.jsonl\.gz:1: not an entry"):
        ledger.read_ledger(tmp_path)


def test_no_ledger_is_empty(tmp_path: Path) -> None:
    assert ledger.read_ledger(tmp_path) == []


def test_one_line_an_entry_whatever_the_hypothesis(tmp_path: Path) -> None:
    why = 'two\nlines, a "quote", \u2028 and π'
    ledger.append(tmp_path, [entry(why=why), entry()])
    assert ledger.path_of(tmp_path).read_bytes().count(b"\n") == 2
    assert ledger.read_ledger(tmp_path)[0].why == why


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not an entry"),
        ("[]", "expected an object, found list"),
        ('{"schema": "kernelbench.comparison/0"}', "'kernelbench.comparison/0' is not one of"),
        ("", "not an entry"),
    ],
)
def test_reading_refuses_with_file_and_line(line: str, said: str, tmp_path: Path) -> None:
    ledger.append(tmp_path, [entry()])
    with ledger.path_of(tmp_path).open("a") as stream:
        stream.write(line + "\n")
    with pytest.raises(RecordError) as caught:
        ledger.read_ledger(tmp_path)
    assert f"{ledger.path_of(tmp_path)}:2: " in str(caught.value)
    assert said in str(caught.value)


def test_an_unknown_field_is_refused(tmp_path: Path) -> None:
    ledger.append(tmp_path, [entry()])
    path = ledger.path_of(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"extra": 1}) + "\n")
    with pytest.raises(RecordError, match="unknown field 'extra'"):
        ledger.read_ledger(tmp_path)


def test_many_writers_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: ledger.append(tmp_path, [entry(i), entry(i)]), range(20)))
    ids = [int(found.id) for found in ledger.read_ledger(tmp_path)]
    assert sorted(ids) == sorted(2 * list(range(20)))
    assert ids[0::2] == ids[1::2]


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from test_ledger import entry
from kernelbench.records import ledger
from kernelbench.base.errors import EnvironmentProblem
folder = Path(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
room = ledger.path_of(folder).stat().st_size + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
try:
    ledger.append(folder, [entry(9, "x" * 500) for _ in range(int(sys.argv[4]))])
except EnvironmentProblem as error:
    print(error)
    sys.exit(0)
sys.exit("nothing was raised")
"""


@pytest.mark.parametrize("entries", [1, 3, 40])
@pytest.mark.parametrize("room", [0, 100, 700])
def test_a_full_disk_takes_back_the_whole_append(room: int, entries: int, tmp_path: Path) -> None:
    """Less than a buffer or more, and with room for a part of it or for nothing."""
    ledger.append(tmp_path, [entry(1), entry(2)])
    before = ledger.path_of(tmp_path).read_bytes()
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            FULL_DISK,
            str(tmp_path),
            str(room),
            str(Path(__file__).parent),
            str(entries),
        ],
        capture_output=True,
        text=True,
        env=environment_of(ROOT) | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
    )
    assert done.returncode == 0, done.stderr
    assert "cannot write" in done.stdout
    assert "File too large" in done.stdout
    assert "not in the ledger" in done.stdout
    assert ledger.path_of(tmp_path).read_bytes() == before
