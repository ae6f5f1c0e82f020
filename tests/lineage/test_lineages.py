"""The two lineages that ship with kernelbench: complete, consistent, and true to their source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernelbench.base.errors import UsageError
from kernelbench.project.problem_loading import load_problem
from kernelbench.project.project_file import Project, find_project
from kernelbench.project.registry import Lineages, Step, load_lineages, require_runnable
from kernelbench.report.readme_tables import replace_between, updated_readmes

ROOT = Path(__file__).resolve().parents[2]

# Typed from the published tables, in shape order; the whole chain of parents, and some figures.
PARENTS = {
    **{"v00": None, "v01": "v00", "v02": "v01", "v03": "v02", "v04": "v02", "v05": "v04"},
    **{"v06": "v05", "v07": "v06", "v08": "v07", "v09": "v08", "v10": "v09", "v11": "v10"},
    **{"v12": "v10", "v13": "v12", "v14": "v12", "v15": "v14", "v16": "v15", "v17": "v16"},
    **{"v18": "v16", "v19": "v18", "v20": "v19", "v21": "v20", "v22": "v21", "v23": "v22"},
    **{"m00": None, "m01": "m00", "m02": "m01", "m03": "m02", "m04": "m03", "m05": "m04"},
    # Beyond the article.
    **{"m06": "m05", "m07": "m06", "m08": "m07", "m09": "m08", "m10": "m09"},
    **{"m11": "m10", "m12": "m11", "m13": "m12", "m14": "m13", "m15": "m14"},
    **{"m16": "m15", "m17": "m16", "m18": "m17", "m19": "m18", "m20": "m19", "m21": "m20"},
    **{"m22": "m21", "m23": "m22", "m24": "m23"},
    "mref": None,
}
FIGURES = {
    "v00": (47318.6, 24315.7, 5488.6, 2805.5),
    "v01": (217.3, 208.6, 155.0, 149.7),
    "v05": (180.0, 170.1, 130.6, 124.2),
    "v07": (58.0, 51.6, 24.7, 20.9),
    "v12": (54.7, 38.1, 19.1, 15.2),
    "v17": (38.3, 24.9, 12.8, 9.1),
    "v20": (40.6, 26.4, 14.1, 10.6),
    "v23": (38.2, 25.2, 12.8, 9.1),
    **{"m00": (8.09,), "m03": (9.45,), "m05": (13.18,)},
}
VARIABLE_NK = {"v00", "v01", "v02", "v03", "v19", "v20", "v21", "v22", "v23"}


@pytest.fixture(scope="module")
def project() -> Project:
    return find_project(ROOT)


@pytest.fixture(scope="module")
def lineages(project: Project) -> Lineages:
    return load_lineages(project)


def main_line(lineages: Lineages) -> list[Step]:
    # Not every step: who writes a v24 has not broken the others.
    return [step for step in lineages.steps if step.name in PARENTS]


def test_every_step_is_there_with_its_parent(lineages: Lineages) -> None:
    assert {step.name: step.parent for step in main_line(lineages)} == PARENTS


def test_the_order_is_the_chain(lineages: Lineages) -> None:
    assert [step.name for step in main_line(lineages)] == [
        *(f"v{i:02}" for i in range(24)),
        "mref",
        *(f"m{i:02}" for i in range(25)),
    ]


@pytest.mark.parametrize("name", FIGURES)
def test_reported_figures(lineages: Lineages, name: str) -> None:
    reported = lineages.get(name).reported
    assert reported is not None
    assert tuple(reported.values.values()) == FIGURES[name]
    group_gemm = name.startswith("v")
    assert list(reported.values) == (["A", "B", "C", "D"] if group_gemm else ["qwen35"])
    assert reported.device == ("NVIDIA B200" if group_gemm else "NVIDIA H800 PCIe")
    assert reported.unit == ("us" if group_gemm else "TFLOPS")


def test_only_steps_that_are_not_the_articles_have_no_figures(lineages: Lineages) -> None:
    assert [s.name for s in main_line(lineages) if s.reported is None] == [
        "mref",
        *(f"m{i:02}" for i in range(6, 25)),
    ]


def test_inconsistent_sources_are_said_so(lineages: Lineages) -> None:
    notes = {s.name: s.reported.note for s in lineages.steps if s.reported and s.reported.note}
    assert set(notes) == {"v05", "v21"}
    assert "192.0 / 183.0 / 133.6 / 128.2" in notes["v05"]
    assert "41.3" in notes["v21"]


def test_which_steps_take_ragged_n_and_k(lineages: Lineages) -> None:
    steps = [step for step in main_line(lineages) if step.lineage == "group_gemm"]
    assert {step.name for step in steps if step.limits["nk"] == "var"} == VARIABLE_NK
    assert {step.limits["nk"] for step in steps} == {"var", "fixed"}


def test_repairs_name_the_steps_that_lack_the_fence(lineages: Lineages) -> None:
    fence = [s.name for s in lineages.steps if any("proxy" in r.name for r in s.repaired)]
    assert fence == [f"v{i:02}" for i in range(7, 15)]
    assert "aligned-fence" in [repair.name for repair in lineages.get("v10").repaired]


def test_arch_follows_the_lineage(lineages: Lineages) -> None:
    for step in main_line(lineages):
        native = {"group_gemm": "sm_100a", "moe": "sm_90a"}[step.lineage]
        assert step.arch == ("any" if step.kind == "python" else native), step.name


def test_written_steps_have_their_entry_and_problem(lineages: Lineages) -> None:
    written = [step for step in lineages.steps if step.status != "planned"]
    assert {"v00", "mref"} <= {step.name for step in written}
    for step in written:
        assert require_runnable(step).is_file()
    for lineage in lineages.lineages:
        assert load_problem(lineage).benchmark_shapes


def test_no_base_of_a_main_step_has_a_base(lineages: Lineages) -> None:
    """Who reads a step opens its folder and at most one other."""
    bases = {step.name: step.base for step in main_line(lineages)}
    assert [name for name, base in bases.items() if base and base.base] == []
    best = [lineages.get("m16"), lineages.get("v22")]
    assert [step.name for step in best if step.base] == []


def test_every_main_step_has_a_short_lesson(lineages: Lineages) -> None:
    for step in main_line(lineages):
        readme = (step.path / "README.md").read_text(encoding="utf-8")
        prose = re.sub(r"(<!-- \w+:begin -->).*?(<!-- \w+:end -->)", r"\1\2", readme, flags=re.S)
        prose = re.sub(r"^```diff\n.*?^```\n\n", "", prose, flags=re.S | re.M)
        lesson, _, walk_through = prose.partition("\n## Walk-through\n")
        assert len(lesson.splitlines()) <= 40, step.name
        assert len(walk_through.splitlines()) <= 40, step.name
        assert readme.startswith(f"# {step.name}"), step.name
        if step.status == "planned":
            assert "Status: planned. Nothing has been measured here yet." in readme, step.name


def test_generated_tables_are_up_to_date(project: Project, lineages: Lineages) -> None:
    readmes = list(updated_readmes(project, lineages))
    stale = [str(file.relative_to(ROOT)) for file, old, new in readmes if old != new]
    assert stale == [], "run `make format`"
    # A README that lost its markers would otherwise pass as up to date.
    planned = [s for s in main_line(lineages) if s.status == "planned"]
    covered = {file.parent.name for file, _, _ in readmes}
    assert {"kernels", "moe", *(step.name for step in planned)} <= covered


def test_replace_between_markers() -> None:
    markers = ("<b>", "<e>")
    assert replace_between("x <b>old<e> y", markers, "new") == "x <b>\nnew\n<e> y"
    assert replace_between("no markers", markers, "new") == "no markers"
    for broken in ("x <b> y", "x <e> y", "x <e> y <b>"):
        with pytest.raises(UsageError, match="marker"):
            replace_between(broken, markers, "new")
