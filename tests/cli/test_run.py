"""``kernelbench run``: results, saving, interruption, full disks, two processes at once."""

from __future__ import annotations

import csv
import gzip
import json
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import (
    ROOT,
    TINY,
    environment_of,
    launch,
    processes_with,
    read_document,
    write_project,
    write_step,
)

from kernelbench.records import metrics, run_record

QUICK = ("--budget", 0.2, "--reps", 30)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A run of v00 on two shapes, with its results folder."""
    results = tmp_path_factory.mktemp("results")
    outcome = launch(
        "run", "v00", "--shape", TINY, "--shape", "u1", "--seed", 3, *QUICK,
        "--results", results, "--json", results / "run.json",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    return outcome, results


def test_the_terminal_says_what_ran_and_how(saved: tuple[Any, Path]) -> None:
    outcome, results = saved
    first, *_ = outcome.out.splitlines()
    assert first.startswith("v00  executor torch · CPU ")
    assert "≤ 30 reps in 0.2 s a shape · seed 3" in first
    assert "gpu-mode= full" in outcome.out
    assert outcome.out.count("PASS") == 2
    assert "→ 2 passed of 2" in outcome.out
    (record,) = run_record.list_runs(results)
    assert record.name in outcome.out
    # What it is at, a line after ten seconds, is no complaint.
    assert not any(word in outcome.err for word in ("warning", "error", "Traceback"))


def test_files_of_a_run(saved: tuple[Any, Path]) -> None:
    _, results = saved
    (path,) = run_record.list_runs(results)
    record = run_record.read_run(path)
    assert record.complete
    assert record.device == record.environment.device
    assert path.parent.parent.name == run_record.device_slug(record.device)
    assert [(row.shape, row.inputs) for row in record.results] == [
        (shape, inputs) for shape in (TINY, "u1") for inputs in ("gpu-mode", "full", "structured")
    ]
    timed = [row for row in record.results if row.metrics.get("call") is not None]
    assert [row.inputs for row in timed] == ["gpu-mode", "gpu-mode"]
    samples = run_record.read_samples(path.parent / record.samples_file)
    assert [(entry["step"], entry["shape"], entry["metric"]) for entry in samples] == [
        ("v00", TINY, "call"),
        ("v00", "u1", "call"),
    ]
    for entry, row in zip(samples, timed, strict=True):
        times = [t for block in entry["blocks"] for t in block["t_us"]]
        assert metrics.summarize(times, "wall") == row.metrics.get("call")
    text = gzip.decompress(path.read_bytes()).decode()
    assert str(ROOT) not in text
    assert str(results) not in text
    table = (path.parent.parent / "table.md").read_text()
    assert table.count("|v00|") == 2
    with (path.parent.parent / "table.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["shape"], row["classes"]) for row in rows] == [(TINY, "3"), ("u1", "3")]
    medians = {row["shape"]: row["call_median_us"] for row in rows if row["call_median_us"]}
    assert set(medians) == {TINY, "u1"}
    assert float(medians[TINY]) == pytest.approx(timed[0].metrics["call"].median, rel=1e-3)


def test_a_seed_gives_the_same_errors_again(bench: Callable[..., Any]) -> None:
    """The budget is stated, too, where it bounds the reps."""

    def once(*more: object) -> tuple[list[float], str]:
        outcome = bench(
            "run", "v00", "--shape", "u3", "--inputs", "full", "--seed", 11, "--no-save", "--json",
            "-", *more,
        )  # fmt: skip
        assert outcome.code == 0
        return [row["max_abs_err"] for row in json.loads(outcome.out)["results"]], outcome.err

    first, text = once("--budget", 0.1)
    assert first[0] > 0
    assert " reps: 0.1 s budget on a CPU" in text
    assert once("--check-only")[0] == first


def test_the_moe_reference_step(bench: Callable[..., Any], tmp_path: Path) -> None:
    outcome = bench(
        "run", "mref", "--shape", "m=5:n=128:k=256:e=8:topk=2", *QUICK, "--results", tmp_path,
        "--json", "-",
    )  # fmt: skip
    assert outcome.code == 0, outcome.out + outcome.err
    assert {row["status"] for row in json.loads(outcome.out)["results"]} == {"pass"}


def test_a_submission_for_the_moe_is_known_by_its_shape(
    bench: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_bytes((ROOT / "moe" / "mref" / "submission.py").read_bytes())
    outcome = bench(
        "run", file, "--shape", "m=5:n=128:k=256:e=8:topk=2", "--check-only", "--no-save"
    )
    assert outcome.code == 0, outcome.out + outcome.err


def test_shapes_beyond_a_step_are_skipped_and_still_give_json(
    bench: Callable[..., Any], tmp_path: Path, right_source: str
) -> None:
    root = write_project(tmp_path / "p", {})
    write_step(root / "tiny", "s00", right_source, '[limits]\nnk = "fixed"')
    arguments = ("run", "s00", "--check-only", "--json", "-", "--inputs", "gpu-mode")
    ragged = ("--shape", "m=8,8:n=128,256:k=256,256")
    both = bench(*arguments, *ragged, "--shape", TINY, root=root)
    assert both.code == 0
    rows = read_document(both.out)["results"]
    assert [row["status"] for row in rows] == ["skipped", "pass"]
    assert rows[0]["reason"]
    alone = bench(*arguments, *ragged, root=root)
    assert [row["status"] for row in read_document(alone.out)["results"]] == ["skipped"]


def test_planned_steps_of_a_range_are_left_out_with_a_warning(
    bench: Callable[..., Any], tmp_path: Path, right_source: str
) -> None:
    root = write_project(tmp_path / "p", {"s00": right_source, "s01": None, "s02": right_source})
    outcome = bench("run", "s00..s02", "--shape", "u0", "--check-only", "--json", "-", root=root)
    assert outcome.code == 0
    assert "warning: planned, left out: s01" in outcome.err
    assert {row["step"] for row in read_document(outcome.out)["results"]} == {"s00", "s02"}
    assert run_record.list_runs(root / "results")


def test_a_lineage_with_a_problem_of_its_own(bench: Callable[..., Any], tmp_path: Path) -> None:
    """A user's problem lives in a file beside the lineage, as the registry allows."""
    root = write_project(tmp_path / "p", {"s00": OWN_STEP})
    (root / "shapes.yaml").write_text("doubling:\n  small: {n: 64}\n")
    lineage = root / "tiny" / "lineage.toml"
    lineage.write_text('name = "tiny"\ntitle = "t"\nproblem = "problem.py:PROBLEM"\n')
    (root / "tiny" / "problem.py").write_text(OWN_PROBLEM)
    outcome = bench("run", "s00", *QUICK, "--json", "-", root=root)
    assert outcome.code == 0, outcome.out + outcome.err
    (row,) = read_document(outcome.out)["results"]
    assert (row["problem"], row["shape"], row["status"]) == ("doubling", "small", "pass")
    assert row["call_us"]["median"] > 0


OWN_STEP = """
def custom_kernel(data):
    source, target = data
    target.copy_(2 * source)
    return [target]
"""

OWN_PROBLEM = '''
"""Twice a vector."""

from __future__ import annotations

from dataclasses import dataclass

from kernelbench.project.problem import OutputVerdict, Inputs, Work


@dataclass(frozen=True)
class Vector:
    name: str
    n: int

    def describe(self):
        return f"n={self.n}"


class Doubling:
    name = "doubling"
    input_classes = ("normal",)
    benchmark_shapes = ("small",)

    def parse_shape(self, name, fields):
        return Vector(name, int(fields["n"]))

    def make_inputs(self, shape, input_class, seed, device):
        import torch

        from kernelbench.project.arena import GuardedOutputs

        source = torch.randn(shape.n, generator=torch.Generator(device).manual_seed(seed))
        arena = GuardedOutputs([[shape.n]], torch.float32, device)
        return Inputs((source, arena.views[0]), [source], list(arena.views), arena)

    def outputs_of(self, result, inputs):
        return list(result)

    def reference(self, inputs, shape, input_class):
        return inputs.operands[0] * 2

    def compare(self, outputs, reference, shape, input_class):
        same = bool((outputs[0] == reference).all())
        return OutputVerdict(same, same, 0.0 if same else None, "" if same else "differs")

    def broken_limit(self, shape, limits):
        return ""

    def work(self, shape, inputs=None):
        return Work(shape.n, 4 * shape.n, 4 * shape.n, "fp32")


PROBLEM = Doubling()
'''


# -- saving


def test_two_processes_write_one_results_folder(tmp_path: Path, submissions: Path) -> None:
    files = [submissions / name for name in ("right.py", "slow.py", "returns_fresh.py")]
    with ThreadPoolExecutor(len(files)) as pool:
        outcomes = list(
            pool.map(
                lambda file: launch(
                    "run", file, "--shape", TINY, "--inputs", "gpu-mode", *QUICK,
                    "--results", tmp_path,
                ),
                files,
            )
        )  # fmt: skip
    assert [outcome.code for outcome in outcomes] == [0, 0, 0]
    runs = [run_record.read_run(path) for path in run_record.list_runs(tmp_path)]
    steps = {"right", "slow", "returns_fresh"}
    assert {run.results[0].step for run in runs} == steps
    assert all((tmp_path.glob(f"*/runs/{run.samples_file}")) for run in runs)
    (table,) = tmp_path.glob("*/table.md")
    text = table.read_text()
    assert text.endswith("|\n")
    assert all(f"|{step}|" in text for step in steps)
    with next(tmp_path.glob("*/table.csv")).open() as stream:
        assert {row["step"] for row in csv.DictReader(stream)} == steps
    assert not [path for path in tmp_path.rglob(".*") if path.name != ".lock"]


#: Runs the command line with files limited to so many bytes, as on a full disk.
LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from kernelbench.cli import invoke as run
import kernelbench.records.store
real = kernelbench.records.store.save_run
def save(*arguments):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
    return real(*arguments)
kernelbench.records.store.save_run = save
sys.exit(run(sys.argv[2:]))
"""


@pytest.mark.parametrize("limit", [0, 700], ids=["samples", "record"])
def test_a_full_disk_leaves_nothing_half_written(limit: int, tmp_path: Path) -> None:
    """The samples do not fit, or they do and the record does not."""
    shapes = [word for m in range(1, 9) for word in ("--shape", f"m={m}:n=128:k=256")]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(limit), "run", "v00", *shapes, "--reps", "3",
         "--inputs", "gpu-mode", "--budget", "0.1", "--results", str(tmp_path)],
        capture_output=True, text=True, env=environment_of(ROOT), timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 5, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = [x for x in done.stderr.splitlines() if x.startswith("kernelbench: ")]
    assert f"cannot write {tmp_path}" in line
    assert "File too large" in line
    assert "nothing was half-written" in line
    assert "PASS" in done.stdout
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_json_file_that_cannot_be_written_does_not_cost_the_record(tmp_path: Path) -> None:
    target = tmp_path / "taken"
    target.mkdir()
    outcome = launch(
        "run", "v00", "--shape", "u0", *QUICK, "--results", tmp_path / "r", "--json", target
    )
    assert outcome.code in (2, 5)
    assert str(target) in outcome.error
    if outcome.code == 5:
        assert run_record.list_runs(tmp_path / "r")


# -- interruption


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts the command line; what is left of it afterwards is ended."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*arguments: object, mark: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "kernelbench", *map(str, arguments)],
                stdout=out,
                stderr=err,
                env=environment_of(ROOT) | {"KERNELBENCH_TEST_MARK": mark},
            )
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
            process.wait()


def _wait_for(condition: Callable[[], Any], limit_s: float = 40) -> Any:
    deadline = time.monotonic() + limit_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found


def test_ctrl_c_keeps_what_was_measured(
    started: Callable[..., subprocess.Popen[bytes]], tmp_path: Path, submissions: Path
) -> None:
    """The first shape is complete, the second is interrupted while it is timed."""
    mark = secrets.token_hex(8)
    flag = tmp_path / "timing"
    source = (submissions / "slow.py").read_text()
    step = tmp_path / "sleepy.py"
    step.write_text(
        source.replace("    time.sleep(0.01)\n", "    time.sleep(0.01)\n    count(data)\n")
        + COUNTER.format(flag=flag)
    )
    (tmp_path / "right.py").write_text((submissions / "right.py").read_text())
    process = started(
        "run", step, "--shape", "u0", "--shape", "u2", "--inputs", "gpu-mode",
        "--budget", 600, "--reps", 60, "--results", tmp_path / "r", "--json", tmp_path / "x.json",
        mark=mark,
    )  # fmt: skip
    _wait_for(flag.exists)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    err = (tmp_path / "err").read_text()
    assert "Traceback" not in err
    assert "kernelbench: interrupted" in err
    (path,) = run_record.list_runs(tmp_path / "r")
    record = run_record.read_run(path)
    assert not record.complete
    first, second = record.results
    assert (first.shape, first.status) == ("u0", "pass")
    assert first.metrics["call"].reps == 60
    assert (second.shape, second.status) == ("u2", "pass")
    assert second.metrics.get("call") is not None, (
        "the timed blocks of the interrupted shape are lost"
    )
    assert 0 < second.metrics["call"].reps < 60
    assert second.metrics["call"].method == "incomplete"
    assert any("interrupted" in note for note in second.notes)
    samples = run_record.read_samples(path.parent / record.samples_file)
    assert [len(entry["blocks"]) > 0 for entry in samples] == [True, True]
    assert run_record.read_run(tmp_path / "x.json").complete is False
    assert "|sleepy|" in next((tmp_path / "r").glob("*/table.md")).read_text()
    _wait_for(lambda: not processes_with(mark), 5)


COUNTER = """

calls = 0


def count(data):
    global calls
    calls += len(data[0]) == 8
    # Check and warm-ups are 53 calls; this is in the second timed block of the second shape.
    if calls == 53 + 25:
        open({flag!r}, "w").close()
        time.sleep(100)
""".replace("{flag!r}", "'{flag}'")


def test_ctrl_c_before_anything_was_measured(
    started: Callable[..., subprocess.Popen[bytes]], tmp_path: Path, submissions: Path
) -> None:
    mark = secrets.token_hex(8)
    process = started(
        "run", submissions / "loops_on_import.py", "--shape", "u0", "--results", tmp_path / "r",
        mark=mark,
    )  # fmt: skip
    _wait_for(lambda: len(processes_with(mark)) >= 3)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    said = (tmp_path / "err").read_text()
    # On a busy machine progress is shown before.
    assert len([line for line in said.splitlines() if line and " · " not in line]) <= 2
    assert "Traceback" not in said
    for path in run_record.list_runs(tmp_path / "r"):
        assert not run_record.read_run(path).complete
    _wait_for(lambda: not processes_with(mark), 5)


def test_no_orphans_when_the_command_is_killed(
    started: Callable[..., subprocess.Popen[bytes]], submissions: Path
) -> None:
    mark = secrets.token_hex(8)
    process = started(
        "run", submissions / "loops_forever.py", "--shape", "u0", "--no-save", mark=mark
    )
    _wait_for(lambda: len(processes_with(mark)) >= 3)
    process.kill()
    process.wait()
    _wait_for(lambda: not processes_with(mark), 5)
