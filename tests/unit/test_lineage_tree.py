"""A lineage as a tree: its order and lines, and which records become its figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ENVIRONMENT, PROTOCOL, ROOT, result_row, run_record, times

from kernelbench.base.errors import UsageError
from kernelbench.lineages import tree as lineage_tree
from kernelbench.lineages.tree import Tree, outline
from kernelbench.project.context import Context
from kernelbench.project.project_file import project_at
from kernelbench.project.registry import Lineages, Step, load_lineages
from kernelbench.records import ledger
from kernelbench.records.run_record import RunRecord
from kernelbench.report import ladder_plot, tree_grid

PROJECT = project_at(ROOT)
LINEAGES = load_lineages(PROJECT)
MAIN = tuple(step for step in LINEAGES.steps_of("group_gemm") if not step.experiment)


def entry(
    base: str, cand: str, verdict: str, change: float | None, **changes: object
) -> ledger.LedgerEntry:
    arms = {name: ledger.ArmRecord(step, "0") for name, step in (("base", base), ("cand", cand))}
    found = ledger.LedgerEntry(
        schema=ledger.SCHEMA, id="x", created="2030-01-02T00:00:00+00:00", device="NVIDIA H200",
        command="kernelbench ab", why="", **arms, shape="A", metric="device", method="graph",
        verdict=verdict, reason="", base_us=1.0, cand_us=1.0, change=change, ci=(0.0, 0.0),
        p_holm=0.01,
    )  # fmt: skip
    return replace(found, **changes)


def tree(
    *runs: RunRecord,
    comparisons: tuple[ledger.LedgerEntry, ...] = (),
    steps: tuple[Step, ...] = MAIN,
    shapes: tuple[str, ...] = ("A",),
    device: str | None = None,
) -> Tree:
    lineage = LINEAGES.lineage("group_gemm")
    (found,) = lineage_tree.trees(
        Lineages((lineage,), steps), [lineage], runs, comparisons, shapes=shapes, device=device
    )
    return found


def medians(found: Tree, step: str) -> dict[tuple[str, str, str], float]:
    (node,) = [node for node in found.nodes if node.step == step]
    return {(m.device, m.shape, m.l2): m.time.median for m in node.measured}


class TestOutline:
    def test_the_longest_chain_is_the_trunk(self) -> None:
        lines = [prefix + step.name for prefix, step in outline(MAIN)]
        assert lines[:6] == ["v00", "v01", "v02", "├─ v03", "v04", "v05"]
        assert lines[10:15] == ["v10", "├─ v11", "v12", "├─ v13", "v14"]
        assert lines[16:19] == ["v16", "├─ v17", "v18"]
        assert sorted(line.removeprefix("├─ ") for line in lines) == [s.name for s in MAIN]

    def test_a_branch_has_branches_of_its_own(self) -> None:
        parents = {"a": None, "b": "a", "c": "b", "x": "a", "y": "x", "z": "x", "w": "z", "q": "c"}
        parents |= {"d": "c", "e": "d"}
        steps = [replace(MAIN[0], name=name, parent=parent) for name, parent in parents.items()]
        steps = [replace(s, status="failed" if s.name in "yq" else "works") for s in steps]
        assert [prefix + step.name for prefix, step in outline(steps)] == [
            "a", "├─ x", "│  ├─ y", "│  z", "│  w", "b", "c", "├─ q", "d", "e",
        ]  # fmt: skip

    def test_experiments_never_continue_the_trunk(self) -> None:
        chain = [("a", None), ("bad", "a"), ("worse", "bad"), ("b", "a")]
        steps = [replace(MAIN[0], name=name, parent=parent) for name, parent in chain]
        steps = [replace(s, status="failed" if "a" != s.name != "b" else "works") for s in steps]
        assert [prefix + step.name for prefix, step in outline(steps)] == [
            "a", "├─ bad", "│  └─ worse", "b",
        ]  # fmt: skip


class TestTimes:
    def test_the_newest_right_run_counts(self) -> None:
        found = tree(
            run_record(result_row("v01", median=50.0)), run_record(result_row("v01", median=40.0))
        )
        assert medians(found, "v01") == {("NVIDIA H200", "A", "cold"): 40.0}
        assert found.devices == ("NVIDIA H200",)

    @pytest.mark.parametrize("executor", ["emulator", "gpu-soft", "torch"])
    def test_what_is_not_a_gpu_of_the_steps_kind_has_no_time(self, executor: str) -> None:
        found = tree(run_record(result_row("v01", executor=executor)))
        assert medians(found, "v01") == {}
        assert found.devices == ()
        (node,) = [node for node in found.nodes if node.step == "v01"]
        assert [(c.executor, c.right, c.wrong) for c in node.checked] == [(executor, ("A",), ())]

    def test_a_cpu_has_no_times(self) -> None:
        run = run_record(result_row("v01"), environment=replace(ENVIRONMENT, kind="cpu"))
        assert medians(tree(run), "v01") == {}

    @pytest.mark.parametrize("order", [1, -1])
    def test_a_run_with_any_wrong_class_has_no_time(self, order: int) -> None:
        rows = [result_row("v01"), result_row("v01", inputs="full", status="wrong", device_us=None)]
        older = run_record(result_row("v01", median=50.0))
        assert medians(tree(older, run_record(*rows[::order])), "v01") == {}
        assert medians(tree(run_record(*rows[::order]), older), "v01") != {}

    def test_devices_and_modes_stand_side_by_side(self) -> None:
        warm = replace(PROTOCOL, l2="warm")
        found = tree(
            run_record(result_row("v01", median=50.0)),
            run_record(result_row("v01", median=30.0), protocol=warm),
            run_record(result_row("v01", median=20.0), device="NVIDIA B200"),
        )
        assert medians(found, "v01") == {
            ("NVIDIA H200", "A", "cold"): 50.0,
            ("NVIDIA H200", "A", "warm"): 30.0,
            ("NVIDIA B200", "A", "cold"): 20.0,
        }
        assert [*medians(tree(*[run_record(result_row("v01"))], device="h200"), "v01")] != []

    def test_a_call_without_device_time_says_so(self) -> None:
        found = tree(run_record(result_row("v01", device_us=None, call_us=times(60.0))))
        row = next(row for row in tree_grid.grid(found).rows if row["step"] == "v01")
        assert "60.0 call" in row.values()


class TestVerdicts:
    def test_only_those_against_the_parent_and_the_newest(self) -> None:
        found = tree(
            comparisons=(
                entry("v01", "v02", "SLOWER", 0.1),
                entry("v01", "v02", "FASTER", -0.05),
                entry("v02", "v02", "SAME", 0.0),
                entry("v00", "v02", "FASTER", -0.9),
            )
        )
        verdicts = {node.step: [v.verdict for v in node.verdicts] for node in found.nodes}
        assert verdicts["v02"] == ["FASTER"]
        assert verdicts["v01"] == []
        row = next(row for row in tree_grid.grid(found).rows if row["step"] == "v02")
        assert "FASTER −5.0% on H200" in row.values()

    def test_a_calls_verdict_shows_where_the_devices_is_missing(self) -> None:
        both = (
            entry("v01", "v02", "SAME", 0.0, metric="call"),
            entry("v01", "v02", "FASTER", -0.1),
        )
        for given, text in (
            (both, "FASTER −10.0% on H200"),
            (both[:1], "SAME +0.0% on H200 (call)"),
        ):
            grid = tree_grid.grid(tree(comparisons=given))
            assert text in next(row for row in grid.rows if row["step"] == "v02").values()

    def test_the_parent_may_be_the_candidate(self) -> None:
        found = tree(comparisons=(entry("v02", "v01", "FASTER", -0.2, protocol={"l2": "warm"}),))
        row = next(row for row in tree_grid.grid(found).rows if row["step"] == "v02")
        assert "v01 is FASTER −20.0% on H200 (warm)" in row.values()


class TestErrors:
    def test_an_unknown_shape(self) -> None:
        with pytest.raises(
            UsageError, match="nothing is reported, measured or compared for shape 'Q'"
        ):
            tree(shapes=("Q",))

    def test_an_unknown_device(self) -> None:
        with pytest.raises(UsageError, match="a device like 'tpu'; known: NVIDIA H200"):
            tree(run_record(result_row("v01")), device="tpu")


def test_markdown_has_a_row_per_step_and_labels_reported_figures() -> None:
    text = tree_grid.tree_markdown(tree(run_record(result_row("v01", median=50.0))))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(MAIN)
    assert "A reported µs" in rows[0]
    assert "A measured µs H200" in rows[0]
    assert "reported on NVIDIA B200" in text
    assert "not measured here" in text
    assert [cell.strip() for cell in rows[3].split("|")[1:7]] == [
        "v01", "works", "One kernel for all groups", "217.3", "50.0", "G 1",
    ]  # fmt: skip


class TestPlot:
    def draw(self, *runs: RunRecord, steps: tuple[Step, ...] = MAIN) -> ladder_plot.Ladder:
        return ladder_plot.ladder(Context(PROJECT), tree(*runs, steps=steps))

    def test_reported_and_measured_are_two_series_with_their_floors(self) -> None:
        drawn = self.draw(run_record(result_row("v01", median=50.0, sol_us=30.0)))
        reported, measured = drawn.series
        assert not reported.measured
        assert "reported on NVIDIA B200" in reported.label
        assert [p.us for p in reported.points][:2] == [47318.6, 217.3]
        assert measured.measured
        assert measured.label == "measured on NVIDIA H200, gpu (device time, cold L2, 2030-01-01)"
        assert [(p.step, p.us) for p in measured.points] == [("v01", 50.0)]
        assert measured.floor_us == 30.0
        # 268 MB of packed operands and scales over 8 TB/s, and the like: below any real figure.
        assert reported.floor_us is not None
        assert 10 < reported.floor_us < 38.2

    def test_emulated_runs_are_no_series(self) -> None:
        drawn = self.draw(run_record(result_row("v01", executor="emulator")))
        assert [series.measured for series in drawn.series] == [False]

    def test_throughput_becomes_time(self) -> None:
        lineage = LINEAGES.lineage("moe")
        steps = tuple(step for step in LINEAGES.steps_of("moe") if not step.experiment)
        found = lineage_tree.trees(Lineages((lineage,), steps), [lineage], [], [])[0]
        drawn = ladder_plot.ladder(Context(PROJECT), found)
        # 2·128·8·512·2048 operations at 8.09 TFLOPS.
        assert drawn.series[0].points[0].us == pytest.approx(2147483648 / 8.09e6)
        assert "from TFLOPS" in drawn.series[0].label

    def test_variants_are_no_rungs(self) -> None:
        variant = replace(MAIN[2], name="v02-x", parent="v02", subfolder="variants")
        drawn = self.draw(run_record(result_row("v02-x")), steps=(*MAIN, variant))
        assert drawn.steps == tuple(step.name for step in MAIN)
        assert [series.measured for series in drawn.series] == [False]
        assert ("v02", "v02-x") not in drawn.edges

    @pytest.mark.parametrize("suffix", [".png", ".svg"])
    def test_files_are_drawn_and_repeat(self, tmp_path: Path, suffix: str) -> None:
        pytest.importorskip("matplotlib")
        rows = [result_row(name, median=51.25, sol_us=9.0) for name in ("v01", "v02")]
        drawn = self.draw(run_record(*rows))
        files = [tmp_path / f"{i}{suffix}" for i in range(2)]
        for file in files:
            ladder_plot.save_ladder(drawn, str(file))
        assert files[0].read_bytes() == files[1].read_bytes()
        if suffix == ".svg":
            text = files[0].read_text()
            for part in ("group_gemm, shape A", "v23", "51.2", "speed of light, NVIDIA B200"):
                assert part in text

    def test_other_files_and_shapes_are_refused(self, tmp_path: Path) -> None:
        drawn = self.draw()
        with pytest.raises(UsageError, match=r"name a file that ends in \.png, \.svg"):
            ladder_plot.save_ladder(drawn, str(tmp_path / "ladder.gif"))
        with pytest.raises(UsageError, match="--plot draws one shape"):
            ladder_plot.ladder(Context(PROJECT), tree(), ("A", "B"))


def test_without_reported_figures_what_was_compared_is_shown() -> None:
    """The ledger of a new project, whose legend would speak of a column that is not there."""
    steps = tuple(replace(step, reported=None) for step in MAIN)
    compared = entry("v01", "v02", "FASTER", -0.1, shape="B", metric="call")
    found = tree_grid.grid(tree(comparisons=(compared,), steps=steps, shapes=()))
    (row,) = (row for row in found.rows if row["step"] == "v02")
    assert row["against its parent"] == "FASTER −10.0% on H200 (call)"
    assert any(note.startswith("against its parent: ") for note in found.notes)
