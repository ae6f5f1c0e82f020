"""Measure what users wait for, and write one table: ``make bench``.

python tools/bench.py                                  every part, five times
python tools/bench.py --only list,emulate --pairs 10
python tools/bench.py --only run --match u3            some of a part's figures
python tools/bench.py --against main --pairs 20        this tree and a revision, interleaved

Each figure is wall-clock time of what a user calls, in a process of its own but for ``emulate``,
one call of a loaded step. With ``--against`` every repetition measures both trees, in random order,
each with a compile cache of its own; the ratio and its 95 % interval are those of ``ab``
(:mod:`kernelbench.stats.inference`): of paired differences of logarithms, for this one session.
It is a benchmark: nothing fails for being slow. Nothing else should run on the machine. What a call
does not measure stays in the table, with the conditions under which it was measured. Ctrl-C keeps
the repetitions that every figure has.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from bench_table import SCHEMA, markdown, merged

from kernelbench.base.files import write_text
from kernelbench.machine.environment import cpu_name
from kernelbench.machine.toolchain import cpu_count, emulator_compiler
from kernelbench.stats.blocks import BlockSamples
from kernelbench.stats.estimate import estimate_change

ROOT = Path(__file__).resolve().parents[1]
RIGHT = "tests/submissions/right.py"
#: Step, shape, and what the emulator spends its time on there.
EMULATED = (
    ("v07", "u3", "tcgen05, one CTA"),
    ("v22", "u3", "tcgen05, pairs of CTAs"),
    ("m05", "s4", "wgmma"),
    ("m07", "s1", "wgmma, several tiles"),
    ("m00", "s3", "routing, hardly a product"),
    ("m07", "s3", "routing, hardly a product"),
)
LIMIT_S = 900.0
#: A block's sum whose steps nothing orders.
RED = ROOT / "examples" / "race.cu"
#: A submission that gives CUDA C++ to torch's ``load_inline``.
INLINE = "tests/ptx_users/submissions/relu.py"
NAME = "bench"


class BenchError(Exception):
    """What could not be measured, in one line."""


@dataclass
class Tree:
    """A checkout with its compile cache."""

    root: Path
    cache: Path
    emulation: subprocess.Popen[str] | None = None
    environment: Path | None = None

    def installed(self, *arguments: str, cache: Path | None = None) -> float:
        """Seconds that the command takes as a stranger has it: a wheel, in an empty folder.

        Its environment is new, but for the packages that kernelbench needs.
        """
        if self.environment is None:
            self.environment = self._wheel_environment()
        program = self.environment / "bin" / "kernelbench"
        env = self._environment(cache or self.cache)
        env = {k: v for k, v in env.items() if k not in ("KERNELBENCH_ROOT", "PYTHONPATH")}
        with tempfile.TemporaryDirectory(prefix="bench-empty-") as folder:
            shutil.copy(RED, folder)
            return _timed([str(program), *arguments], Path(folder), env, {0, 3})

    def _wheel_environment(self) -> Path:
        folder = self.cache.with_name(f"{self.cache.name}-installed")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        (packages,) = folder.glob("lib/python3*/site-packages")
        (packages / "needed.pth").write_text(f"{Path(np.__file__).parents[1]}\n")
        _timed(["make", "wheel", f"BIN={Path(sys.executable).parent}"], self.root, dict(os.environ))
        wheel = max((self.root / "dist").glob("*.whl"), key=lambda each: each.stat().st_mtime)
        print(f"\n{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB", file=sys.stderr)
        pip = [str(folder / "bin" / "pip"), "install", "-q", "--no-deps", str(wheel)]
        _timed(pip, self.root, dict(os.environ))
        return folder

    def cloned(self, times: int) -> float:
        """Seconds of the last of so many ``make run`` in a new clone, with empty caches."""
        with tempfile.TemporaryDirectory(prefix="bench-clone-") as folder:
            clone, home = Path(folder) / "clone", Path(folder) / "home"
            home.mkdir()
            left_out = ("KERNELBENCH_ROOT", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
            env = {k: v for k, v in os.environ.items() if k not in left_out}
            env |= {"KERNELBENCH_CACHE": f"{folder}/cache", "PIP_CACHE_DIR": f"{folder}/pip"}
            env["UV_CACHE_DIR"] = f"{folder}/uv"
            took = _timed(["git", "clone", "-q", str(self.root), str(clone)], home, env)
            for index in range(times):
                run = _timed(["make", "run"], clone, env)
                took = took + run if index == 0 else run
            return took

    def command(self, *arguments: str, cache: Path | None = None) -> float:
        """Seconds that ``kernelbench`` with these arguments takes."""
        call = [sys.executable, "-m", "kernelbench", *arguments]
        return _timed(call, self.root, self._environment(cache or self.cache))

    def new_program(self) -> float:
        """Seconds to check a CUDA program that was never built before, all else being built."""
        with tempfile.TemporaryDirectory(prefix="bench-new-") as folder:
            file = Path(folder) / "new.cu"
            file.write_text(f"{RED.read_text()}// {time.time_ns()}\n")
            call = [sys.executable, "-m", "kernelbench", "check", file.name]
            return _timed(call, Path(folder), self._environment(self.cache), {3})

    def _environment(self, cache: Path, code: Path | None = None) -> dict[str, str]:
        # Compiled modules are kept, as they are for a user.
        kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        return kept | {
            "KERNELBENCH_ROOT": str(self.root),
            "KERNELBENCH_CACHE": str(cache),
            "PYTHONPATH": str(code or self.root),
            "CUDA_VISIBLE_DEVICES": "",
            "GCOV_PREFIX": str(self.cache / "counters"),
        }

    def call(self, step: str, shape: str, check: bool) -> float:
        """Seconds of one emulated call of a step."""
        if self.emulation is None:
            self.emulation = subprocess.Popen(
                [sys.executable, str(ROOT / "tools" / "bench_emulation.py"), str(self.cache)],
                cwd=ROOT, env=self._environment(self.cache, code=ROOT) | {
                    "KERNELBENCH_ROOT": str(ROOT)
                },
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
        process = self.emulation
        assert process.stdin is not None and process.stdout is not None
        line = ""
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps([step, shape, check]) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        if not line:
            raise BenchError(f"emulating {step} on {shape}: the process is gone")
        answer = json.loads(line)
        if "error" in answer:
            raise BenchError(f"emulating {step} on {shape}: {answer['error']}")
        return float(answer["seconds"])

    def close(self) -> None:
        """End what was started."""
        if self.emulation is not None:
            self.emulation.kill()
            with contextlib.suppress(BrokenPipeError), self.emulation:
                pass


@dataclass
class Figure:
    """One row of the table: how it is measured once, and the seconds found by tree."""

    name: str
    measure: Callable[[Tree], float]
    seconds: list[list[float]] = field(default_factory=list)
    failed: str = ""


def _timed(
    command: Sequence[str], folder: Path, env: dict[str, str], right: Collection[int] = (0,)
) -> float:
    """Seconds that a command takes; ``right`` are the exit codes of one that did its work."""
    began = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=LIMIT_S, check=False,
    )  # fmt: skip
    took = time.perf_counter() - began
    if done.returncode not in right:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise BenchError(f"{' '.join(map(str, command))}: {' '.join(said)}")
    return took


def _installed(*arguments: str, cold: bool) -> Callable[[Tree], float]:
    def measure(tree: Tree) -> float:
        if not cold:
            return tree.installed(*arguments)
        with tempfile.TemporaryDirectory(prefix="bench-cold-") as folder:
            return tree.installed(*arguments, cache=Path(folder))

    return measure


def _cold(*arguments: str) -> Callable[[Tree], float]:
    def measure(tree: Tree) -> float:
        with tempfile.TemporaryDirectory(prefix="bench-cold-") as folder:
            return tree.command(*arguments, cache=Path(folder))

    return measure


def _warm(*arguments: str) -> Callable[[Tree], float]:
    return lambda tree: tree.command(*arguments)


def _built(name: str, *arguments: str) -> Callable[[Tree], float]:
    """Seconds that the cache says an artefact took to build, in a cache that was empty."""

    def measure(tree: Tree) -> float:
        with tempfile.TemporaryDirectory(prefix="bench-build-") as folder:
            tree.command(*arguments, cache=Path(folder))
            for file in Path(folder).glob("builds/*/meta.json"):
                meta = json.loads(file.read_text())
                if meta["name"] == name:
                    return float(meta["seconds"])
        raise BenchError(f"nothing called {name} was built")

    return measure


def _called(step: str, shape: str, check: bool) -> Callable[[Tree], float]:
    return lambda tree: tree.call(step, shape, check)


def figures(scratch: Path) -> dict[str, list[Figure]]:
    """What can be measured, by part."""
    run_a = ("run", "v22", "--shape", "A", "--no-save")
    run_u3 = ("run", "v22", "--shape", "u3", "--no-save")
    check = ("check", "v22", "--schedules", "20")
    tiny = ("check", "v22", "--shape", "u0", "--sms", "1", "--schedules", "1")
    ab = ("ab", "v00", RIGHT, "--shape", "u0", "--metric", "call", "--sessions", "1", "--reps",
          "40", "--budget", "1", "--results", str(scratch / "ledger"))  # fmt: skip
    emulated = [
        Figure(f"{step} on {shape}, {'checked' if checked else 'plain'} ({what})",
               _called(step, shape, checked))
        for step, shape, what in EMULATED
        for checked in (False, True)
    ]  # fmt: skip
    return {
        "first": [
            Figure(
                f"{name}, installed, {'cold' if cold else 'warm'}", _installed(*words, cold=cold)
            )
            for name, words in {
                "check race.cu": ("check", "race.cu"),
                "check v22 --budget 10s": ("check", "v22", "--budget", "10s"),
                "demo": ("demo",),
            }.items()
            for cold in (True, False)
        ],
        "files": [
            Figure("check a CUDA program that is new", Tree.new_program),
            Figure("check a submission with load_inline, warm", _warm("check", INLINE)),
        ],
        "clone": [
            Figure("make run in a fresh clone, empty caches", lambda tree: tree.cloned(1)),
            Figure("make run again", lambda tree: tree.cloned(2)),
        ],
        "list": [Figure("list", _warm("list"))],
        "show": [Figure("show", _warm("show"))],
        "lineage": [Figure("lineage", _warm("lineage"))],
        "run": [
            Figure("run v22 on A, cold", _cold(*run_a)),
            Figure("run v22 on A, warm", _warm(*run_a)),
            Figure("run v22 on u3, cold", _cold(*run_u3)),
            Figure("run v22 on u3, warm", _warm(*run_u3)),
        ],
        "check": [Figure("check v22, 20 schedules", _warm(*check))],
        "emulate": emulated,
        "build": [
            Figure("build the emulator", _built("emulator runtime", *run_u3)),
            Figure("build v22 for it", _built("v22 (emulator)", *run_u3)),
            Figure("build v22 for the checker", _built("v22 (emulator, checked)", *tiny)),
        ],
        "ab": [Figure("ab v00 right, 40 repetitions on u0", _warm(*ab))],
    }


def prepare(trees: Sequence[Tree], parts: Sequence[str]) -> None:
    """Fill the caches: what is measured warm is built before."""
    for tree in trees:
        print(f"building in {tree.root}", file=sys.stderr)
        if "run" in parts:
            tree.command("run", "v22", "--shape", "u0", "--no-save", "--check-only")
        if "check" in parts:
            tree.command("check", "v22", "--shape", "u0", "--sms", "1", "--schedules", "1")
        if "emulate" in parts:
            for step in dict.fromkeys(step for step, _, _ in EMULATED):
                small = "u0" if step.startswith("v") else "s5"
                tree.command("run", step, "--shape", small, "--no-save", "--check-only")
                tree.command("check", step, "--shape", small, "--sms", "1", "--schedules", "1")


def measure(chosen: Sequence[Figure], trees: Sequence[Tree], pairs: int, seed: int) -> int:
    """Measure every figure ``pairs`` times in each tree, the trees in random order.

    Returns:
        How many times it was; fewer after Ctrl-C.

    Raises:
        KeyboardInterrupt: If that came before anything was measured twice.
    """
    for figure in chosen:
        figure.seconds = [[] for _ in trees]
    try:
        _measure_rounds(chosen, trees, pairs, random.Random(seed))
    except KeyboardInterrupt:
        whole = min(len(of_tree) for f in chosen if not f.failed for of_tree in f.seconds)
        if whole < 2:
            raise
        print(f"\ninterrupted: {whole} of {pairs} repetitions are kept", file=sys.stderr)
        for figure in chosen:
            figure.seconds = [of_tree[:whole] for of_tree in figure.seconds]
        return whole
    return pairs


def _measure_rounds(
    chosen: Sequence[Figure], trees: Sequence[Tree], pairs: int, rng: random.Random
) -> None:
    for index in range(-1, pairs):
        for figure in chosen:
            if figure.failed:
                continue
            print(f"\r{index + 1}/{pairs} {figure.name:60.60}", end="", file=sys.stderr)
            order = rng.sample(range(len(trees)), len(trees))
            try:
                for which in order:
                    took = figure.measure(trees[which])
                    if index >= 0:  # the first round is a warm-up: bytecode, disk, libraries
                        figure.seconds[which].append(took)
            except (BenchError, subprocess.TimeoutExpired) as error:
                figure.failed = str(error)
    print(file=sys.stderr)


@contextlib.contextmanager
def opened(against: str | None, scratch: Path) -> Iterator[list[Tree]]:
    """This tree, and before it the one of a revision if asked for."""
    trees = [Tree(ROOT, scratch / "cache-here")]
    other = scratch / "tree"
    try:
        if against is not None:
            git("worktree", "add", "--detach", str(other), against)
            trees.insert(0, Tree(other, scratch / "cache-base"))
        yield trees
    finally:
        for tree in trees:
            tree.close()
        if other.exists():
            git("worktree", "remove", "--force", str(other))


def git(*arguments: str) -> str:
    """What git says in this checkout."""
    done = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise BenchError(f"git {arguments[0]}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.strip()


def document(chosen: Sequence[Figure], pairs: int, against: str | None) -> dict[str, Any]:
    """The figures with what they were measured on and how."""
    compiler = emulator_compiler()
    return {
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python", "tools/bench.py", *sys.argv[1:]]),
        "device": cpu_name(),
        "cores": cpu_count(),
        # The measuring itself makes one to two; more were other people's processes.
        "load": round(os.getloadavg()[2], 1),
        "python": platform.python_version(),
        "compiler": f"{compiler.kind} {compiler.version}",
        "commit": git("rev-parse", "HEAD"),
        "changed": bool(git("status", "--porcelain", "--untracked-files=no")),
        "against": git("rev-parse", against) if against else None,
        "repetitions": pairs,
        "figures": [_row(figure) for figure in chosen],
    }


def _row(figure: Figure) -> dict[str, Any]:
    row: dict[str, Any] = {"name": figure.name}
    if figure.failed or not figure.seconds[-1]:
        return row | {"failed": figure.failed or "not measured"}
    *base, here = figure.seconds
    row |= {"seconds": statistics.median(here), "samples": [round(s, 6) for s in here]}
    if base:
        row |= {"base_seconds": statistics.median(base[0]),
                "base_samples": [round(s, 6) for s in base[0]]}  # fmt: skip
        if len(here) > 1:
            of_base, of_here = (np.array(side)[:, None] * 1e6 for side in (base[0], here))
            found = estimate_change([BlockSamples(of_base, of_here)], tick_us=0.0)
            low, high = found.change_ci
            row |= {"ratio": 1 + found.change, "ratio_ci": [1 + low, 1 + high]}
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="PARTS", help="with commas between")
    parser.add_argument("--match", default="", metavar="TEXT", help="figures with that in the name")
    parser.add_argument("--pairs", type=int, default=5, help="repetitions of each figure")
    parser.add_argument("--against", metavar="REF", help="a git revision to interleave with")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the trees")
    parser.add_argument("--out", type=Path, default=ROOT / "results", help="folder of the table")
    options = parser.parse_args(arguments)
    scratch = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        known = figures(scratch)
        parts = options.only.split(",") if options.only else [*known]
        if unknown := [part for part in parts if part not in known]:
            parser.error(f"--only {unknown[0]}: expected some of {', '.join(known)}")
        if options.pairs < 1:
            parser.error(f"--pairs {options.pairs}: expected at least 1")
        chosen = [each for part in parts for each in known[part] if options.match in each.name]
        if not chosen:
            parser.error(f"--match {options.match}: no figure of {', '.join(parts)} has that")
        with opened(options.against, scratch) as trees:
            prepare(trees, parts)
            done = measure(chosen, trees, options.pairs, options.seed)
        record = document(chosen, done, options.against)
        options.out.mkdir(parents=True, exist_ok=True)
        file = options.out / f"{NAME}.json"
        measured = merged(file, record)
        text = json.dumps({"schema": SCHEMA, "measured": measured}, separators=(",", ":"))
        write_text(file, text + "\n")
        write_text(options.out / f"{NAME}.md", markdown(measured))
        print(markdown([record]), end="")
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 5
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clean up then, too
    sys.exit(main())
