"""PTX and Triton steps on the emulator: run, checked, compared and copied like the others."""

from __future__ import annotations

import gzip
import importlib.util
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import ROOT, Outcome

from kernelbench.base.errors import UsageError
from kernelbench.emulator.settings import DEFAULT_EMULATION
from kernelbench.executors.emulated import EMULATOR
from kernelbench.inspection.cubin import compile_ptx
from kernelbench.kinds.loaded_step import KernelFault
from kernelbench.kinds.ptx_step import read_step_launches
from kernelbench.machine import toolchain
from kernelbench.project.context import Context
from kernelbench.project.problem_loading import load_problem

PROJECT = ROOT / "tests" / "kinds"
V07 = ROOT / "tests" / "ptx_frontend" / "v07.ptx.gz"

Bench = Callable[..., Outcome]

pytestmark = pytest.mark.usefixtures("emulator_runtime")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of the project that a test may change."""
    shutil.copytree(PROJECT, tmp_path / "kinds")
    return tmp_path / "kinds"


def in_file(root: Path, name: str, old: str, new: str) -> None:
    """Put ``new`` in the place of ``old`` in a file of the PTX step."""
    path = root / "rmsnorm" / "r-ptx" / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_ptx_step_is_run_and_checked(bench: Bench, root: Path) -> None:
    outcome = bench("run", "r-ptx", "--shape", "small", "--no-save", root=root)
    assert outcome.code == 0 and "PASS" in outcome.out
    check = ("check", "r-ptx", "--shape", "small", "--schedules", 1, "--sms", "2", "--no-save")
    assert bench(*check, root=root).code == 0
    in_file(root, "kernel.ptx", "bar.sync", "// bar.sync")
    outcome = bench(*check, root=root)
    assert outcome.code == 3
    assert "race" in outcome.out and "kernel.ptx:" in outcome.out


@pytest.mark.long
def test_schedules_of_a_ptx_step_are_shortened_replayed_and_traced(
    bench: Bench, root: Path, tmp_path: Path
) -> None:
    in_file(root, "kernel.ptx", "bar.sync", "// bar.sync")
    check = (
        "check", "r-ptx", "--shape", "small", "--schedules", 1, "--sms", "2", "--no-save",
        "--no-sequence", "--max-findings", 1,
    )  # fmt: skip
    files, trace = tmp_path / "shortest", tmp_path / "trace.json"
    assert bench(*check, "--minimize", files, "--trace", trace, root=root).code == 3
    (file,) = files.rglob("*.json")
    replayed = bench("replay", file, "--times", 2, root=root)
    assert replayed.code == 3 and "kernel.ptx:" in replayed.out
    assert "traceEvents" in trace.read_text()


def test_a_ptx_step_is_copied_and_compared(bench: Bench, root: Path) -> None:
    assert bench("new", "r-two", "--from", "r-ptx", root=root).code == 0
    assert bench("run", "r-two", "--shape", "small", "--no-save", root=root).code == 0
    outcome = bench("diff", "r-two", root=root)
    assert outcome.code == 0 and "r-ptx" in outcome.out


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("kernel.toml", '"x.shape[1]"', '"x.shape["', "field 'launch[0].args': not a Python"),
        ("kernel.toml", 'returns = "out"', "", "field 'returns': missing"),
        ("kernel.toml", 'grid = "x.shape[0]"', "", "field 'launch[0].grid': missing"),
        ("kernel.toml", 'kernel = "normalize_rows"', 'kernel = "none"', "has no kernel 'none'"),
        ("kernel.toml", ', "data[3]"', "", "4 arguments for 5 parameters"),
        ("kernel.toml", '"data[2]"', '"data[7]"', "kernel.toml: data[7]: IndexError"),
        ("kernel.ptx", "shfl.sync.bfly", "shfl.none", "unsupported PTX: shfl.none.b32 at kernel"),
    ],
)
def test_what_is_wrong_with_a_ptx_step(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str, old: str, new: str, message: str
) -> None:
    in_file(root, name, old, new)
    with pytest.raises((UsageError, KernelFault), match=re.escape(message)):
        _outputs(root, monkeypatch, ["r-ptx"], "small")


def test_launches_have_to_be_there(root: Path) -> None:
    ptx = root / "rmsnorm" / "r-ptx" / "kernel.ptx"
    ptx.with_suffix(".toml").unlink()
    with pytest.raises(UsageError, match=r"no kernel\.toml beside it"):
        read_step_launches(ptx)


def _outputs(
    root: Path, monkeypatch: pytest.MonkeyPatch, steps: list[str], shape: str
) -> list[list[torch.Tensor]]:
    """What each step gives on the emulator, for the same inputs."""
    monkeypatch.setenv("KERNELBENCH_ROOT", str(root))
    context = Context.find()
    found = []
    for step in context.lineages.select(steps):
        problem = load_problem(context.lineage_for(step))
        (parsed,) = context.shapes_for(problem, [shape])
        inputs = problem.make_inputs(parsed, problem.input_classes[0], 1, "cpu")
        target = EMULATOR.target(0, DEFAULT_EMULATION)
        kernel = EMULATOR.load(step, problem, target, 0.0)
        outputs = problem.outputs_of(kernel(inputs.data), inputs)
        found.append([each.clone() for each in outputs])
    return found


def _fed_back(root: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    """A PTX step that has the host path of a step of ours: the same bits come."""
    folder = root / "mine" / "fed"
    folder.mkdir(parents=True)
    shutil.copytree(ROOT / "kernels" / name, root / "mine" / name)
    (root / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["mine"]\n')
    (root / "shapes.yaml").write_text("group_gemm:\n  u0: {m: 1, n: 128, k: 256}\n")
    (root / "mine" / "lineage.toml").write_text(
        'name = "mine"\ntitle = "Fed back"\nproblem = "kernelbench.problems.group_gemm:PROBLEM"\n'
    )
    (folder / "step.toml").write_text(
        f'name = "fed"\nbase = "{name}"\nparent = "{name}"\nkind = "ptx"\nstatus = "works"\n'
        'title = "Its PTX"\ntechnique = "PTX"\nhypothesis = "The same bits."\n'
    )
    (folder / "kernel.ptx").write_text(text)
    toml = root / "mine" / name / "step.toml"
    lines = toml.read_text().splitlines()
    toml.write_text("\n".join(line for line in lines if not line.startswith("parent")))
    steps = [str(root / "mine" / name), str(folder)]
    outputs = _outputs(root, monkeypatch, steps, "m=40,136:n=256:k=512")
    direct, fed = outputs
    assert direct and all(map(torch.equal, direct, fed))


def test_v07_fed_back_gives_its_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fed_back(tmp_path, monkeypatch, "v07", gzip.decompress(V07.read_bytes()).decode())


@pytest.mark.long
@pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc")
def test_v22_fed_back_gives_its_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (step,) = Context.find().lineages.select(["v22"])
    _fed_back(tmp_path, monkeypatch, "v22", compile_ptx(step))


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton")
def test_a_triton_step_is_run_and_checked(bench: Bench, root: Path) -> None:
    run = bench("run", "r-triton", "--shape", "small", "--no-save", root=root)
    assert run.code == 0 and "PASS" in run.out
    check = ("check", "r-triton", "--shape", "small", "--schedules", 1, "--sms", "1,2", "--no-save")
    assert bench(*check, root=root).code == 0
