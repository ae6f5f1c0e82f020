"""The probes on a real GPU: what they report must agree with what is known another way."""

from __future__ import annotations

import json
import os

import pytest

pytestmark = pytest.mark.gpu

MIB = 1 << 20


@pytest.fixture(scope="module")
def gpu():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    torch.cuda.init()
    torch.zeros(1, device="cuda:0")
    return torch


@pytest.fixture(scope="module")
def probes(gpu):
    from kernelbench.measure.probes import load_probes

    loaded, reason = load_probes(0)
    assert loaded is not None, reason
    return loaded


def elapsed_us(torch, body, stream):
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream):
        start.record(stream)
        body()
        end.record(stream)
    stream.synchronize()
    return start.elapsed_time(end) * 1e3


def xor_words(torch, words):
    """XOR of all int32 words, by halving."""
    words = words.flatten()
    while words.numel() > 1:
        if words.numel() % 2:
            words = torch.cat([words, words.new_zeros(1)])
        words = words[0::2] ^ words[1::2]
    return int(words.item())


def test_device_facts(gpu, probes):
    properties = gpu.cuda.get_device_properties(0)
    assert probes.sms == properties.multi_processor_count
    assert probes.bulk == (properties.major >= 9)


def test_spin_ns_takes_at_least_that_long(gpu, probes):
    stream = gpu.cuda.Stream()
    probes.spin_ns(1000, stream.cuda_stream)
    stream.synchronize()
    for wanted_us in (100, 1000, 10_000):
        took = elapsed_us(
            gpu, lambda us=wanted_us: probes.spin_ns(us * 1000, stream.cuda_stream), stream
        )
        assert took >= wanted_us - 2


def test_spin_cycles_scales_with_cycles(gpu, probes):
    stream = gpu.cuda.Stream()

    def median(cycles):
        probes.spin_cycles(5_000_000, stream.cuda_stream)
        times = [
            elapsed_us(gpu, lambda: probes.spin_cycles(cycles, stream.cuda_stream), stream)
            for _ in range(9)
        ]
        return sorted(times)[4]

    short, long = median(200_000), median(2_200_000)
    mhz = 2_000_000 / (long - short)
    assert 100 < mhz < 3500


def test_stamps_agree_with_counted_cycles(gpu, probes):
    from kernelbench.measure.probes import ClockStamps

    stream = gpu.cuda.Stream()
    stamps = ClockStamps.create(gpu.device("cuda:0"))
    assert stamps is not None
    cycles = 20_000_000
    probes.spin_cycles(cycles, stream.cuda_stream)
    stamps.stamp(0, stream)
    took = elapsed_us(gpu, lambda: probes.spin_cycles(cycles, stream.cuda_stream), stream)
    stamps.stamp(1, stream)
    mhz = stamps.sm_mhz()
    assert mhz is not None
    assert mhz == pytest.approx(cycles / took, rel=0.02)
    written = (stamps._buffer[0, :, 1] != 0) & (stamps._buffer[1, :, 1] != 0)
    assert int(written.sum()) >= 0.9 * probes.sms


@pytest.mark.parametrize("nbytes", [16, 512, 16 * 1024, 3 * MIB + 48, 300 * MIB + 16 * 777])
@pytest.mark.parametrize("variant", ["vector", "bulk"])
def test_read_stream_reads_everything(gpu, probes, variant, nbytes):
    if variant == "bulk" and not probes.bulk:
        pytest.skip("no bulk copies before sm_90")
    stream = gpu.cuda.Stream()
    generator = gpu.Generator(device="cuda:0").manual_seed(nbytes)
    words = gpu.randint(
        -(2**31), 2**31 - 1, (nbytes // 4,), dtype=gpu.int32, device="cuda:0", generator=generator
    )
    checksum = gpu.zeros(1, dtype=gpu.int32, device="cuda:0")
    gpu.cuda.synchronize()
    probes.read_stream(
        words.data_ptr(), nbytes, checksum.data_ptr(), stream.cuda_stream, variant=variant
    )
    stream.synchronize()
    if variant == "bulk":
        chunk, sample = 16 * 1024 // 4, 512 // 4
        padded = gpu.zeros(-(-words.numel() // chunk) * chunk, dtype=gpu.int32, device="cuda:0")
        padded[: words.numel()] = words
        words = padded.view(-1, chunk)[:, :sample]
    assert int(checksum.item()) == xor_words(gpu, words)


def test_a_bulk_read_is_not_faster_than_the_memory(gpu, probes):
    from kernelbench.measure import speed_of_light

    if not probes.bulk:
        pytest.skip("no bulk copies before sm_90")
    stream = gpu.cuda.Stream()
    nbytes = 2048 * MIB
    words = gpu.zeros(nbytes // 4, dtype=gpu.int32, device="cuda:0")
    checksum = gpu.zeros(1, dtype=gpu.int32, device="cuda:0")
    gpu.cuda.synchronize()

    def read():
        probes.read_stream(words.data_ptr(), nbytes, checksum.data_ptr(), stream.cuda_stream)

    elapsed_us(gpu, read, stream)
    took = min(elapsed_us(gpu, read, stream) for _ in range(5))
    sheet = speed_of_light.datasheet(gpu.cuda.get_device_name(0))
    if sheet is None:
        pytest.skip("no datasheet figures for this device")
    rate = nbytes / (took * 1e-6)
    assert rate < sheet.dram_headroom * sheet.dram_bytes_per_s


def test_every_probe_can_be_captured(gpu, probes):
    stream = gpu.cuda.Stream()
    data = gpu.arange(4 * MIB, dtype=gpu.int32, device="cuda:0")
    checksum = gpu.zeros(1, dtype=gpu.int32, device="cuda:0")
    slots = gpu.zeros(probes.stamp_slots, 2, dtype=gpu.int64, device="cuda:0")
    gpu.cuda.synchronize()
    graph = gpu.cuda.CUDAGraph()
    with gpu.cuda.graph(graph, stream=stream):
        probes.clock_stamp(slots.data_ptr(), stream.cuda_stream)
        probes.spin_cycles(1000, stream.cuda_stream)
        probes.spin_ns(1000, stream.cuda_stream)
        probes.empty(stream.cuda_stream)
        for variant in ("vector", "bulk") if probes.bulk else ("vector",):
            probes.read_stream(
                data.data_ptr(),
                data.numel() * 4,
                checksum.data_ptr(),
                stream.cuda_stream,
                variant=variant,
            )
    assert int((slots != 0).sum()) == 0
    graph.replay()
    gpu.cuda.synchronize()
    assert int((slots[:, 1] != 0).sum()) >= 0.9 * probes.sms


def test_misaligned_read_is_refused(probes):
    with pytest.raises(ValueError, match="multiples of 16"):
        probes.read_stream(16, 24, 0, 0)


def test_persisting_l2(gpu):
    from kernelbench.measure import probes as module

    assert module.persisting_l2_limit() is not None
    assert module.reset_persisting_l2() is True


def test_nvml_clock_is_plausible(gpu):
    from kernelbench.machine.clocks import ClockSampler, other_processes

    with ClockSampler(0) as sampler:
        reading = sampler.read()
    assert reading.sm_mhz is not None
    assert 100 < reading.sm_mhz < 4000
    assert reading.temperature_c is None or 0 < reading.temperature_c < 120
    others = other_processes(0, {os.getpid()})
    assert others is None or others >= 0


def test_measured_ceilings_stay_under_the_datasheet(gpu):
    from kernelbench.base import schema
    from kernelbench.measure import ceilings_bench, speed_of_light

    measured = ceilings_bench.measure(0)
    assert (
        schema.decode(speed_of_light.Ceilings, json.loads(json.dumps(schema.encode(measured))))
        == measured
    )
    assert measured.source == "measured"
    assert measured.l2_bytes_per_s is None or measured.l2_bytes_per_s > measured.dram_bytes_per_s
    assert measured.empty_graph_us is not None
    assert 0 < measured.empty_graph_us < 50
    sheet = speed_of_light.datasheet(measured.device)
    if sheet is None:
        pytest.skip(f"no datasheet figures for {measured.device}")
    assert 0.85 * sheet.dram_bytes_per_s < measured.dram_bytes_per_s < sheet.dram_bytes_per_s
    assert {"fp16", "bf16", "fp8"} <= set(measured.flops)
    for precision, rate in measured.flops.items():
        assert 0.4 * sheet.flops[precision] < rate < sheet.flops_headroom * sheet.flops[precision]
