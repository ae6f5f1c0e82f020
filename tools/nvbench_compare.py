"""Why NVIDIA's nvbench shows more than kernelbench: one thing switched at a time, until both agree.

python tools/nvbench_compare.py m07 --shape qwen35 --out nvbench.json     on a GPU, with cuda-bench
python tools/nvbench_compare.py m07 --shape qwen35 --no-nvbench           the switches alone

From kernelbench's way of timing to nvbench's: the input sets, the poisoned outputs, what the flush
of the L2 leaves in it, the launch, the wait after each flush, the stamp of the clock. Then nvbench
itself. Our conditions take turns, in an order that is drawn anew each time; medians and means are
over all turns. Device time in microseconds. docs/evidence-verdicts.md has the table. nvbench's
flush sets a buffer of the L2's size to zero with a memset; that is what `dirty` does here.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

BLOCK = 20
TURNS = 5


@dataclass(frozen=True)
class Condition:
    """One way of timing.

    Attributes:
        flush: Before each sample: ``clean`` (twice the L2 written, then twice read), ``dirty`` (a
            memset of the L2's size), ``dirty, read`` (that, and twice the L2 read), ``none``.
        graph: Replay a graph of the call; else call the step on the stream.
        sets: Input sets that take turns. poison: Fill the outputs before each sample.
        waits: Drain the queue after each flush; else only between blocks of 20.
        stamp: Let a kernel read every SM's clock before each sample.
    """

    name: str
    flush: str = "clean"
    graph: bool = True
    sets: int = 4
    poison: bool = True
    waits: bool = False
    stamp: bool = False


OURS = Condition("kernelbench: 4 input sets, poison, clean flush, graph, queued")
ONE_SET = replace(OURS, name="one input set", sets=1)
UNPOISONED = replace(ONE_SET, name="outputs not poisoned", poison=False)
DIRTY = replace(UNPOISONED, name="flush: memset of the L2's size", flush="dirty")
CALLED = replace(DIRTY, name="called on the stream, no graph", graph=False)
WAITS = replace(CALLED, name="drained after each flush, the host ahead", waits=True)
STAMPED = replace(WAITS, name="a kernel that reads the clocks before each", stamp=True)
CLEANED = replace(STAMPED, name="(the last one, its dirty lines read away)", flush="dirty, read")
WARM = replace(OURS, name="(no flush at all)", flush="none")
CONDITIONS = (OURS, ONE_SET, UNPOISONED, DIRTY, CALLED, WAITS, STAMPED, CLEANED, WARM)


class Bench:
    """A step with its inputs on one GPU."""

    def __init__(self, step: str, shape_name: str, seed: int) -> None:
        import torch

        import kernelbench
        from kernelbench.measure import probes
        from kernelbench.measure.timing import draw_input_sets
        from kernelbench.project.context import Context
        from kernelbench.project.problem import Case
        from kernelbench.project.problem_loading import load_problem

        context = Context.find()
        lineage = context.lineage_for(context.lineages.select([step])[0])
        problem = load_problem(lineage)
        shape = context.shapes_for(problem, [shape_name])[0]
        input_class = problem.input_classes[0]
        self.torch = torch
        self.kernel = kernelbench.load(step)
        self.sets = draw_input_sets(Case(problem, shape, input_class), seed, "cuda:0")
        l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        self.written = torch.empty(2 * l2_bytes // 4, dtype=torch.int32, device="cuda")
        self.read = torch.ones(2 * l2_bytes // 4, dtype=torch.int32, device="cuda")
        self.sum = torch.zeros((), dtype=torch.int64, device="cuda")
        self.small = torch.empty(l2_bytes, dtype=torch.uint8, device="cuda")
        self.stream = torch.cuda.Stream()
        found, why = probes.load_probes(0)
        if found is None:
            raise SystemExit(f"no probes: {why}")
        self.probes = found
        self.stamps = torch.zeros((found.stamp_slots, 2), dtype=torch.int64, device="cuda")
        self.graphs = []
        with torch.cuda.stream(self.stream):
            for each in self.sets:
                for _ in range(3):
                    self.kernel(each.inputs.data)
            torch.cuda.synchronize()
        for each in self.sets:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self.stream):
                self.kernel(each.inputs.data)
            self.graphs.append(graph)
        torch.cuda.synchronize()

    def flush(self, how: str) -> None:
        """Enqueue a flush of the L2."""
        if how == "clean":
            self.written.fill_(1)
        elif how.startswith("dirty"):
            self.small.zero_()
        if how in ("clean", "dirty, read"):
            self.torch.sum(self.read, dim=0, out=self.sum)

    def launch(self, which: int, graph: bool) -> None:
        """Enqueue one call."""
        if graph:
            self.graphs[which].replay()
        else:
            self.kernel(self.sets[which].inputs.data)

    def block(self, condition: Condition) -> list[float]:
        """Device times of one block of samples, microseconds."""
        from kernelbench.measure import probes

        torch = self.torch
        events = []
        with torch.cuda.stream(self.stream):
            probes.spin(3e-3, self.stream)
            for sample in range(BLOCK):
                which = sample % condition.sets
                if condition.poison:
                    chosen = self.sets[which]
                    chosen.inputs.arena.fill(chosen.poisons[sample % 2])
                self.flush(condition.flush)
                if condition.waits:
                    self.stream.synchronize()
                    # The host is ahead, as behind nvbench's blocking kernel.
                    probes.spin(100e-6, self.stream)
                if condition.stamp:
                    self.probes.clock_stamp(self.stamps.data_ptr(), self.stream.cuda_stream)
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record(self.stream)
                self.launch(which, condition.graph)
                end.record(self.stream)
                events.append((start, end))
            self.stream.synchronize()
        return [start.elapsed_time(end) * 1e3 for start, end in events]


def with_nvbench(bench: Bench, reps: int) -> dict[str, list[float]]:
    """Samples of nvbench in microseconds: as it is, with a graph, without looking at the clock."""
    nvbench = importlib.import_module("cuda.bench")
    results = importlib.import_module("cuda.bench.results")

    torch = bench.torch

    def on(launch: Any) -> Any:
        return torch.cuda.stream(torch.cuda.ExternalStream(launch.get_stream().addressof()))

    def called(state: Any) -> None:
        def run(launch: Any) -> None:
            with on(launch):
                bench.launch(0, graph=False)

        state.exec(run, batched=False)

    def replayed(state: Any) -> None:
        def run(launch: Any) -> None:
            with on(launch):
                bench.launch(0, graph=True)

        state.exec(run, batched=False)

    def unchecked(state: Any) -> None:
        state.set_throttle_threshold(0.0)
        called(state)

    ways: dict[str, Callable[[Any], None]] = {
        "called": called,
        "replayed": replayed,
        "unchecked": unchecked,
    }
    for name, way in ways.items():
        nvbench.register(way).set_name(name).set_min_samples(reps)
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "nvbench.json")
        words = ["nvbench", "--device", "0", "--timeout", "3", "--jsonbin", file, "--quiet"]
        nvbench.run_all_benchmarks(words)
        found = results.BenchmarkResult.from_json(file)
        return {name: [1e6 * t for t in found[name][0].samples or ()] for name in ways}


#: What nvbench's samples are called in the table.
NVBENCH_NAMES = {
    "called": "nvbench, the step called",
    "replayed": "nvbench, a graph replayed",
    "unchecked": "nvbench, its threshold of throttling at 0",
}


def row(name: str, samples: Sequence[float]) -> dict[str, Any]:
    """Median, mean, 5th and 95th percentile."""
    ranks = statistics.quantiles(samples, n=20)
    return {
        "name": name,
        "median_us": statistics.median(samples),
        "mean_us": statistics.fmean(samples),
        "p5_us": ranks[0],
        "p95_us": ranks[-1],
        "samples": len(samples),
    }


def switched(bench: Bench, reps: int, seed: int) -> list[dict[str, Any]]:
    """A row for each condition; turns interleaved."""
    from kernelbench.machine.clocks import ClockSampler

    rng = random.Random(seed)
    found: dict[str, list[float]] = {each.name: [] for each in CONDITIONS}
    mhz: dict[str, list[float]] = {each.name: [] for each in CONDITIONS}
    with ClockSampler(0) as clocks:
        for _ in range(TURNS):
            for condition in rng.sample(CONDITIONS, len(CONDITIONS)):
                bench.block(condition)  # the first one settles
                for _ in range(max(1, reps // TURNS // BLOCK)):
                    found[condition.name] += bench.block(condition)
                mhz[condition.name].append(clocks.read().sm_mhz or 0.0)
    return [
        row(name, samples) | {"sm_mhz": statistics.median(mhz[name])}
        for name, samples in found.items()
    ]


def main() -> int:
    """Measure, and print a line for each condition."""
    parser = argparse.ArgumentParser(description="Why nvbench shows more than kernelbench.")
    parser.add_argument("step")
    parser.add_argument("--shape", required=True)
    parser.add_argument("--reps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=None, help="JSON with every row")
    parser.add_argument("--no-nvbench", action="store_true")
    asked = parser.parse_args()
    began = time.monotonic()
    bench = Bench(asked.step, asked.shape, asked.seed)
    rows = switched(bench, asked.reps, asked.seed)
    if not asked.no_nvbench:
        try:
            found = with_nvbench(bench, asked.reps)
        except ImportError as error:
            print(f"no nvbench: {error}; pip install 'cuda-bench[cu13]'", file=sys.stderr)
        else:
            rows += [row(NVBENCH_NAMES[n], samples) for n, samples in found.items() if samples]
    print(f"{asked.step} {asked.shape}, {bench.torch.cuda.get_device_name(0)}, us")
    for each in rows:
        print(
            f"{each['median_us']:8.2f} median {each['mean_us']:8.2f} mean "
            f"[{each['p5_us']:.2f}, {each['p95_us']:.2f}] {each['samples']:5d}  "
            f"{each.get('sm_mhz', 0):.0f} MHz  {each['name']}"
        )
    print(f"{time.monotonic() - began:.1f} s")
    if asked.out:
        asked.out.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
