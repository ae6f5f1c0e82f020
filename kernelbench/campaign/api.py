"""A sweep: read the campaign, say what it comes to, and have a pool run what is not done."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelbench.base.errors import ExitCode, KernelbenchError, UsageError, ended_early
from kernelbench.base.observer import Observer, OnProgress
from kernelbench.campaign.campaign_file import Campaign, OptionReader, read_campaign
from kernelbench.campaign.code_archive import CodeArchive, pack_code
from kernelbench.campaign.dask_pool import DaskPool, local_cluster, require_dask
from kernelbench.campaign.engine import (
    SWEEP_SCHEMA,
    Answers,
    Engine,
    EngineSettings,
    Eta,
    PieceFault,
    SweepReport,
)
from kernelbench.campaign.outcome_files import OutcomeFiles
from kernelbench.campaign.pieces import PieceMaker
from kernelbench.campaign.worker_pool import LocalPool, WorkerPool
from kernelbench.machine.devices import gpus
from kernelbench.machine.toolchain import cpu_count
from kernelbench.project.context import Context, parse_results
from kernelbench.runs.settings import at_least, require_results

#: How long pieces that nobody here may have wait for a worker: one that is being started again,
#: one that a batch system sends.
_PATIENCE_S = {"alone": 0.0, "local": 30.0, "cluster": 120.0}


@dataclass
class _Plan:
    """What a campaign comes to, counted and not kept."""

    pieces: int
    recorded: int
    answers: Answers
    left_out: dict[str, int]
    eta: Eta


def sweep(
    file: str | Path,
    *,
    options: OptionReader,
    scheduler: str | None = None,
    workers: int | None = None,
    results: str | Path | None = None,
    dry_run: bool = False,
    observer: Observer | None = None,
    on_fault: Callable[[PieceFault], None] | None = None,
) -> SweepReport:
    """Run what is not done of a campaign.

    Args:
        file: The campaign; see :mod:`kernelbench.campaign.campaign_file`.
        options: What the commands' options are.
        scheduler: Address of a Dask scheduler; a cluster of this machine if None.
        workers: Of this machine: one for each GPU, or for each core where there is none, if None;
            0 is this process, without Dask.
        results: Where records go; what the file says, or the project's, if None.
        dry_run: Only say what there is to do.
        observer: Told what happens; on_fault: what a worker did not do.

    Raises:
        UsageError: For a malformed file, and what does not exist.
        EnvironmentProblem: Where Dask or its scheduler is missing, or results cannot be written.
        Interrupted: After Ctrl-C. As of every error, ``partial`` is the report up to there.
    """
    if scheduler is not None and workers is not None:
        raise UsageError("--workers is of this machine's own cluster, --scheduler names another")
    at_least("workers", workers or 0, 0)
    campaign = read_campaign(Path(file), options)
    context = Context.find()
    folder = parse_results(results or campaign.results, context.project)
    archive = pack_code(context.project, folder)
    maker = PieceMaker(context, campaign, archive.code_sha)
    outcomes = OutcomeFiles(folder, campaign.name)
    began = time.monotonic()
    observer = observer or Observer()
    plan = _count(maker, outcomes, observer.progress)
    on_gpu = bool(gpus()) if campaign.gpu is None and scheduler is None else bool(campaign.gpu)
    number = _workers_here(workers, on_gpu)
    report = _report(campaign, plan, None, number, began)
    observer.planned(report)
    if dry_run or report.complete:
        return report
    if workers != 0:
        require_dask()
    require_results(folder)
    place = "cluster" if scheduler else "local" if number else "alone"
    # Several pieces share the cores of a machine.
    environment = {} if number == 0 else {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    settings = EngineSettings(campaign.limit_s, on_gpu, environment, _PATIENCE_S[place])
    with outcomes.alone(), _pool(scheduler, number, on_gpu, archive) as pool:
        engine = Engine(
            pool, outcomes, plan.eta, settings, observer.progress, on_fault or (lambda _fault: None)
        )
        try:
            engine.run(maker.pieces())
        except (KernelbenchError, KeyboardInterrupt) as error:
            found = _report(campaign, plan, engine, engine.most_workers, began, ended=False)
            raise ended_early(error, found) from error
        for name, why in pool.unfit().items():
            observer.warning(f"worker {name} was not used: {why}")
    return _report(campaign, plan, engine, engine.most_workers, began)


def exit_code_of(report: SweepReport) -> ExitCode:
    """What a script is told: that something is missing comes before that something is wrong."""
    if report.missing or report.not_run:
        return ExitCode.ENVIRONMENT
    wrong = report.wrong or report.mutants_missed
    return ExitCode.INCORRECT if wrong else ExitCode.PASS


def _count(maker: PieceMaker, outcomes: OutcomeFiles, tell: OnProgress) -> _Plan:
    """Go through all pieces once: what is wrong with the file is said before anything runs."""
    plan = _Plan(0, 0, Answers(), {}, Eta())
    for piece in maker.pieces():
        plan.pieces += 1
        if plan.pieces % 1000 == 0:
            tell(f"{plan.pieces:,} pieces")
        found = outcomes.find(piece.key)
        if found is None:
            plan.eta.left[piece.like] += 1
            continue
        plan.recorded += 1
        plan.eta.took(piece.like, found.seconds)
        plan.answers.add(piece, found.code)
    plan.left_out = maker.left_out
    return plan


def _workers_here(asked: int | None, on_gpu: bool) -> int:
    """How many workers a cluster of this machine has: a GPU has one."""
    there = len(gpus()) if on_gpu else cpu_count()
    if asked is None:
        return max(there, 1)
    if on_gpu and asked > there:
        raise UsageError(f"{asked} workers, and this machine has {there} GPUs", "one GPU has one")
    return asked


@contextlib.contextmanager
def _pool(
    scheduler: str | None, number: int, on_gpu: bool, archive: CodeArchive
) -> Iterator[WorkerPool]:
    with contextlib.ExitStack() as stack:
        pool: WorkerPool
        if scheduler is None and number == 0:
            pool = LocalPool(archive)
        else:
            # What CUDA calls the first GPUs that this process sees.
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            names = visible.split(",") if visible else [str(gpu.index) for gpu in gpus()]
            mine = names[:number] if on_gpu else []
            address = scheduler or stack.enter_context(local_cluster(number, mine))
            pool = DaskPool(address, archive)
        stack.callback(pool.close)
        yield pool


def _report(
    campaign: Campaign,
    plan: _Plan,
    engine: Engine | None,
    workers: int,
    began: float,
    ended: bool = True,
) -> SweepReport:
    left = sum(plan.eta.left.values())
    none_left = ended and not (engine.missing or engine.not_run) if engine else left == 0
    before, now = plan.answers, engine.answers if engine else Answers()
    return SweepReport(
        schema=SWEEP_SCHEMA,
        name=campaign.name,
        pieces=plan.pieces,
        recorded=plan.recorded,
        done=engine.done if engine else 0,
        left_out=plan.left_out,
        wrong=tuple(dict.fromkeys((*before.wrong, *now.wrong))),
        mutants_found=len({*before.found, *now.found}),
        mutants_missed=tuple(dict.fromkeys((*before.missed, *now.missed))),
        missing=tuple(engine.missing) if engine else (),
        not_run=engine.not_run if engine else 0,
        faults=tuple(engine.faults) if engine else (),
        workers=workers,
        seconds=round(time.monotonic() - began, 1),
        estimate_s=plan.eta.seconds_left(workers) if left else 0.0,
        complete=bool(none_left),
    )
