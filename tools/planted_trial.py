"""How often ``ab`` finds a small slowdown that is really there: a delay planted on the GPU.

python tools/planted_trial.py m15 --shape qwen35 --out planted.json
python tools/planted_trial.py m15 --shape qwen35 --margin 0.2 --level 0.5 --sessions 3 --trials 40

One trial is what one ``ab`` of so many sessions judges: a round of each of so many processes, which
are prepared side by side and timed in turn, as those of ``ab``. A process has ten rounds. Verdicts
take the spread of sessions from this device's calibration in the results folder, if there is one.
With --level 0 the delay is none: then SLOWER and FASTER are false.
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

from kernelbench.base.seeds import derive
from kernelbench.compare.calibration_samples import Collector
from kernelbench.project.context import Context, parse_results
from kernelbench.records import calibration_record
from kernelbench.runs.plan import plan
from kernelbench.runs.settings import Measuring
from kernelbench.stats.blocks import BlockSamples
from kernelbench.stats.calibration import AASample, PlantedSample
from kernelbench.stats.inference import ALPHA, Verdict, estimate_change, family
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
    trials: list[list[BlockSamples]] = []
    real: list[float] = []
    with Launcher() as launcher:
        for batch in range(-(-asked.trials // ROUNDS)):
            if time.monotonic() - began > asked.seconds:
                break
            collector = Collector(
                launcher, chosen.step, chosen.lineage, shape, chosen.classes[0], chosen.target,
                settings.timing("device"), derive(asked.seed, "planted trial", batch),
                settings.timeout_s,
            )  # fmt: skip
            if batch == 0:
                first: list[AASample] = []
                collector.a_a(first, 1, 1)
                base_us = float(statistics.median(first[0].samples.base.ravel()))
            found: list[PlantedSample] = []
            level = asked.level / 100
            collector.planted(found, {level: ROUNDS * asked.sessions}, base_us, 0.0)
            for turn in range(ROUNDS):
                trials.append([found[s * ROUNDS + turn].samples for s in range(asked.sessions)])
            real += [each.planted for each in found]
            print(f"{len(trials)} trials, {time.monotonic() - began:.0f} s", flush=True)
    environment = collector.environment
    assert environment is not None
    spread = calibration_record.load_session_sd(
        folder, environment.device, shape.name, "device", "cold"
    )
    verdicts = [judged(samples, asked.margin / 100, spread, i) for i, samples in enumerate(trials)]
    report = {
        "step": asked.step,
        "shape": shape.name,
        "device": environment.device,
        "level": asked.level,
        "realized_percent": 100 * statistics.median(real) if real else None,
        "margin": asked.margin,
        "sessions": asked.sessions,
        "spread": None if spread is None else spread.sd,
        "spread_source": "" if spread is None else spread.source,
        "verdicts": Counter(each.label for each in verdicts),
        "trials": [
            {"label": v.label, "delta": v.estimate.delta, "margin": v.estimate.margin}
            for v in verdicts
        ],
        "seconds": time.monotonic() - began,
    }
    print(
        f"{asked.step} {shape.name}, {asked.level:+g} % asked ({report['realized_percent']:.3f} % "
        f"found), margin {asked.margin:g} %, {asked.sessions} sessions: {dict(report['verdicts'])} "
        f"of {len(trials)}, {report['seconds']:.0f} s"
    )
    if asked.out:
        asked.out.write_text(json.dumps(report, indent=1))
    return 0


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
    parser.add_argument("--out", type=Path, default=None, help="JSON with every trial")
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
