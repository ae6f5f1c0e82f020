"""``kernelbench inspect``: one table a step, and one line where something is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from kernelbench.base import schema
from kernelbench.base.errors import ExitCode
from kernelbench.build import compiler
from kernelbench.cli import invoke as run
from kernelbench.inspection import resources

needs_nvcc = pytest.mark.skipif(compiler.nvcc() is None, reason="no nvcc: nothing can be compiled")
needs_host = pytest.mark.skipif(compiler.host_compiler() is None, reason="no C++ compiler")

STEP = """\
name = "{name}"
title = "{name}"
technique = "none"
hypothesis = "none"
arch = "{arch}"
status = "{status}"
"""

DESCRIBED = """
#include "entry.cuh"
KB_EXPORT void kb_describe(kb::Description* out) {
  *out = {.stages = 3, .threads = 128, .cluster = 2, .shared_bytes = 40000, .tmem_columns = 256};
}
"""

TWO_KERNELS = """
KB_GLOBAL void KB_LAUNCH_BOUNDS(128, 1) first(float* p) { p[0] = 1; }
KB_GLOBAL void KB_LAUNCH_BOUNDS(256, 1) second(float* p) { p[0] = 2; }
"""

# Sixty-four values are alive at a time, and a thread gets thirty-two registers.
SPILLS = """
KB_GLOBAL void KB_LAUNCH_BOUNDS(1024, 2) spiller(float* p, int n) {
  float v[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) v[i] = p[i * n];
#pragma unroll
  for (int i = 0; i < 64; ++i) v[i] = v[(i + 7) % 64] * v[(i * 5 + 3) % 64] + v[i];
#pragma unroll
  for (int i = 0; i < 64; ++i) p[i * n] = v[i];
}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lineage beside this checkout's building blocks; ``write`` adds steps."""
    (tmp_path / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["tiny"]\n')
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "lineage.toml").write_text(
        'name = "tiny"\ntitle = "t"\nproblem = "kernelbench.problems.group_gemm:PROBLEM"\n'
    )
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "common").symlink_to(ROOT / "kernels" / "common")
    monkeypatch.setenv("KERNELBENCH_ROOT", str(tmp_path))
    return tmp_path


def write(project: Path, name: str, source: str, arch: str = "sm_100a", extra: str = "") -> None:
    folder = project / "tiny" / name
    folder.mkdir()
    (folder / "step.toml").write_text(STEP.format(name=name, arch=arch, status="works") + extra)
    (folder / "launch.cu").write_text(source)


def rows_of(text: str) -> dict[str, list[str]]:
    """The cells of a table's rows, by label; cells are two spaces or more apart."""
    cells = [[cell for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in cells if row}


@needs_nvcc
@needs_host
def test_a_step_of_the_repository(in_checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", "v01"]) == ExitCode.PASS
    text = capsys.readouterr().out
    assert text.startswith("v01  One kernel for all groups · nvcc ")
    rows = rows_of(text)
    assert rows["kernel"] == ["kb::step::group_gemm"] * 2
    assert rows["tile"] == ["128×64×256"] * 2
    assert rows["spill stores, loads"] == ["0 B, 0 B"] * 2
    assert rows["CTAs per SM"][0] == "1, by shared memory"
    assert "sm_90a (soft)" in text
    assert run(["inspect", "v01", "--arch", "sm_100a", "--json", "-"]) == ExitCode.PASS
    record = schema.decode(resources.InspectRecord, json.loads(capsys.readouterr().out))
    (step,) = record.steps
    (made,) = step.builds
    assert (step.step, made.arch, made.soft) == ("v01", "sm_100a", False)
    assert str(made.code[0].registers) == rows["registers"][0]


@needs_nvcc
@needs_host
def test_several_kernels(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, "x", DESCRIBED + TWO_KERNELS, arch="sm_90a")
    assert run(["inspect", "x"]) == ExitCode.PASS
    text = capsys.readouterr().out
    rows = rows_of(text)
    order = ["first", "second"] if rows["kernel"][0].startswith("first") else ["second", "first"]
    assert rows["kernel"] == order
    by_kernel = dict(
        zip(order, zip(rows["threads"], rows["CTAs per SM"], strict=True), strict=True)
    )
    # The constants are those of the kernel that is launched with as many threads.
    assert by_kernel["first"] == ("128", "5, by shared memory")
    assert by_kernel["second"] == ("256", "?")
    assert rows["tile"] == ["–", "–"]
    assert rows["stages"] == ["3", "3"]
    assert "\n  ?: kb_describe tells of first only; " in text


@needs_nvcc
@needs_host
@pytest.mark.parametrize(
    ("kernels", "note"),
    [
        (TWO_KERNELS.replace("256", "128"), "several or none have its number of threads"),
        (TWO_KERNELS.partition("KB_GLOBAL void KB_LAUNCH_BOUNDS(256")[0], ""),
    ],
)
def test_what_is_not_described_is_explained(
    project: Path, capsys: pytest.CaptureFixture[str], kernels: str, note: str
) -> None:
    write(project, "x", DESCRIBED + kernels, arch="sm_90a")
    assert run(["inspect", "x"]) == ExitCode.PASS
    text = capsys.readouterr().out
    assert ("?" in text) == bool(note)
    assert note in text


@needs_nvcc
@needs_host
def test_spills_are_listed_with_their_allowance(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    allowance = '[[allowance]]\nwhat = "spill"\nreason = "On purpose."\n'
    write(project, "x", DESCRIBED + SPILLS, extra=allowance)
    assert run(["inspect", "x", "--arch", "sm_100a"]) == ExitCode.PASS
    text = capsys.readouterr().out
    stored = int(rows_of(text)["spill stores, loads"][0].split(" B")[0])
    assert stored > 0
    assert (
        f"Registers are spilled to local memory in function '_Z7spillerPfi', {stored} bytes" in text
    )
    assert "spill allowed: On purpose." in text


@needs_host
def test_without_nvcc(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "nvcc", lambda: None)
    write(project, "x", DESCRIBED)
    assert run(["inspect", "x"]) == ExitCode.ENVIRONMENT
    captured = capsys.readouterr()
    assert rows_of(captured.out)["stages"] == ["3"]
    assert captured.err.startswith("kernelbench: no nvcc on PATH")
    assert captured.err.count("\n") == 1


@needs_nvcc
@needs_host
def test_one_that_does_not_compile(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, "bad", DESCRIBED + "KB_GLOBAL void k() { nonsense; }\n")
    write(project, "good", DESCRIBED + TWO_KERNELS)
    assert run(["inspect", "tiny", "--arch", "sm_100a"]) == ExitCode.ENVIRONMENT
    captured = capsys.readouterr()
    assert "good  good · nvcc" in captured.out
    assert 'identifier "nonsense" is undefined' in captured.err
    assert captured.err.count("kernelbench: ") == 1


@needs_nvcc
@needs_host
def test_nothing_but_the_error_of_one_that_compiles_nowhere(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project, "bad", DESCRIBED + 'static_assert(sizeof(int) > 64, "too large");\n')
    assert run(["inspect", "bad"]) == ExitCode.ENVIRONMENT
    captured = capsys.readouterr()
    assert captured.out == ""
    # A slow compiler has a line of progress before it.
    *_, error = captured.err.splitlines()
    assert error.startswith("kernelbench: nvcc ")
    assert "too large" in error


@needs_nvcc
@needs_host
def test_a_step_that_describes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, "x", '#include "entry.cuh"\n' + TWO_KERNELS, arch="sm_90a")
    assert run(["inspect", "x"]) == ExitCode.ENVIRONMENT
    captured = capsys.readouterr()
    assert rows_of(captured.out)["stages"] == ["?", "?"]
    *progress, error = captured.err.splitlines()
    assert error.startswith("kernelbench: x: no constants: x has no kb_describe; define ")
    assert all(each.startswith("building x · ") for each in progress)  # a slow compiler


@needs_nvcc
@needs_host
def test_without_pyelftools(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.partition(".")[0] == "elftools"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "elftools", None)
    write(project, "x", DESCRIBED, arch="sm_90a")
    assert run(["inspect", "x"]) == ExitCode.ENVIRONMENT
    err = capsys.readouterr().err
    assert err.startswith("kernelbench: pyelftools is missing, which reads device code; `pip ")
    assert err.count("\n") == 1


@needs_nvcc
@needs_host
def test_sass(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = project / "nvdisasm"
    tool.write_text('#!/bin/sh\nhead -c 4 "$2" | tail -c 3; echo " by $1"\n')
    tool.chmod(0o755)
    write(project, "x", DESCRIBED + TWO_KERNELS)
    arguments = ["inspect", "x", "--arch", "sm_100a", "--sass"]
    monkeypatch.setattr(resources, "disassembler", lambda: tool)
    assert run(arguments) == ExitCode.PASS
    assert "\nx sm_100a SASS:\nELF by -c\n" in capsys.readouterr().out
    monkeypatch.setattr(resources, "disassembler", lambda: None)
    assert run(arguments) == ExitCode.ENVIRONMENT
    captured = capsys.readouterr()
    assert rows_of(captured.out)["stages"] == ["3", "3"]
    assert captured.err.startswith("kernelbench: no SASS: neither nvdisasm nor cuobjdump")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["v00"], "v00 is a Python step: there is no code of its own to inspect"),
        (["v99"], "unknown step 'v99'"),
        (["v00", "--arch", "sm80"], "Invalid value for '--arch'"),
    ],
)
def test_usage(
    in_checkout: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    assert run(["inspect", *arguments]) == ExitCode.USAGE
    assert capsys.readouterr().err.startswith(f"kernelbench: {line}")


def test_an_arch_that_a_step_is_not_built_for(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project, "x", DESCRIBED, arch="sm_90a")
    assert run(["inspect", "x", "--arch", "sm_100a"]) == ExitCode.USAGE
    assert "x: not built for sm_100a" in capsys.readouterr().err


def test_an_allowance_needs_its_reason(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(project, "x", DESCRIBED, extra='[[allowance]]\nwhat = "spill"\n')
    assert run(["inspect", "x"]) == ExitCode.USAGE
    assert "field 'allowance[0].reason': missing" in capsys.readouterr().err
