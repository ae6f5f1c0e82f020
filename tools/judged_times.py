"""Time submissions with their judge in another process and in their own, in interleaved pairs.

``python tools/judged_times.py SUBMISSION... --shape SHAPE --pairs 20`` prints, for every metric,
both medians and the median of the pairs' ratios with its 95 % interval (bootstrap over pairs). On a
GPU it asks for the other process by itself (``KERNELBENCH_GPU_JUDGE``).
``--record FILE`` also writes each pair, a line of JSON each. Every run has a worker of its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelbench.base.seeds import derive
from kernelbench.problems.task_folder import task_context
from kernelbench.project.context import Context
from kernelbench.records.metrics import Metric
from kernelbench.runs.plan import plan
from kernelbench.runs.runner import Runner, StepRun
from kernelbench.worker import launcher as launching
from kernelbench.worker.jobs import JUDGE_ON_GPU, Timing, processes_apart
from kernelbench.worker.launcher import Launcher

METRICS: tuple[Metric, ...] = ("call", "device")
WAYS = ("here", "apart")
_RESAMPLES = 2000


def times(
    launcher: Launcher, run: StepRun, way: str, seed: int, timing: Timing
) -> dict[str, float]:
    """The median microseconds of each metric of one run, judged here or apart."""
    vars(launching)["processes_apart"] = processes_apart if way == "apart" else lambda job: 0
    (row,) = Runner(launcher, seed=seed, timing=timing, call_limit_s=60).run(run)
    if row.status != "pass" or row.metrics.get("call") is None:
        raise SystemExit(f"{run.step.name}, judged {way}: {row.status}: {row.reason}")
    said = "judged from another process" in row.notes
    if row.executor == "gpu" and said != (way == "apart"):
        raise SystemExit(f"{run.step.name} was to be judged {way}, and was not")
    found = {"call": row.metrics["call"].median}
    if row.metrics.get("device") is not None:
        found["device"] = row.metrics["device"].median
    return found


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Of the median, 95 %."""
    rng = random.Random(1)
    medians = sorted(
        statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(_RESAMPLES)
    )
    return medians[int(0.025 * _RESAMPLES)], medians[int(0.975 * _RESAMPLES)]


def summary(name: str, pairs: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each metric."""
    lines = []
    for metric in METRICS:
        # What cannot be captured has no device time apart.
        if not all(metric in pair[way] for pair in pairs for way in WAYS):
            continue
        ratios = [pair["apart"][metric] / pair["here"][metric] for pair in pairs]
        here, apart = (statistics.median(pair[way][metric] for pair in pairs) for way in WAYS)
        low, high = interval(ratios)
        lines.append(
            f"{name}  {metric}  here {here:.2f} µs  apart {apart:.2f} µs  "
            f"×{statistics.median(ratios):.4f} [{low:.4f}, {high:.4f}]  {len(pairs)} pairs"
        )
    return lines


def main() -> None:
    """Run the pairs of one submission after another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("submissions", nargs="+", help="Python files with custom_kernel")
    parser.add_argument("--shape", required=True)
    parser.add_argument("--task", help="folder of a GPU MODE task, whose submissions they are")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--reps", type=int, default=100)
    parser.add_argument("--budget", type=float, default=0.5, help="seconds a run, on a CPU")
    parser.add_argument("--executor", default="auto")
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    os.environ[JUDGE_ON_GPU] = "apart"
    timing = Timing(options.reps, 10, "cold", "single", METRICS, options.budget)
    context = task_context(options.task) if options.task else Context.find()
    for file in options.submissions:
        (run,) = plan(context, [file], [options.shape], options.executor, [], 0, warn=print)
        run = dataclasses.replace(run, classes=run.classes[:1])
        pairs: list[dict[str, Any]] = []
        with Launcher() as launcher:
            for number in range(options.pairs):
                ways = [*WAYS]
                random.Random(derive(number, "order")).shuffle(ways)
                pair: dict[str, Any] = {"submission": run.step.name, "pair": number}
                for way in ways:
                    pair[way] = times(launcher, run, way, number + 1, timing)
                pairs.append(pair)
                if options.record is not None:
                    with options.record.open("a") as lines:
                        lines.write(json.dumps(pair) + "\n")
        print(*summary(run.step.name, pairs), sep="\n", flush=True)


if __name__ == "__main__":
    main()
