"""What more workers bring a campaign, and that one killed in the middle costs no result.

python tools/campaign_speedup.py --out /tmp/speedup                GPUs: all of this host, and one
python tools/campaign_speedup.py --out /tmp/speedup --check        CPU: two workers against none

Four sweeps of one campaign's kind, each into a results folder of its own: two short ones, in the
middle of which a busy worker or the client is killed with SIGKILL, and which are started a second
time; one with all workers; one with a single GPU (or in this process). With --seconds the last one
is interrupted when the time is over; then the pieces that it did are compared with the same pieces
of the other. Builds come first and are not timed. Nothing else should run on the machine; give it
two cores for --check (``taskset -c 0,1``), so that two workers have what one has.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

STEPS = ("m07", "m13", "m15", "moe-torch")
TOKENS = (1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096)
CHECKED = "v01..v23"


def main() -> int:
    """Run the four sweeps, print a table, and leave with 1 if anything is lost or differs."""
    asked = _arguments()
    asked.out.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    if asked.check:
        swept(asked, "builds", _campaign(asked, "builds"), one=False)
    else:
        _build(asked.out)
    print(f"built: {time.monotonic() - began:.1f} s", flush=True)
    killed = killed_in_the_middle(asked, "killed", _busy_worker)
    print(json.dumps(killed), flush=True)
    client = killed_in_the_middle(asked, "client", lambda sweep: sweep)
    print(json.dumps(client), flush=True)
    many = swept(asked, "many", _campaign(asked, "many"), one=False)
    left = asked.seconds - (time.monotonic() - began)
    one = swept(asked, "one", _campaign(asked, "one"), one=True, limit_s=left)
    both = compared(asked.out, one, many)
    (asked.out / "speedup.json").write_text(json.dumps([killed, client, one, many, both], indent=1))
    _print(asked.out, (killed, client), one, many, both)
    lost = not (killed["nothing_lost"] and client["nothing_lost"])
    return int(bool(both["different"]) or lost)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What more workers bring a campaign.")
    parser.add_argument("--out", type=Path, required=True, help="folder for results and logs")
    parser.add_argument("--check", action="store_true", help="`check` on the CPU, 2 workers and 0")
    parser.add_argument("--steps", default=CHECKED, help="of --check")
    parser.add_argument("--shapes", default="u1", help="of --check, with commas between")
    parser.add_argument("--reps", type=int, default=200, help="of each run")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for everything")
    return parser.parse_args()


def _campaign(asked: argparse.Namespace, name: str, tokens: tuple[int, ...] = TOKENS) -> Path:
    """The campaign's file; JSON is YAML."""
    item: dict[str, Any] = {
        "run": list(STEPS),
        "shapes": {"qwen35": {"m": list(tokens)}},
        "reps": asked.reps,
    }
    if asked.check:
        item = {"check": [asked.steps], "shapes": asked.shapes.split(","), "schedules": 1}
    file: Path = asked.out / f"{name}.yaml"
    document = {"name": name, "gpu": not asked.check, "limit": "5m", "campaign": [item]}
    file.write_text(json.dumps(document))
    return file


def _build(out: Path) -> None:
    """Build every step side by side; what it says of the step is not looked at."""
    running = []
    for step in STEPS:
        log = (out / f"build-{step}.log").open("w")
        words = ["run", step, "--shape", "qwen35-m1", "--check-only", "--no-save"]
        running.append(subprocess.Popen(_command(*words), stdout=log, stderr=log))
    for process in running:
        process.wait()


def _command(*words: str) -> list[str]:
    return [sys.executable, "-m", "kernelbench", *words]


def _sweep(
    asked: argparse.Namespace, name: str, file: Path, *, one: bool
) -> subprocess.Popen[bytes]:
    """Start a sweep; its log is OUT/NAME.log, its results are OUT/NAME."""
    environment = dict(os.environ)
    workers = []
    if asked.check:
        workers = ["--workers", "0" if one else "2"]
    elif one:
        environment["CUDA_VISIBLE_DEVICES"] = "0"
    words = ["sweep", str(file), "--results", str(asked.out / name), *workers, "--json", "-"]
    log = (asked.out / f"{name}.log").open("ab")
    report = (asked.out / f"{name}.json").open("wb")
    return subprocess.Popen(_command(*words), stdout=report, stderr=log, env=environment)


def swept(
    asked: argparse.Namespace, name: str, file: Path, *, one: bool, limit_s: float = 3600.0
) -> dict[str, Any]:
    """One whole sweep: its seconds, exit code and pieces."""
    began = time.time()
    process = _sweep(asked, name, file, one=one)
    interrupted = False
    try:
        process.wait(max(limit_s, 1.0))
    except subprocess.TimeoutExpired:
        interrupted = True
        process.send_signal(signal.SIGINT)
        process.wait()
    seconds = time.time() - began
    found = _outcomes(asked.out, name)
    return {
        "name": name,
        "began": began,
        "seconds": seconds,
        "interrupted": interrupted,
        "code": process.returncode,
        "pieces": len(found),
        "command_seconds": sum(each["seconds"] for each in found),
        "by_gpu": Counter(each["gpu"] for each in found),
        "report": _report(asked.out, name),
    }


def _report(out: Path, name: str) -> dict[str, Any]:
    text = (out / f"{name}.json").read_text()
    found: dict[str, Any] = json.loads(text) if text.strip() else {}
    return {key: found.get(key) for key in ("pieces", "done", "recorded", "missing", "faults")}


def _outcomes(out: Path, name: str) -> list[dict[str, Any]]:
    """Every outcome file of a sweep that says what came of its piece."""
    found = []
    for file in sorted((out / name / "campaigns" / name).glob("*.json.gz")):
        with contextlib.suppress(OSError, EOFError, ValueError):
            found.append(json.loads(gzip.decompress(file.read_bytes())))
    return found


def killed_in_the_middle(
    asked: argparse.Namespace, name: str, victim_of: Callable[[int], int | None]
) -> dict[str, Any]:
    """A short sweep, in the middle of which a process is killed; then the same sweep again.

    Args:
        victim_of: The process to kill, of a sweep's process; None while there is none.
    """
    file = _campaign(asked, name, TOKENS[2:5])
    process = _sweep(asked, name, file, one=False)
    before, victim = 0, None
    while process.poll() is None and victim is None:
        time.sleep(0.1)
        before = len(_outcomes(asked.out, name))
        if before >= 2:
            victim = victim_of(process.pid)
            if victim is not None:
                os.kill(victim, signal.SIGKILL)
    process.wait()
    first = _report(asked.out, name)
    kept = len(_outcomes(asked.out, name))
    again = _sweep(asked, name, file, one=False)
    again.wait()
    second = _report(asked.out, name)
    outcomes = _outcomes(asked.out, name)
    records = [record for each in outcomes for record in each["records"]]
    files = [
        path
        for kind in ("runs", "checks")
        for path in (asked.out / name).glob(f"*/{kind}/*.json.gz")
        if not path.name.endswith(".samples.json.gz")
    ]
    # A client that is killed reports nothing; one whose worker was killed has done everything.
    as_expected = (
        first["pieces"] is None and kept >= before
        if victim == process.pid
        else len(first["faults"] or ()) == 1 and kept == second["pieces"]
    )
    return {
        "name": name,
        "done_before_the_kill": before,
        "killed": victim is not None,
        "codes": [process.returncode, again.returncode],
        "first": first,
        "second": second,
        "outcomes": len(outcomes),
        "records": len(records),
        "distinct_records": len(set(records)),
        "record_files": len(files),
        "nothing_lost": victim is not None
        and as_expected
        and len(outcomes) == second["pieces"] == len(records) == len(set(records)) == len(files)
        and second["recorded"] == kept
        and second["done"] == second["pieces"] - kept,
    }


def _busy_worker(sweep: int) -> int | None:
    """A Dask worker of this sweep that runs a command: what started a ``kernelbench`` process."""
    parents = _parents()
    below = {sweep}
    for _ in range(6):
        below |= {pid for pid, (parent, _) in parents.items() if parent in below}
    for pid, (parent, words) in parents.items():
        if pid in below and parent != sweep and "run_module('kernelbench'" in words:
            return parent
    return None


def _parents() -> dict[int, tuple[int, str]]:
    """Parent and command line of every process."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found[int(folder.name)] = (int(stat[1]), words)
    return found


def compared(out: Path, one: dict[str, Any], many: dict[str, Any]) -> dict[str, Any]:
    """Seconds for the same pieces, and verdicts that differ."""
    first = {tuple(each["arguments"]): each for each in _outcomes(out, "one")}
    second = {tuple(each["arguments"]): each for each in _outcomes(out, "many")}
    common = sorted(first.keys() & second.keys())
    answers = {name: _answers(out, name) for name in ("one", "many")}
    different = [
        " ".join(key)
        for key in common
        if first[key]["code"] != second[key]["code"]
        or _answer(first[key], answers["one"]) != _answer(second[key], answers["many"])
    ]
    one_s, many_s = one["seconds"], many["seconds"]
    if one["interrupted"] and common:
        one_s = max(_done_at(first[key]) for key in common) - one["began"]
        many_s = max(_done_at(second[key]) for key in common) - many["began"]
    return {
        "pieces": len(common),
        "one_seconds": one_s,
        "many_seconds": many_s,
        "speed_up": one_s / many_s,
        "different": different,
    }


def _done_at(outcome: dict[str, Any]) -> float:
    return datetime.datetime.fromisoformat(outcome["created"]).timestamp()


def _answers(out: Path, name: str) -> dict[str, Any]:
    """What each record says of its rows: step, shape, status."""
    found = {}
    for kind in ("runs", "checks"):
        for path in (out / name).glob(f"*/{kind}/*.json.gz"):
            if path.name.endswith(".samples.json.gz"):
                continue
            record = json.loads(gzip.decompress(path.read_bytes()))
            rows = record.get("results") or record.get("rows") or ()
            found[record["id"]] = sorted(
                (str(row.get("step")), str(row.get("shape")), str(row.get("status")))
                for row in rows
            )
    return found


def _answer(outcome: dict[str, Any], answers: dict[str, Any]) -> list[Any]:
    return [answers.get(record) for record in outcome["records"]]


def _print(
    out: Path,
    killed: Sequence[dict[str, Any]],
    one: dict[str, Any],
    many: dict[str, Any],
    both: Any,
) -> None:
    for each in (one, many):
        print(
            f"{each['name']}: {each['pieces']} pieces, {each['seconds']:.1f} s, commands "
            f"{each['command_seconds']:.1f} s, code {each['code']}, "
            f"{'interrupted, ' if each['interrupted'] else ''}by GPU {dict(each['by_gpu'])}"
        )
    print(
        f"same {both['pieces']} pieces: {both['one_seconds']:.1f} s and "
        f"{both['many_seconds']:.1f} s, {both['speed_up']:.2f} x; different verdicts: "
        f"{both['different'] or 'none'}"
    )
    for each in killed:
        print(
            f"{each['name']}: with {each['done_before_the_kill']} done, {each['outcomes']} "
            f"outcomes, {each['records']} records ({each['distinct_records']} distinct, "
            f"{each['record_files']} files), second start did {each['second']['done']}: "
            f"{'nothing lost, nothing twice' if each['nothing_lost'] else 'NOT AS IT SHOULD BE'}"
        )
    print(f"all of it: {out / 'speedup.json'}")


if __name__ == "__main__":
    sys.exit(main())
