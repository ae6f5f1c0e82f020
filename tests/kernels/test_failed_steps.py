"""The failed experiments of the group GEMM: the checker finds each, and names the cause; what is
only slow and what is repaired is clean."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernelbench.build import compiler
from kernelbench.emulator.findings import EmulatorReport
from kernelbench.emulator.settings import DEFAULT_EMULATION
from kernelbench.executors.emulated import EMULATOR
from kernelbench.executors.targets import Target
from kernelbench.kinds.loaded_step import LoadedStep
from kernelbench.problems.group_gemm.problem import PROBLEM
from kernelbench.project.project_file import find_project
from kernelbench.project.registry import Lineages, Step, load_lineages
from kernelbench.project.source_files import own_sources
from kernelbench.worker import schedules
from kernelbench.worker.jobs import CheckJob
from kernelbench.worker.messages import Message, Reporter, ScheduleRun, StepNotLoaded

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "kernels" / "failed"
STEPS = sorted(file.parent.name for file in FOLDER.glob("*/step.toml"))
FIXED = [name for name in STEPS if name.endswith("-fixed")]
#: Repairs whose form no other step has; that the others are clean is in `make test-long`.
OF_OWN_FORM = ("v5-iter-2-fixed", "v6-splitk-fixed", "v8-1-fixed", "v8-pair-fixed")
# A CTA has several tiles, of three groups, the last of them with two rows of tiles.
SHAPE = PROBLEM.parse_shape("u1", {"m": [1, 17, 129], "n": 256, "k": 512})
# The last tile has eight columns, and its neighbour in a cluster none.
RAGGED = PROBLEM.parse_shape("ragged", {"m": [130, 1, 5], "n": 264, "k": 512})
MARKS = ("documented", "reconstructed", "article-wrong")
# Lines of code that a repair may add and remove, comments apart.
MAX_REPAIR = 20


@dataclass(frozen=True)
class Fault:
    """What the checker must say.

    Attributes:
        found: Class and, as a pattern, object of findings that must be among those reported; for a
            hang, the barrier that a role waits for, as ``role: barrier``.
        verdict: How the line that ends the shape starts, where that does not depend on the seed.
        alone: Whether there must be no other classes.
    """

    found: tuple[tuple[str, str], ...] = ()
    verdict: str = ""
    alone: bool = False


#: By step. Those that are only slow are right.
FAULTS = {
    "nofence": Fault((("proxy-fence", r"c\[[01]\]"),), "wrong:", alone=True),
    "v5-1": Fault((("hang", "admin_warp: mma_done"),), "hang:", alone=True),
    "v5-iter-2": Fault(
        (
            ("race", r"tiles\.slots\[0\]\.n_offset"),
            ("race", r"tiles\.slots\[0\]\.k"),
            ("phase", r"tiles\.full\[0\]"),
        )
    ),
    "v5-iter-static": Fault((("overwrite", r"TMEM column \d+"), ("phase", "tmem_empty"))),
    "v5-static-overlap": Fault((("overwrite", r"TMEM column \d+"),), "wrong:"),
    "v6-2-multicast": Fault(
        (("transaction-count", r"full\[\d\]"), ("hang", r"mma_warp: full\[\d\]"))
    ),
    "v6-3": Fault(verdict="wrong: group", alone=True),
    "v6-splitk": Fault((("hang", r"mma_warp: full\[\d\]"),)),
    "v6-tmem-circ": Fault((("hang", r"mma_warp: tmem_empty\[3\]"),), "hang:", alone=True),
    "v8-pair": Fault((("early-read", r"TMEM column (1[6-9]\d|2\d\d)"),), "wrong:"),
    "v8-1": Fault(verdict="wrong: 37632 of 37632 output elements were never written; ", alone=True),
}
SLOW = ("v5-precomp-tma", "v6-2-descoverlap")
#: Their repair is a step of the main line.
REPAIRED_BY = {"nofence": "v16"}

TARGET = Target(EMULATOR, "cpu", None, DEFAULT_EMULATION)

Check = Callable[[str, Any, str], list[ScheduleRun]]

needs_compiler = pytest.mark.skipif(compiler.host_compiler() is None, reason="no C++ compiler")


def _mostly_long(name: str) -> Any:
    short = name not in FIXED or name in OF_OWN_FORM
    return name if short else pytest.param(name, marks=pytest.mark.long)


class Messages(Reporter):
    """Keeps what a worker would send."""

    def __init__(self) -> None:
        self.kept: list[ScheduleRun] = []
        super().__init__(self._keep)

    def _keep(self, message: Message) -> None:
        assert not isinstance(message, StepNotLoaded), message
        if isinstance(message, ScheduleRun):
            self.kept.append(message)


@pytest.fixture(scope="module")
def lineages() -> Lineages:
    return load_lineages(find_project(ROOT))


@pytest.fixture(scope="module")
def entry(lineages: Lineages) -> Callable[[str], LoadedStep]:
    """A step's library for the checker, built when a test asks for it."""
    return functools.cache(lambda name: EMULATOR.open(lineages.get(name), check=True))


@pytest.fixture(scope="module")
def checked(lineages: Lineages, entry: Callable[[str], LoadedStep]) -> Check:
    """``checked(step, shape, input class)``: what a schedule found with one SM, another with three.

    The second is missing if the first ended the shape.
    """

    def check(name: str, shape: Any, input_class: str) -> list[ScheduleRun]:
        entry(name)
        messages = Messages()
        step = lineages.get(name)
        job = CheckJob(
            step=step,
            lineage=next(one for one in lineages.lineages if one.name == step.lineage),
            shapes=(shape,),
            classes=(input_class,),
            target=TARGET,
            sms=(1, 3),
            schedules=1,
            seed=1,
            call_limit_s=60,
            max_findings=20,
            counters="",
            os_threads=1,
        )
        schedules.run_schedules(job, messages)
        assert messages.kept
        return messages.kept

    return check


def found_in(report: EmulatorReport) -> set[tuple[str, str]]:
    """Class and object of what a schedule found."""
    found = {(one.kind, one.object) for one in report.findings if one.kind != "hang"}
    return found | {("hang", f"{wait.access.role}: {wait.what}") for wait in report.waits}


@needs_compiler
@pytest.mark.parametrize("name", FAULTS)
def test_the_checker_names_the_fault(checked: Check, name: str) -> None:
    fault = FAULTS[name]
    last = checked(name, SHAPE, "gpu-mode")[-1]
    assert last.reason, "nothing was found"
    assert last.reason.startswith(fault.verdict)
    found = found_in(last.report)
    for kind, pattern in fault.found:
        assert any(k == kind and re.fullmatch(rf"{pattern}( \+ \w+)?", o) for k, o in found), found
    if fault.alone:
        assert {kind for kind, _ in found} == {kind for kind, _ in fault.found}


@needs_compiler
@pytest.mark.parametrize(("shape", "input_class"), [(SHAPE, "gpu-mode"), (RAGGED, "full")])
@pytest.mark.parametrize("name", [*SLOW, *map(_mostly_long, FIXED)])
def test_the_others_are_clean(checked: Check, name: str, shape: Any, input_class: str) -> None:
    results = checked(name, shape, input_class)
    assert [result.sms for result in results] == [1, 3]
    for result in results:
        assert not result.reason
        assert not result.report.findings


@needs_compiler
@pytest.mark.parametrize("name", [*map(_mostly_long, STEPS)])
def test_the_kernel_is_what_step_toml_says(
    lineages: Lineages, entry: Callable[[str], LoadedStep], name: str
) -> None:
    said = entry(name).describe()
    config = lineages.get(name).config
    assert [said["tile_m"], said["tile_n"], said["tile_k"]] == config["tile"]
    assert said["stages"] == config["stages"]
    assert said["accumulators"] == config["accumulators"]
    assert said["threads"] == 32 * config["warps"]
    assert [said["cluster"], 1, 1] == config.get("cluster", [1, 1, 1])


def test_every_experiment_is_judged() -> None:
    assert {*FAULTS, *SLOW, *FIXED} == {*STEPS}
    assert len(FAULTS) + len(SLOW) == 13


@pytest.mark.parametrize("name", [name for name in STEPS if name not in FIXED])
def test_an_experiment_says_where_it_is_from(lineages: Lineages, name: str) -> None:
    step = lineages.get(name)
    readme = (step.path / "README.md").read_text(encoding="utf-8")
    assert step.status == "failed"
    assert step.config["marked"] in MARKS
    assert f"**{step.config['marked'].capitalize()}" in readme
    assert (step.reported is not None) == (name in SLOW)
    if name in FAULTS:
        repair = REPAIRED_BY.get(name, f"{name}-fixed")
        assert lineages.get(repair).status in ("fixed", "works")


def code(step: Step) -> list[str]:
    """A step's own lines, without those that are comments only."""
    texts = [file.read_text(encoding="utf-8") for file in own_sources(step).values()]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("//")]


@pytest.mark.parametrize("name", FIXED)
def test_a_repair_is_small(lineages: Lineages, name: str) -> None:
    fixed = lineages.get(name)
    failed = lineages.get(name.removesuffix("-fixed"))
    assert (fixed.status, fixed.parent, fixed.base) == ("fixed", failed.name, failed.base)
    delta = difflib.unified_diff(code(failed), code(fixed), n=0, lineterm="")
    changed = [line for line in [*delta][2:] if line[0] in "+-"]
    assert 0 < len(changed) <= MAX_REPAIR


@pytest.mark.parametrize("name", STEPS)
def test_a_step_is_ordinary_code(lineages: Lineages, name: str) -> None:
    step = lineages.get(name)
    assert own_sources(step), "it differs in nothing from its base"
    for file in own_sources(step).values():
        text = file.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 400, file.name
        assert not re.search(r"\basm\b|<<<|__\w+__\b|#if|cuda", text.replace("__builtin", "")), file
        assert not re.search(r"\bv\d\d\b", text), f"{file.name}: the folder is the version"
    readme = (step.path / "README.md").read_text(encoding="utf-8")
    assert readme.startswith(f"# {name} · {step.title}\n")
    assert f"[{name}]({name}/)" in (FOLDER / "README.md").read_text(encoding="utf-8")
