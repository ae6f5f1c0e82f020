"""Drawings: no label on another, the same bytes for the same figures, every kind of file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from conftest import ROOT

from kernelbench.base.errors import UsageError
from kernelbench.cli import invoke as run
from kernelbench.lineages.tree import Tree, trees
from kernelbench.project.context import Context
from kernelbench.project.problem_loading import load_problem
from kernelbench.project.project_file import find_project
from kernelbench.records import store
from kernelbench.report import drawing, ladder_plot, roofline, roofline_plot, sweep_plot
from kernelbench.report.drawing import FILE_PALETTE, Marks
from kernelbench.report.ladder_plot import Ladder, LadderPoint, LadderSeries
from kernelbench.report.verdict_plot import VerdictBar, save_verdicts, verdict_figure

pytest.importorskip("matplotlib")


def overlaps(figure: Any) -> list[tuple[str, str]]:
    """Pairs of texts that are drawn so that their boxes have more than a hair in common."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    texts: dict[int, Any] = {}
    draw = Text.draw

    def noted(self: Any, *arguments: Any, **options: Any) -> None:
        texts[id(self)] = self
        draw(self, *arguments, **options)

    canvas = FigureCanvasAgg(figure)
    # Labels of ticks beyond an axis are there and never drawn: only drawing tells.
    with mock.patch.object(Text, "draw", noted):
        canvas.draw()
    renderer = canvas.get_renderer()
    boxes = [
        (text.get_text(), text.get_window_extent(renderer).padded(-0.5))
        for text in texts.values()
        if text.get_visible() and text.get_text().strip()
    ]
    return [(a, b) for (a, one), (b, two) in combinations(boxes, 2) if one.overlaps(two)]


@pytest.fixture(scope="module")
def context() -> Context:
    return Context(find_project(ROOT))


@pytest.fixture(scope="module")
def found(context: Context) -> dict[str, Tree]:
    runs, _ = store.load_runs(context.project.results)
    return {
        tree.lineage: tree for tree in trees(context.lineages, context.lineages.lineages, runs, ())
    }


def crowded() -> Ladder:
    """Times as near to one another as can be, one far away, long titles."""
    steps = tuple(f"step{i:02}" for i in range(20))
    points = tuple(LadderPoint(step, 10 + 0.001 * i, 9.9, 10.2) for i, step in enumerate(steps[1:]))
    far = LadderPoint(steps[0], 1e6, 9e5, 2e6)
    label = "measured on a device with a long name, gpu (device time, cold L2, 2030-01-01)"
    series = tuple(
        LadderSeries(f"{label} {i}", "a device", True, (far, *points), 9.0) for i in range(2)
    )
    edges = tuple(pairwise(steps))
    titles = dict.fromkeys(steps, "a title of so many words that it cannot be shown whole " * 2)
    return Ladder("crowded", steps, edges, series, "A", titles)


def figures(context: Context, found: dict[str, Tree]) -> Iterator[tuple[str, Any]]:
    def shown(ladder: Ladder | None) -> Any:
        assert ladder is not None
        return ladder_plot.ladder_figure(ladder, FILE_PALETTE, Marks())

    yield "crowded", shown(crowded())
    for name, shape in (("group_gemm", "A"),):
        yield name, shown(ladder_plot.ladder_of_shape(context, found[name], shape))
    runs, _ = store.load_runs(context.project.results)
    dims = sweep_plot.dims_of(context, "moe")
    sweeps = sweep_plot.sweeps(found["moe"], [found["peers.moe"]], dims, runs)
    long = [sweep for sweep in sweeps if sweep.dimension == "m" and len(sweep.sizes) > 8]
    assert long == list(sweeps), "one for each device with records"
    for sweep in long:
        yield f"sweep {sweep.device}", sweep_plot.sweep_figure(sweep, FILE_PALETTE, Marks())
    moe = context.lineages.lineage("moe")
    problem = load_problem(moe)
    shapes = [context.shapes.of(problem.name)[name] for name in dims if name.startswith("qwen35")]
    where = roofline.device_named("NVIDIA H200", context.project.results)
    report = roofline.report_lineage(
        moe, problem, shapes, where, ("cold",), context.project.results
    )
    yield "roofline", roofline_plot.roofline_figure(report, (), FILE_PALETTE, Marks())
    bars = [VerdictBar(f"qwen35-m{2**i}, device time", "AMBIGUOUS", -0.01, -0.9, 0.4)
            for i in range(14)]  # fmt: skip
    yield "verdicts", verdict_figure(bars, 0.005, FILE_PALETTE)


def test_no_label_collides(context: Context, found: dict[str, Tree]) -> None:
    with drawing.drawing_settings():
        drawn = {name: overlaps(figure) for name, figure in figures(context, found)}
    assert {name.partition(" ")[0] for name in drawn} == {
        "crowded", "group_gemm", "sweep", "roofline", "verdicts"
    }  # fmt: skip
    assert not any(drawn.values()), drawn


def test_the_test_above_sees_a_collision() -> None:
    figure = drawing.new_figure(3, 3)
    axes = figure.add_subplot()
    axes.text(0.5, 0.5, "one")
    axes.text(0.51, 0.51, "two")
    assert overlaps(figure) == [("one", "two")]


def comparison(*lines: Any) -> Any:
    """As much of a comparison as is drawn."""
    step = SimpleNamespace(name="a")
    return SimpleNamespace(base=step, cand=SimpleNamespace(name="b"), device="GPU", lines=lines)


def test_a_comparison_is_drawn_with_intervals(tmp_path: Path) -> None:
    estimate = SimpleNamespace(change=-0.0123, change_ci=(-0.0145, -0.01), margin=0.005)
    line = SimpleNamespace(
        collected=SimpleNamespace(shape=SimpleNamespace(name="A")), metric="device",
        verdict=SimpleNamespace(label="FASTER", estimate=estimate),
    )  # fmt: skip
    files = [tmp_path / f"{i}{suffix}" for suffix in (".svg", ".pdf") for i in range(2)]
    for file in files:
        save_verdicts(comparison(line), str(file))
    one, two, three, four = (file.read_bytes() for file in files)
    assert one == two
    assert three == four
    assert three.startswith(b"%PDF")
    for part in ("a → b on GPU", "A, device time", "-1.23%", "FASTER", "margin of ±0.5%"):
        assert part in files[0].read_text()
    with pytest.raises(UsageError, match="nothing was timed"):
        save_verdicts(comparison(), str(tmp_path / "x.svg"))
    with pytest.raises(UsageError, match=r"ends in \.png, \.svg, \.pdf"):
        save_verdicts(comparison(line), str(tmp_path / "x.gif"))


@pytest.mark.usefixtures("in_checkout")
class TestCommands:
    def test_a_sweep(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "sweep.svg"
        assert run(["lineage", "moe", "--over", "m", "--plot", str(file)]) == 0
        assert "wrote" in capsys.readouterr().err
        assert "moe-triton (peer)" in file.read_text()

    def test_a_roofline(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "roofline.pdf"
        arguments = ["--lineage", "group_gemm_hopper", "--device", "h200", "--plot", str(file)]
        assert run(["roofline", *arguments]) == 0
        assert file.read_bytes().startswith(b"%PDF")
        assert "wrote" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["lineage", "moe", "--over", "m"], "--over is for a drawing; name its file"),
            (["lineage", "moe", "--over", "q", "--plot", "x.svg"], "there are sweeps over m"),
            (["roofline", "--plot", "x.svg", "--device", "h200"], "--plot draws one lineage"),
            (["ab", "v00", "v01", "--plot", "x.gif"], "cannot draw to x.gif"),
            (["ab", "v00", "v01", "--plot", "/nowhere/x.svg"], "cannot write /nowhere/x.svg"),
        ],
    )
    def test_mistakes(
        self,
        arguments: list[str],
        message: str,
        capsys: pytest.CaptureFixture[str],
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert run(arguments) == 2
        assert message in capsys.readouterr().err
        assert not [*tmp_path.iterdir()]
