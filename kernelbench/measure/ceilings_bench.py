"""Measure a GPU's ceilings: DRAM and L2 read bandwidth, dense matrix rates, launch overhead.

Every figure is the median over repetitions between CUDA events on one stream. Reads are
``read_stream`` of ``probes.py``, or ``torch.sum`` where the probes cannot be built. Matrices hold
random values: a chip draws less power on zeros and then runs faster than it does on data.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from typing import Any

import torch

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.machine import clocks
from kernelbench.measure import probes
from kernelbench.measure.speed_of_light import MIB, Ceilings, Reading
from kernelbench.measure.timing import Flush
from kernelbench.records import run_record
from kernelbench.records.run_record import L2Mode, ReadFloor

_READ_BYTES = (256 * MIB, 1024 * MIB, 4096 * MIB)
_READ_REPS = 15
_L2_REPS = 30
_L2_READS_PER_GRAPH = 20
_L2_MIN_RATIO = 1.25
_MATMUL_SIZES = (8192, 4096)
_MATMUL_REPS = 15
_MATMULS_PER_REP = 5
_EMPTY_REPS = 200
_FLOOR_REPS = 100
_LEAD_S = 100e-6
#: Scaled matrix products of torch need compute capability 8.9.
_FP8_CAPABILITY = (8, 9)

Body = Callable[[], object]

# torch's constructors carry no types.
_new_stream: Callable[[torch.device], torch.cuda.Stream] = torch.cuda.Stream


def _new_event() -> torch.cuda.Event:
    make: Callable[..., torch.cuda.Event] = torch.cuda.Event
    return make(enable_timing=True)


class _Bench:
    """One GPU, its stream, and what was read so far."""

    def __init__(self, device_index: int) -> None:
        if not torch.cuda.is_available() or device_index >= torch.cuda.device_count():
            raise EnvironmentProblem(
                f"no GPU {device_index} to measure", "`kernelbench doctor` shows what is missing"
            )
        self.device = torch.device("cuda", device_index)
        torch.cuda.set_device(self.device)
        properties: Any = torch.cuda.get_device_properties(self.device)
        self.name = str(properties.name)
        self.capability = (int(properties.major), int(properties.minor))
        self.l2_bytes = int(properties.L2_cache_size)
        self.stream = _new_stream(self.device)
        self.probes, self.reason = probes.load_probes(device_index)
        self.flush = Flush(self.device)
        self.checksum = torch.zeros(1, dtype=torch.int32, device=self.device)
        self.readings: list[Reading] = []
        torch.cuda.synchronize(self.device)

    def lead(self) -> None:
        """Keep the GPU busy while the host queues what is timed."""
        probes.spin(_LEAD_S, self.stream)

    def time(
        self, what: str, size: int, body: Body, before: Body, reps: int, per_rep: int = 1
    ) -> Reading:
        """Time ``body`` behind ``before``; a repetition does ``per_rep`` operations."""
        samples = []
        with torch.cuda.stream(self.stream):
            for _ in range(2):
                body()
            self.stream.synchronize()
            for _ in range(reps):
                start, end = _new_event(), _new_event()
                before()
                start.record(self.stream)
                body()
                end.record(self.stream)
                self.stream.synchronize()
                samples.append(start.elapsed_time(end) * 1e3 / per_rep)
        return Reading(what, size, statistics.median(samples), min(samples), reps)

    def captured(self, body: Body) -> torch.cuda.CUDAGraph:
        """A graph of what ``body`` enqueues."""
        with torch.cuda.stream(self.stream):
            body()
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            body()
        return graph


def measure(device_index: int) -> Ceilings:
    """The ceilings of a GPU, in some ten seconds and up to 9 GB; or EnvironmentProblem."""
    bench = _Bench(device_index)
    notes: list[str] = []
    if bench.probes is None:
        notes.append(f"reads with torch.sum, a lower figure than the floor: {bench.reason}")
    dram = _measure_dram(bench)
    l2 = _measure_l2(bench)
    flops: dict[str, float] = {}
    slowed: set[str] = set()
    for precision, product in _products(bench, notes).items():
        readings = [_measure_matmul(bench, precision, n, product) for n in _MATMUL_SIZES]
        flops[precision] = max(2.0 * r.size**3 / (r.median_us * 1e-6) for r in readings)
        slowed |= _slowed(device_index)
    if slowed:
        notes.append("the clock was slowed while measuring: " + ", ".join(sorted(slowed)))
    empty = bench.captured(lambda: _empty(bench))
    overhead = bench.time("empty-graph", 0, empty.replay, bench.lead, _EMPTY_REPS)
    bench.readings.append(overhead)
    return Ceilings(
        device=bench.name,
        source="measured",
        dram_bytes_per_s=dram,
        l2_bytes=bench.l2_bytes,
        flops=flops,
        l2_bytes_per_s=l2,
        notes=tuple(notes),
        measured=run_record.now_iso(),
        command=f"kernelbench roofline --measure --device {device_index}",
        empty_graph_us=overhead.median_us,
        readings=tuple(bench.readings),
    )


def _empty(bench: _Bench) -> None:
    if bench.probes is not None:
        bench.probes.empty(bench.stream.cuda_stream)
    else:
        bench.checksum.zero_()


def _slowed(device_index: int) -> set[str]:
    try:
        with clocks.ClockSampler(device_index) as sampler:
            return set(sampler.read().slowed)
    except EnvironmentProblem:
        return set()


def _read(bench: _Bench, data: torch.Tensor, variant: probes.ReadVariant = "auto") -> None:
    if bench.probes is None:
        torch.sum(data)
        return
    bench.probes.read_stream(
        data.data_ptr(), data.numel() * data.element_size(), bench.checksum.data_ptr(),
        bench.stream.cuda_stream, variant,
    )  # fmt: skip


def _measure_dram(bench: _Bench) -> float:
    """Best rate over sizes that are many times the L2, each read once from cold."""
    free, _ = torch.cuda.mem_get_info(bench.device)
    rates: list[float] = []
    for size in _READ_BYTES:
        if rates and size > free // 2:
            continue
        data = torch.ones(size // 4, dtype=torch.int32, device=bench.device)
        torch.cuda.synchronize(bench.device)
        body = functools.partial(_read, bench, data)
        reading = bench.time("read", size, body, bench.flush, _READ_REPS)
        bench.readings.append(reading)
        rates.append(size / (reading.median_us * 1e-6))
        del data, body
    return max(rates)


def read_floor(device_index: int, nbytes: int, l2: L2Mode) -> ReadFloor:
    """The time to read ``nbytes`` (rounded up to 16) once, by graph replay as steps are timed.

    Args:
        device_index: CUDA ordinal.
        nbytes: How many bytes.
        l2: ``cold`` or ``warm``.

    Raises:
        EnvironmentProblem: If there is no such GPU, or a probe fails on it.
    """
    bench = _Bench(device_index)
    size = -(-nbytes // 16) * 16
    data = torch.ones(size // 4, dtype=torch.int32, device=bench.device)
    torch.cuda.synchronize(bench.device)
    graph = bench.captured(functools.partial(_read, bench, data))

    def before() -> None:
        bench.lead()
        if l2 == "cold":
            bench.flush()

    reading = bench.time("read", size, graph.replay, before, _FLOOR_REPS)
    method = "torch.sum"
    if bench.probes is not None:
        method = "bulk copies" if bench.probes.bulk else "vector loads"
    return ReadFloor(size, reading.median_us, reading.reps, method)


def _measure_l2(bench: _Bench) -> float | None:
    """L2 read rate from two resident sizes: the difference is free of launch overhead."""
    if bench.probes is None or bench.l2_bytes == 0:
        return None
    variants: tuple[probes.ReadVariant, ...] = ("vector", "bulk")
    rates = []
    for variant in variants if bench.probes.bulk else variants[:1]:
        pair = []
        for fraction in (8, 3):
            size = bench.l2_bytes // fraction // 4096 * 4096
            data = torch.ones(size // 4, dtype=torch.int32, device=bench.device)
            torch.cuda.synchronize(bench.device)

            def reads(data: torch.Tensor = data, variant: probes.ReadVariant = variant) -> None:
                for _ in range(_L2_READS_PER_GRAPH):
                    _read(bench, data, variant)

            graph = bench.captured(reads)
            pair.append(
                bench.time("l2-read", size, graph.replay, bench.lead, _L2_REPS, _L2_READS_PER_GRAPH)
            )
        bench.readings += pair
        small, large = pair
        # Where launches dominate both times, their difference says nothing about bytes.
        if large.median_us > _L2_MIN_RATIO * small.median_us:
            seconds = (large.median_us - small.median_us) * 1e-6
            rates.append((large.size - small.size) / seconds)
    return max(rates, default=None)


def _measure_matmul(
    bench: _Bench, precision: str, n: int, product: Callable[[int], Body]
) -> Reading:
    multiply = product(n)

    def several() -> None:
        for _ in range(_MATMULS_PER_REP):
            multiply()

    torch.cuda.synchronize(bench.device)
    reading = bench.time(
        f"matmul-{precision}", n, several, bench.lead, _MATMUL_REPS, _MATMULS_PER_REP
    )
    bench.readings.append(reading)
    return reading


def _products(bench: _Bench, notes: list[str]) -> dict[str, Callable[[int], Body]]:
    """Makers of n×n×n products by precision; formats that torch cannot multiply here are noted."""
    makers: dict[str, Callable[[int], Body]] = {
        "fp16": lambda n: _dense(bench, n, torch.float16),
        "bf16": lambda n: _dense(bench, n, torch.bfloat16),
    }
    scaled = {"fp8": (_FP8_CAPABILITY, _fp8), "fp4": ((10, 0), _fp4)}
    for precision, (capability, maker) in scaled.items():
        if bench.capability < capability:
            continue
        try:
            with torch.cuda.stream(bench.stream):
                maker(bench, 256)()
            bench.stream.synchronize()
        except (RuntimeError, AttributeError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())[:120]
            notes.append(f"{precision} not measured: torch cannot multiply it here ({reason})")
            continue
        makers[precision] = functools.partial(maker, bench)
    return makers


def _dense(bench: _Bench, n: int, dtype: torch.dtype) -> Body:
    a = torch.randn(n, n, dtype=dtype, device=bench.device)
    b = torch.randn(n, n, dtype=dtype, device=bench.device)
    c = torch.empty(n, n, dtype=dtype, device=bench.device)
    return lambda: torch.matmul(a, b, out=c)


def _fp8(bench: _Bench, n: int) -> Body:
    a, b = (torch.randn(n, n, device=bench.device).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device=bench.device)
    multiply: Any = torch._scaled_mm
    return lambda: multiply(
        a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
    )


def _fp4(bench: _Bench, n: int) -> Body:
    # Every byte is two valid e2m1 codes; scales of 1, one per 16 values, in the blocked layout
    # (rows padded to 128, groups of scales to 4), which does not matter when all are equal.
    def codes() -> torch.Tensor:
        raw = torch.randint(0, 256, (n, n // 2), dtype=torch.uint8, device=bench.device)
        return raw.view(torch.float4_e2m1fn_x2)

    a, b = codes(), codes()
    count = -(-n // 128) * 128 * (-(-(n // 16) // 4) * 4)
    scales = torch.ones(count, device=bench.device).to(torch.float8_e4m3fn)
    multiply: Any = torch._scaled_mm
    return lambda: multiply(a, b.t(), scale_a=scales, scale_b=scales, out_dtype=torch.bfloat16)
