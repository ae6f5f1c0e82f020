"""A step of ours by the PTX that nvcc makes of it: the direct build's bits, the same faults."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
import torch
from ptx_step import Call, Case, PtxStep, symbols_of

from kernelbench.ptx.library import translated
from kernelbench.ptx.step_kernels import scoped_name

pytestmark = pytest.mark.usefixtures("emulator_runtime")

HERE = Path(__file__).parent
#: What nvcc 13.0 made of v07, with -lineinfo; folders of the machine are cut off.
V07 = gzip.decompress((HERE / "v07.ptx.gz").read_bytes()).decode()


def _calls(step: PtxStep, case: Case, name: str, text: str, seeds: range) -> list[Call]:
    """Calls of a step whose kernels are PTX."""
    source = translated(name, text)
    with step.replaced(source, step.build(source)):
        return [step.call(case, seed, symbols=symbols_of(source)) for seed in seeds]


def test_v07_gives_the_bits_of_the_direct_build():
    step = PtxStep("v07", check=False)
    case = step.case("m=40,136:n=256:k=512")
    direct = step.call(case)
    (by_ptx,) = _calls(step, case, "v07.ptx", V07, range(1))
    assert direct.clean and by_ptx.clean
    assert all(torch.equal(a, b) for a, b in zip(direct.outputs, by_ptx.outputs, strict=True))
    # It was the PTX that ran: without its last store nothing comes.
    broken = re.sub(r"\tcp\.async\.bulk\.tensor\.2d\.global[^;]*;", "\t;", V07)
    (missing,) = _calls(step, case, "broken.ptx", broken, range(1))
    assert missing.outputs and missing.wrong


@pytest.mark.slow
def test_v07_is_clean_and_its_mutants_are_not():
    step = PtxStep("v07", check=True)
    case = step.case("m=40:n=128:k=512")
    assert all(call.clean for call in _calls(step, case, "v07.ptx", V07, range(3)))
    commit = re.compile(r"\ttcgen05\.commit\.[^;]*;")
    fence = re.compile(r"\tfence\.proxy\.async\.shared::cta;")
    kinds = {}
    for name, pattern in (("commit", commit), ("fence", fence)):
        assert len(pattern.findall(V07)) >= 1
        calls = _calls(step, case, f"{name}.ptx", pattern.sub("\t;", V07), range(3))
        kinds[name] = {kind for call in calls for kind, _ in call.found}
    assert "hang" in kinds["commit"]
    assert "proxy-fence" in kinds["fence"]


@pytest.mark.parametrize(
    ("mangled", "scoped"),
    [
        ("add", "add"),
        ("_ZN2kb4step10group_gemmERKNS0_6GroupsE", "_ZN2kb4step10group_gemmE"),
        ("_ZN2kb4step10group_gemmILb1EEEvNS0_6GroupsE", "_ZN2kb4step10group_gemmILb1EEE"),
        ("_ZN2kb1fINS_1AELi12EEEvi", "_ZN2kb1fINS_1AELi12EEE"),
    ],
)
def test_names_without_parameters(mangled, scoped):
    assert scoped_name(mangled) == scoped
