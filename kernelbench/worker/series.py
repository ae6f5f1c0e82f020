"""One series of repetitions in a worker: its inputs, and every metric that is taken of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from kernelbench.base.errors import KernelbenchError, MachineFault
from kernelbench.isolation.isolated_kernel import IsolatedKernel
from kernelbench.isolation.timing_supervisor import SupervisedSeries
from kernelbench.kinds.callables import describe_exception, with_untimed_setup
from kernelbench.machine.clocks import ClockSampler
from kernelbench.measure.gpu_call_time import call_time
from kernelbench.measure.gpu_device_time import device_time
from kernelbench.measure.gpu_energy import energy
from kernelbench.measure.gpu_inside import inside
from kernelbench.measure.gpu_timing import GpuTiming
from kernelbench.measure.kernel_activity import ProfilerError
from kernelbench.measure.results import TimedBlock, status_of
from kernelbench.measure.timing import (
    InputSet,
    Measurement,
    TimingFault,
    draw_input_sets,
    quiet_gc,
    time_on_cpu,
)
from kernelbench.project.problem import Case, Kernel, Work, mean_work
from kernelbench.records.metrics import Metric
from kernelbench.records.run_record import ResultStatus
from kernelbench.worker.jobs import CompareJob, RunJob, Timing
from kernelbench.worker.messages import (
    BlockTimed,
    MetricMeasured,
    Reporter,
    TimingFailed,
    WorkCounted,
)

ON_HOST = "its data are in host memory, which a GPU's timer does not see; --executor torch does"


@dataclass
class Series:
    """Everything that one series of repetitions needs, whatever the metric."""

    job: RunJob | CompareJob
    timing: Timing
    case: Case
    sets: Sequence[InputSet]
    work: Work
    report: Reporter
    _prepared: dict[str, GpuTiming] = field(default_factory=dict, init=False)

    @property
    def on_host(self) -> bool:
        """Whether a GPU is to be timed on data that it never sees: a graph of it would be empty."""
        inputs = self.sets[0].inputs
        tensors = [*inputs.operands, *inputs.outputs]
        return self.job.target.gpu is not None and not any(t.is_cuda for t in tensors)

    def call_once(self, kernels: Sequence[Kernel]) -> bool:
        """Call each kernel once, in this order: its code is loaded now. False after a fault."""
        for kernel in kernels:
            self.report.phase("first call", self.job.call_limit_s)
            try:
                with_untimed_setup(kernel)(self.sets[0].inputs.data)
                if self.job.target.gpu is not None:
                    torch.cuda.synchronize()
            except Exception as error:
                self._fault("fault", f"first call: raised {describe_exception(error)}")
                return False
        return True

    def prepare(self, kernels: Sequence[Kernel]) -> None:
        """Make what the first round of every metric needs on a GPU: it times nothing yet."""
        apart = any(isinstance(kernel, IsolatedKernel) for kernel in kernels)
        if self.job.target.gpu is not None and not apart:
            self.report.phase("preparing to time", self.job.call_limit_s, "machine")
            for metric in self.timing.metrics:
                self._prepared[metric] = self._gpu_timing()
            torch.cuda.synchronize()

    def _gpu_timing(self) -> GpuTiming:
        job, timing = self.job, self.timing
        return GpuTiming(
            torch.device(job.target.device), self.case, self.sets, timing.l2, job.seed,
            self.report.phase, job.call_limit_s, batch=timing.batch,
        )  # fmt: skip

    def _fault(self, status: ResultStatus, reason: str) -> None:
        self.report(TimingFailed(self.case.shape.name, status, reason))

    def measure(
        self, kernels: Sequence[Kernel], order: Sequence[Sequence[int]], round_index: int = 0
    ) -> bool:
        """Take and report every metric that the device has; False after a fault."""
        job, report = self.job, self.report
        entry = (job.arm if isinstance(job, RunJob) else job.cand).step.entry
        name = self.case.shape.name
        call_only: tuple[Metric, ...] = ("call",)
        for metric in self.timing.metrics if job.target.gpu is not None else call_only:

            def on_block(block: TimedBlock, metric: Metric = metric) -> None:
                report(BlockTimed(name, metric, block, round_index))

            try:
                with quiet_gc():
                    found = self._take(metric, kernels, order, on_block)
            except (TimingFault, ProfilerError) as error:
                self._fault("wrong" if isinstance(error, TimingFault) else "fault", str(error))
                return False
            except KernelbenchError as error:
                self._fault(status_of(error), str(error))
                return False
            except Exception as error:
                reason = f"while timed: raised {describe_exception(error, entry)}"
                self._fault("fault", reason)
                return False
            notes = tuple(found.notes)
            report(MetricMeasured(name, metric, found.method, notes, found.busy_s, round_index))
        return True

    def _take(
        self,
        metric: Metric,
        kernels: Sequence[Kernel],
        order: Sequence[Sequence[int]],
        on_block: Callable[[TimedBlock], None],
    ) -> Measurement:
        job, timing = self.job, self.timing
        if job.target.gpu is None:
            return time_on_cpu(
                [with_untimed_setup(kernel) for kernel in kernels],
                order,
                self.sets,
                self.case,
                seed=job.seed,
                budget_s=timing.budget_s,
                warmups=timing.warmups,
                announce=self.report.phase,
                call_limit_s=job.call_limit_s,
                on_block=on_block,
            )
        apart = [kernel for kernel in kernels if isinstance(kernel, IsolatedKernel)]
        with ClockSampler(job.target.gpu.index) as sampler:

            def clocks() -> tuple[float | None, tuple[str, ...]]:
                reading = sampler.read()
                return reading.sm_mhz, reading.slowed

            if metric == "energy" and (apart or job.target.gpu.mig):
                what = "a MIG slice" if job.target.gpu.mig else "a submission judged apart"
                raise MachineFault(f"no energy of {what}: NVML's counter is the board's")
            if metric == "inside" and apart:
                raise MachineFault("no time inside a graph of a submission judged apart")
            if apart:
                return SupervisedSeries(
                    apart, order, self.sets, self.case, metric, timing.l2, timing.call,
                    timing.warmups, timing.batch, job.seed, self.report.phase, job.call_limit_s,
                    on_block, clocks,
                ).run()  # fmt: skip
            gpu = self._prepared.pop(metric, None) or self._gpu_timing()
            gpu.clocks, gpu.on_block = clocks, on_block
            if metric == "device":
                return device_time(gpu, kernels, order, timing.warmups)
            if metric == "energy":
                return energy(gpu, kernels, timing.warmups, sampler.energy_mj)
            if metric == "inside":
                return inside(gpu, kernels, order, timing.warmups)
            return call_time(gpu, kernels, order, timing.warmups, timing.call)


def draw_series(job: RunJob | CompareJob, timing: Timing, case: Case, report: Reporter) -> Series:
    """Draw the input sets and report the work of one call, on average of them."""
    report.phase("timed inputs", 600, "reference")
    sets = draw_input_sets(case, job.seed, job.target.device)
    work = mean_work([case.problem.work(case.shape, each.inputs) for each in sets])
    report(WorkCounted(case.shape.name, work))
    return Series(job, timing, case, sets, work, report)
