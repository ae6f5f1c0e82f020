"""From collected samples to verdicts, and from verdicts to the ledger."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelbench.compare import comparer
from kernelbench.compare.collected import Collected
from kernelbench.measure import speed_of_light
from kernelbench.project.building_blocks import source_sha
from kernelbench.project.registry import Step
from kernelbench.records import ledger, run_record
from kernelbench.stats.inference import Verdict, family
from kernelbench.worker.jobs import Timing


@dataclass(frozen=True)
class ComparisonLine:
    """One line of a comparison: a shape and a metric; ``sol_us`` is the speed of light."""

    collected: Collected
    metric: str
    verdict: Verdict
    sol_us: float | None


def judge(
    everything: Sequence[Collected],
    device: str,
    folder: Path,
    timing: Timing,
    alpha: float,
    margin: float,
    seed: int,
) -> list[ComparisonLine]:
    """One line per shape and metric; all of them are one family."""
    pairs = [(collected, m) for collected in everything for m in timing.metrics]
    estimates = [
        comparer.estimate(
            collected,
            m,
            results=folder,
            device=device,
            margin=margin,
            alpha=alpha,
            timing=timing,
            seed=seed,
        )
        for collected, m in pairs
    ]
    ceilings = speed_of_light.datasheet(device)
    lines = []
    for (collected, m), verdict in zip(pairs, family(estimates), strict=True):
        sol = None
        if ceilings is not None and collected.work is not None and collected.work.bytes_total:
            sol = speed_of_light.speed_of_light(collected.work, ceilings, timing.l2).us
        lines.append(ComparisonLine(collected, m, verdict, sol))
    return lines


def append_to_ledger(
    folder: Path,
    lines: Sequence[ComparisonLine],
    device: str,
    base: Step,
    cand: Step,
    *,
    command: str,
    why: str,
    timing: Timing,
    sessions: int,
    seed: int,
) -> str:
    """Keep raw samples and add every line to the ledger; returns the identifier of its entries.

    Raises:
        EnvironmentProblem: If one of the files cannot be written.
    """
    identifier = run_record.new_id()
    device_folder = folder / run_record.device_slug(device) / "ab"
    samples = device_folder / f"{identifier}.samples.json.gz"
    unique = {id(line.collected): line.collected for line in lines}.values()
    run_record.write_samples(samples, [{"shape": c.shape.name, "sessions": c.raw} for c in unique])
    created = run_record.now_iso()
    entries = []
    for line in lines:
        e = line.verdict.estimate
        entries.append(
            ledger.LedgerEntry(
                schema=ledger.SCHEMA,
                id=identifier,
                created=created,
                device=device,
                command=command,
                why=why,
                base=ledger.ArmRecord(base.name, source_sha(base)),
                cand=ledger.ArmRecord(cand.name, source_sha(cand)),
                shape=line.collected.shape.name,
                metric=line.metric,
                method=line.collected.methods[line.metric],
                verdict=line.verdict.label,
                reason=line.verdict.reason,
                base_us=e.base_us,
                cand_us=e.cand_us,
                change=e.change,
                ci=e.change_ci,
                p_holm=line.verdict.p_holm,
                figures=_figures(line),
                protocol={
                    "seed": seed,
                    "reps": timing.reps,
                    "warmups": timing.warmups,
                    "l2": timing.l2,
                    "batch": timing.batch,
                    "sessions": sessions,
                }
                | _seconds(line.collected),
                samples_file=samples.relative_to(folder).as_posix(),
            )
        )
    ledger.append(folder, entries)
    return identifier


def _seconds(collected: Collected) -> dict[str, float]:
    """Median seconds of a session, which ``ab --power`` tells beforehand of later ones."""
    if not collected.session_s:
        return {}
    return {"session_s": round(statistics.median(collected.session_s), 2)}


def _figures(line: ComparisonLine) -> dict[str, Any]:
    """What a verdict rests on, by name, as the ledger keeps it."""
    e = line.verdict.estimate
    return {
        "p": e.p,
        "p_permutation": e.p_perm,
        "welch_p": e.welch.p,
        "welch_t": e.welch.t,
        "welch_df": e.welch.df,
        "rho1": e.rho1,
        "ess": e.ess,
        "s_d": e.s_d,
        "mde": e.mde,
        "margin": e.margin,
        "margin_source": e.margin_source,
        "blocks": e.blocks,
        "dropped": e.dropped,
        "reps": e.reps,
        "sm_mhz": line.collected.sm_mhz(line.metric),
        "sol_us": line.sol_us,
    }
