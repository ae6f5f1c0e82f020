"""Logs of compute-sanitizer: findings, places, counts, the tool's own failures."""

from __future__ import annotations

import pytest

from kernelbench.inspection.sanitizer_log import (
    SanitizerFinding,
    SanitizerFrame,
    explained,
    read_sanitizer_log,
)

OUT_OF_BOUNDS = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ atomic of size 4 bytes
=========     at kb::ptx::red_add+0xb0 in red.inl:39
=========     by thread (3,0,0) in block (0,0,0)
=========     Address 0x10000000000 is out of bounds
=========     and is 137,179 bytes after the nearest allocation at 0x7cc43a800000 of size 4 bytes
=========         Device Frame: kb::step::count::count_routes+0x30 in count.cuh:20
=========
========= Invalid __global__ atomic of size 4 bytes
=========     at kb::ptx::red_add+0xb0 in red.inl:39
=========     by thread (4,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 2 errors
"""

RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at void scale<128>(int *)+0x90 in /a/b.cu:41
=========     and Read access at void scale<128>(int *)+0x100 in /a/b.cu:51 [508 hazards]
=========
========= Warning: Race reported between Write access at sum(int *)+0x90
=========     and Write access at sum(int *)+0x90 [4 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""

HAZARD = """\
========= COMPUTE-SANITIZER
========= Warning: (Warp Level Programming) Potential RAW hazard detected at __shared__ 0x8c in block (0,0,0) :
=========     Write Thread (35,0,0) at sum(int *, int *)+0x90 in warp_error.cu:44
=========     Read Thread (32,0,0) at sum(int *, int *)+0x120 in warp_error.cu:56
=========     Current Value : 35
=========
========= Warning: Detected overflow of tracked cuda::barrier structures. Results might be incorrect. Try using --num-cuda-barriers to fix the issue
========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)
"""  # noqa: E501 (lines of the tool)

BARRIER = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block.
=========     at [clone work(int *, int *)] outline()+0x11f0 in test.cu:42
=========     by thread (32,0,0) in block (0,0,0)
=========         Device Frame: work(int *, int *)+0xe40 in test.cu:60
=========
========= ERROR SUMMARY: 1 error
"""


def test_memory_errors_with_the_kernel_below_an_inlined_function() -> None:
    log = read_sanitizer_log(OUT_OF_BOUNDS)
    assert (log.count, log.failures, log.notes) == (2, (), ())
    first, second = log.findings
    assert first.text == "Invalid __global__ atomic of size 4 bytes"
    assert first.severity == "error"
    assert first.frames == (
        SanitizerFrame("kb::ptx::red_add", "red.inl", 39),
        SanitizerFrame("kb::step::count::count_routes", "count.cuh", 20),
    )
    assert first.kernel == "kb::step::count::count_routes"
    assert "Address 0x10000000000 is out of bounds" in first.details
    assert len(first.accesses) == 1
    assert first.places({"count.cuh"}) == (first.frames[1],)
    assert first.places(set()) == (first.frames[0],)
    assert second.places({"count.cuh"}) == (SanitizerFrame("kb::ptx::red_add", "red.inl", 39),)


def test_races_with_both_places_and_severities() -> None:
    log = read_sanitizer_log(RACE)
    assert log.count == 2
    error, warning = log.findings
    assert error.text == "Race reported between Write access and Read access"
    assert error.frames == (
        SanitizerFrame("scale", "b.cu", 41),
        SanitizerFrame("scale", "b.cu", 51),
    )
    assert (error.severity, warning.severity) == ("error", "warning")
    assert warning.frames == (SanitizerFrame("sum", "", 0), SanitizerFrame("sum", "", 0))
    assert len(error.accesses) == 2
    assert error.places(set()) == error.frames
    assert warning.places(set()) == ()
    assert warning.kernel == "sum"


def test_a_warning_of_the_tool_is_a_note_and_one_of_a_hazard_is_not() -> None:
    log = read_sanitizer_log(HAZARD)
    (finding,) = log.findings
    assert finding.text == "(Warp Level Programming) Potential RAW hazard detected"
    assert [frame.line for frame in finding.frames] == [44, 56]
    (note,) = log.notes
    assert note.startswith("Detected overflow of tracked cuda::barrier structures")


def test_barrier_errors_in_an_outlined_clone() -> None:
    (finding,) = read_sanitizer_log(BARRIER).findings
    assert finding.text == "Barrier error detected. Divergent thread(s) in block."
    assert finding.frames[0].function == "outline"
    assert finding.kernel == "work"


def test_nothing_found_and_nothing_known_differ() -> None:
    assert (
        read_sanitizer_log("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n").count
        == 0
    )
    assert read_sanitizer_log("========= COMPUTE-SANITIZER\n").count is None
    assert read_sanitizer_log("").count is None


def test_errors_that_were_not_printed_are_counted() -> None:
    text = OUT_OF_BOUNDS.replace(
        "ERROR SUMMARY: 2 errors",
        "ERROR SUMMARY: 5 errors were not printed. Use --print-limit option to adjust the number "
        "of printed errors\n========= ERROR SUMMARY: 7 errors",
    )
    log = read_sanitizer_log(text)
    assert log.count == 7
    assert len(log.findings) == 2
    assert log.notes[0].startswith("ERROR SUMMARY: 5 errors were not printed")


@pytest.mark.parametrize(
    "line",
    [
        "Error: Device not supported. Please refer to the documentation.",
        "Error: Target application terminated before first instrumented API call",
        "Internal Sanitizer Error: The Sanitizer encountered an error while launching k.",
    ],
)
def test_the_tools_own_failures_are_no_findings(line: str) -> None:
    log = read_sanitizer_log(f"========= COMPUTE-SANITIZER\n========= {line}\n")
    assert log.findings == ()
    assert len(log.failures) == 1


def test_a_log_of_a_process_that_did_not_get_far() -> None:
    log = read_sanitizer_log(
        "========= COMPUTE-SANITIZER\n"
        "========= Error: process didn't terminate successfully\n"
        "=========     The application may have hit an error when dereferencing Unified Memory.\n"
        "========= Error: Target application terminated before first instrumented API call\n"
        "========= Tracking kernels launched by child processes requires the --target-processes "
        "all option.\n"
    )
    assert (log.count, log.findings) == (None, ())
    assert log.failures == ("Target application terminated before first instrumented API call",)
    assert len(log.notes) == 1


def race(function: str) -> SanitizerFinding:
    access = (SanitizerFrame(function, "a.inl", 1), SanitizerFrame("kb::step::gemm", "gemm.cuh", 2))
    return SanitizerFinding(
        "Race reported between Write access", "error", (access,), "kb::step::gemm", ()
    )


@pytest.mark.parametrize(
    ("function", "version", "known"),
    [
        ("kb::ptx::cp_async_bulk_tensor_2d_shared_global", (2025, 3, 1, 0), True),
        ("kb::ptx::cp_async_bulk_tensor_2d_shared_global", (2026, 3, 0, 0), False),
        ("kb::ptx::wgmma_mma_async", (2025, 4, 0, 0), True),
        ("kb::ptx::wgmma_mma_async", (2026, 1, 0, 0), False),
        ("kb::ptx::st_shared", (2025, 3, 1, 0), False),
    ],
)
def test_only_known_causes_are_explained(
    function: str, version: tuple[int, ...], known: bool
) -> None:
    assert bool(explained("racecheck", version, race(function)).explanation) is known


def test_an_explanation_is_of_one_tool() -> None:
    finding = race("kb::ptx::cp_async_bulk_shared_global")
    assert explained("memcheck", (2025, 3), finding) == finding
