"""A step of ours by the PTX that nvcc makes of it: the direct build's bits, the same faults."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
import torch

from kernelbench.emulator.settings import DEFAULT_EMULATION
from kernelbench.executors.compiled import bind_problem, common_folder
from kernelbench.executors.emulated import EMULATOR
from kernelbench.executors.fault import KernelFault
from kernelbench.project.context import Context
from kernelbench.project.problem_loading import load_problem
from kernelbench.project.shapes import ShapeTable, resolve_shape
from kernelbench.ptx.library import library_of, load_library, translated
from kernelbench.ptx.sources import PtxSymbols
from kernelbench.ptx.step_kernels import kernels_replaced, scoped_name

pytestmark = pytest.mark.usefixtures("emulator_runtime")

HERE = Path(__file__).parent
#: What nvcc 13.0 made of v07, with -lineinfo; folders of the machine are cut off.
V07 = gzip.decompress((HERE / "v07.ptx.gz").read_bytes()).decode()


class Step:
    """One step, its problem and small inputs."""

    def __init__(self, name: str, shape: str, check: bool) -> None:
        context = Context.find()
        (self.step,) = context.lineages.select([name])
        self.problem = load_problem(context.lineage_for(self.step))
        table = resolve_shape(shape, self.problem, ShapeTable())
        self.inputs = self.problem.make_inputs(table, self.problem.input_classes[0], 1, "cpu")
        self.check = check
        self.entry = EMULATOR.open(self.step, check=check)
        self.kernel = bind_problem(self.problem, self.entry, self.step, "cpu")

    def run(self, seed: int = 0) -> list[torch.Tensor]:
        runtime = EMULATOR.runtime(self.step)
        runtime.configure(DEFAULT_EMULATION, check=self.check, seed=seed)
        found = self.problem.outputs_of(self.kernel(self.inputs.data), self.inputs)
        return [each.flatten().clone() for each in found]

    def by_ptx(self, name: str, text: str, seeds: range = range(1)):
        """The outputs of the last schedule, and the findings of all by class and PTX line."""
        source = translated(name, text)
        path = library_of(source, common_folder(self.step), check=self.check)
        symbols = PtxSymbols(source.module, source.translation.layouts, Path(name))
        outputs, found = [], set()
        entries = source.translation.entries
        with kernels_replaced(self.entry.library, self.entry.path, load_library(path), entries):
            for seed in seeds:
                for each in self.inputs.outputs or ():
                    each.zero_()
                try:
                    outputs = self.run(seed)
                except KernelFault:
                    outputs = []
                report = EMULATOR.runtime(self.step).report()
                found |= {(each["class"], symbols.line(each["pc"])) for each in report["findings"]}
        return outputs, found


def _line(text: str, pattern: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), 1) if re.search(pattern, line))


def test_v07_gives_the_bits_of_the_direct_build():
    step = Step("v07", "m=40,136:n=256:k=512", check=False)
    direct = step.run()
    by_ptx, found = step.by_ptx("v07.ptx", V07)
    assert found == set()
    assert all(torch.equal(a, b) for a, b in zip(direct, by_ptx, strict=True))
    # It was the PTX that ran: without its last store nothing comes.
    broken = re.sub(r"\tcp\.async\.bulk\.tensor\.2d\.global[^;]*;", "\t;", V07)
    missing, _ = step.by_ptx("broken.ptx", broken)
    assert all(not each.any() for each in missing)


@pytest.mark.slow
def test_v07_is_clean_and_its_mutants_are_not():
    step = Step("v07", "m=40:n=128:k=512", check=True)
    assert step.by_ptx("v07.ptx", V07, range(3))[1] == set()
    commit = re.compile(r"\ttcgen05\.commit\.[^;]*;")
    fence = re.compile(r"\tfence\.proxy\.async\.shared::cta;")
    kinds = {}
    for name, pattern in (("commit", commit), ("fence", fence)):
        assert len(pattern.findall(V07)) >= 1
        _, found = step.by_ptx(f"{name}.ptx", pattern.sub("\t;", V07), range(3))
        kinds[name] = {kind for kind, _ in found}
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
