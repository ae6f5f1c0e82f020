"""How often ``ab`` finds a small slowdown that is really there: a delay planted on the GPU.

python tools/planted_trial.py m15 --shape qwen35 --out planted.json
python tools/planted_trial.py m15 --shape qwen35 --margin 0.2 --level 0.5 --sessions 3 --trials 40

One trial is what one ``ab`` of so many sessions judges: a round of each of so many processes, which
are prepared side by side and timed in turn, as those of ``ab``. A process has ten rounds. Verdicts
take the spread of sessions from this device's calibration in the results folder, if there is one.
With --level 0 the delay is none: then SLOWER and FASTER are false, and p is below 0.05 in one of
twenty. A call that was interrupted, or had too few --seconds, goes on where it was: --out keeps the
samples of every batch of ten trials.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from kernelbench.base.seeds import derive
from kernelbench.compare.calibration_samples import Collector
from kernelbench.project.context import Context, parse_results
from kernelbench.records import calibration_record
from kernelbench.runs.plan import plan
from kernelbench.runs.settings import Measuring
from kernelbench.stats.blocks import BlockSamples
from kernelbench.stats.defaults import ALPHA
from kernelbench.stats.estimate import estimate_change
from kernelbench.stats.inference import Verdict, family
from kernelbench.worker.launcher import Launcher

ROUNDS = 10


def main() -> int:
    """Collect, judge, and print how often each verdict came."""
    asked = _arguments()
    context = Context.find()
    chosen = plan(context, [asked.step], [asked.shape], "auto", [], 0, warn=print)[0]
    folder = parse_results(asked.results, context.project)
    settings = Measuring()
    shape = chosen.shapes[0]
    began = time.monotonic()
    done = _done_before(asked)
    with Launcher() as launcher:
        for batch in range(len(done), -(-asked.trials // ROUNDS)):
            if time.monotonic() - began > asked.seconds:
                break
            collector = Collector(
                launcher, chosen.step, chosen.lineage, shape, chosen.classes[0], chosen.target,
                settings.timing("device"), derive(asked.seed, "planted trial", batch),
                settings.timeout_s,
            )  # fmt: skip
            done.append(_batch(collector, asked))
            _keep(asked, done)
            print(f"{ROUNDS * len(done)} trials, {time.monotonic() - began:.0f} s", flush=True)
    if not done:
        raise SystemExit(f"no time for a batch of {ROUNDS} trials: give more --seconds")
    trials = [
        [_samples(each) for each in sessions] for batch in done for sessions in batch["trials"]
    ]
    real = [found for batch in done for found in batch["real"]]
    device = done[0]["device"]
    spread = calibration_record.load_session_sd(folder, device, shape.name, "device", "cold")
    verdicts = [judged(samples, asked.margin / 100, spread, i) for i, samples in enumerate(trials)]
    report = {
        "step": asked.step,
        "shape": shape.name,
        "device": device,
        "level": asked.level,
        "realized_percent": 100 * statistics.median(real) if real else None,
        "margin": asked.margin,
        "sessions": asked.sessions,
        "spread": None if spread is None else spread.sd,
        "spread_source": "" if spread is None else spread.source,
        "verdicts": Counter(each.label for each in verdicts),
        "below_alpha": sum(each.estimate.p < ALPHA for each in verdicts),
        "trials": [
            {
                "label": v.label,
                "delta": v.estimate.delta,
                "margin": v.estimate.margin,
                "p": v.estimate.p,
            }
            for v in verdicts
        ],
        "seconds": sum(batch["seconds"] for batch in done),
    }
    print(
        f"{asked.step} {shape.name}, {asked.level:+g} % asked ({report['realized_percent']:.3f} % "
        f"found), margin {asked.margin:g} %, {asked.sessions} sessions: {dict(report['verdicts'])} "
        f"of {len(trials)}, p < {ALPHA:g} in {report['below_alpha']}, {report['seconds']:.0f} s"
    )
    _keep(asked, done, report)
    return 0


def _batch(collector: Collector, asked: argparse.Namespace) -> dict[str, Any]:
    """Ten trials: rounds of as many processes as a trial has sessions."""
    began = time.monotonic()
    collector.measure_a_a(1, 1)
    base_us = float(statistics.median(collector.a_a[0].samples.base.ravel()))
    level = asked.level / 100
    collector.measure_planted({level: ROUNDS * asked.sessions}, base_us, 0.0)
    found = collector.planted
    assert collector.environment is not None
    return {
        "device": collector.environment.device,
        "trials": [
            [_plain(found[s * ROUNDS + turn].samples) for s in range(asked.sessions)]
            for turn in range(ROUNDS)
        ],
        "real": [each.planted for each in found],
        "seconds": time.monotonic() - began,
    }


def _plain(samples: BlockSamples) -> dict[str, Any]:
    return {
        "base": samples.base.round(3).tolist(),
        "cand": samples.cand.round(3).tolist(),
        "throttled": np.asarray(samples.throttled).tolist(),
    }


def _samples(plain: dict[str, Any]) -> BlockSamples:
    return BlockSamples(*(np.array(plain[name]) for name in ("base", "cand", "throttled")))


def _same(asked: argparse.Namespace) -> dict[str, Any]:
    """What the batches of one file have in common."""
    return {name: getattr(asked, name) for name in ("step", "shape", "level", "sessions", "seed")}


def _done_before(asked: argparse.Namespace) -> list[dict[str, Any]]:
    if asked.out is None or not asked.out.is_file():
        return []
    kept = json.loads(asked.out.read_text())
    if kept["asked"] != _same(asked):
        raise SystemExit(f"{asked.out} is of {kept['asked']}: name another file with --out")
    return list(kept["batches"])


def _keep(
    asked: argparse.Namespace, done: list[dict[str, Any]], report: dict[str, Any] | None = None
) -> None:
    if asked.out is not None:
        kept = {"asked": _same(asked), "report": report, "batches": done}
        new = asked.out.with_suffix(".new")
        new.write_text(json.dumps(kept))
        new.replace(asked.out)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How often ab finds a planted slowdown.")
    parser.add_argument("step")
    parser.add_argument("--shape", required=True)
    parser.add_argument("--margin", type=float, default=0.2, help="per cent")
    parser.add_argument("--level", type=float, default=0.5, help="planted slowdown, per cent")
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=3600.0, help="then no batch begins")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", default=None)
    parser.add_argument("--out", type=Path, default=None, help="JSON, which a later call goes on")
    return parser.parse_args()


def judged(samples: list[BlockSamples], margin: float, spread: Any, index: int) -> Verdict:
    """The verdict of an ``ab`` with these sessions."""
    estimate = estimate_change(
        samples,
        margin=margin,
        alpha=ALPHA,
        session_sd=spread.sd if spread else None,
        session_df=spread.sessions - 1 if spread else None,
        session_total=spread.total_variance if spread else None,
        seed=index,
    )
    return family([estimate])[0]


if __name__ == "__main__":
    sys.exit(main())
