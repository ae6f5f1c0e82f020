"""``kernelbench report``: one file without network that shows what ``--json`` has."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, result_row, run_record, write_project, write_step
from page_reader import Page, read_page, unpacked

from kernelbench.base import json_file, schema
from kernelbench.cli import invoke as run
from kernelbench.emulator.findings import Access, Waiting
from kernelbench.emulator.memory_map import MemoryMap, Region
from kernelbench.project.context import Context
from kernelbench.project.project_file import find_project
from kernelbench.report.drawing import short_us
from kernelbench.report.html import page as report_page
from kernelbench.report.html.gather import gather
from kernelbench.report.html.predicted import predicted_pages
from kernelbench.report.html.record import CheckPage, FindingPage, ReportRecord

pytest.importorskip("matplotlib")
TEMPLATES = ROOT / "kernelbench" / "report" / "html" / "templates"
FIGURE = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]\d+)?")


@pytest.fixture(scope="module")
def record() -> ReportRecord:
    """All of this checkout, without diffs, which take most of the time."""
    project = find_project(ROOT)
    return gather(Context(project), project.results, diffs=False)


def with_ladders(record: ReportRecord, count: int) -> ReportRecord:
    """The record with the first ladders of each lineage: drawing takes half a second each."""
    few = (replace(each, ladders=each.ladders[:count]) for each in record.lineages)
    return replace(record, lineages=tuple(few))


@pytest.fixture(scope="module")
def text(record: ReportRecord) -> str:
    return report_page.page_text(with_ladders(record, 1))


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return read_page(text)


@pytest.fixture(scope="module")
def diffed() -> ReportRecord:
    """One lineage with diffs."""
    project = find_project(ROOT)
    return gather(Context(project), project.results, ["group_gemm_hopper"])


def numbers_of(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list):
        for each in value:
            yield from numbers_of(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


def strings_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        value = [*value.values()]
    if isinstance(value, list):
        for each in value:
            yield from strings_of(each)
    elif isinstance(value, str):
        yield value


def encoded(record: ReportRecord) -> Any:
    """As ``--json`` writes it and a reader reads it."""
    return json.loads(json.dumps(schema.encode(record), allow_nan=False))


class TestOneFile:
    def test_it_is_well_formed(self, page: Page) -> None:
        assert page.mistakes == []
        assert page.open == []
        assert [e.tag for e in page.elements].count("h1") == 1

    def test_nothing_is_loaded(self, text: str, page: Page) -> None:
        loading = {"src", "srcset", "action", "data", "poster", "xlink:href", "formaction"}
        for element in page.elements:
            assert element.tag not in ("link", "img", "iframe", "object", "embed", "base")
            assert not loading & element.attributes.keys(), element
            assert element.attributes.get("href", "#").startswith("#"), element
        style, script = (
            "".join(t for e, t in page.texts if e.tag == tag) for tag in ("style", "script")
        )
        assert len(style) > 1000
        assert not re.search(r"url\(|@import|@font-face", style)
        assert not re.search(r"fetch\(|XMLHttp|import\(|WebSocket|localStorage", script)
        assert not re.search(r"https?://", text)

    def test_every_link_leads_somewhere(self, page: Page) -> None:
        ids = [e.attributes["id"] for e in page.elements if "id" in e.attributes]
        known = {"", *ids}
        assert len(ids) == len(known) - 1
        for element in page.elements:
            names = [element.attributes.get("href", "#")[1:]]
            names += element.attributes.get("aria-labelledby", "").split()
            names += [element.attributes.get(f"data-{of}", "") for of in ("table", "steps")]
            names += [element.attributes.get("data-ladders", "")]
            assert known.issuperset(names), element

    def test_every_step_has_its_place(self, page: Page, record: ReportRecord) -> None:
        ids = {e.attributes.get("id") for e in page.elements}
        steps = [step.name for lineage in record.lineages for step in lineage.steps]
        assert len(steps) > 100
        assert {f"step-{name}" for name in steps} <= ids

    @pytest.mark.long
    def test_the_whole_can_be_sent(self) -> None:
        project = find_project(ROOT)
        text = report_page.page_text(gather(Context(project), project.results))
        assert len(text.encode()) <= report_page.MAX_BYTES
        assert '<pre class="diff"' in unpacked(text)

    def test_it_can_be_sent(self, text: str, record: ReportRecord) -> None:
        """With every ladder, if each is as long as the longest; of diffs `page_text` takes care."""
        ladders = re.findall(r"<figure data-ladder.*?</figure>", text, re.DOTALL)
        left = sum(len(lineage.ladders) for lineage in record.lineages) - len(ladders)
        longest = max(len(ladder.encode()) for ladder in ladders)
        assert left > 5
        assert len(text.encode()) + left * longest < report_page.MAX_BYTES

    def test_what_is_pressed_or_read_has_a_name(self, page: Page) -> None:
        named = {id(e) for e, _ in page.texts}
        for element in page.elements:
            if element.tag == "button" and element.attributes.get("id") != "theme":
                assert id(element) in named, element
            if element.tag in ("input", "select"):
                assert element.within("label"), element
            if element.tag == "svg":
                assert element.attributes["role"] in ("img", "group")
                assert element.attributes["aria-label"]
            if "tabindex" in element.attributes:
                assert element.attributes["aria-label"], element
        levels = [int(e.tag[1]) for e in page.elements if re.fullmatch(r"h[1-6]", e.tag)]
        assert all(b - a <= 1 for a, b in itertools.pairwise(levels))

    def test_reported_and_emulated_figures_are_marked(self, page: Page) -> None:
        texts = [text for element, text in page.texts if element.within("details", "step")]
        assert sum("Reported on NVIDIA B200, not measured here" in text for text in texts) > 20
        assert any("emulator (no times)" in text for text in texts)
        panels = [text for element, text in page.texts if element.tag == "text"]
        assert any(text.startswith("reported on NVIDIA B200") for text in panels)
        assert any(text.startswith("measured on NVIDIA H200") for text in panels)


class TestFigures:
    """The page has no figure that the record lacks."""

    def test_figures_are_the_records(self, page: Page, record: ReportRecord) -> None:
        numbers = [*numbers_of(encoded(record))]
        to_nine_digits = {f"{number:.9g}" for number in numbers}
        shown = [e.attributes["value"] for e in page.elements if e.tag == "data"]
        assert len(shown) > 3000
        assert {*shown} - to_nine_digits == set()
        marks = [e for e in page.elements if "data-values" in e.attributes]
        assert len(marks) > 300
        for mark in marks:
            assert {*mark.attributes["data-values"].split()} <= to_nine_digits

    def test_what_is_shown_is_the_value(self, page: Page) -> None:
        """Rounded, perhaps in percent or in billions, and nothing else."""
        for element, text in page.texts:
            if element.tag != "data":
                continue
            value, shown = float(element.attributes["value"]), text.replace(",", "")
            shown = shown.replace("−", "-")
            digits = len(shown.partition("e")[0].replace("-", "").replace(".", "").lstrip("0"))
            scaled = [value * scale for scale in (1, 100, 1e-6, 1e-9)]
            near = 0.51 * 10 ** -len(shown.partition(".")[2].partition("e")[0])
            assert any(
                abs(float(shown) - each) <= near
                or abs(float(shown) - each) <= 0.6 * abs(each) * 10 ** (1 - max(digits, 1))
                for each in scaled
            ), (element, text)

    def test_other_figures_are_words_of_the_record(self, page: Page, record: ReportRecord) -> None:
        """Names, dates, prose: nothing that a template or a drawing worked out."""
        value = encoded(record)
        words = {*FIGURE.findall("\n".join(strings_of(value)))}
        templates = {
            token for file in TEMPLATES.glob("*.j2") for token in FIGURE.findall(file.read_text())
        }
        drawn = {short_us(number) for number in numbers_of(value)}
        drawn |= {f"{number / 1e12:.2f}" for number in numbers_of(value) if number > 1e9}
        drawn |= {f"{number / 1e12:,.0f}" for number in numbers_of(value) if number > 1e9}
        left = []
        for element, text in page.texts:
            if element.tag in ("data", "style", "script", "pre") or element.within("g", "axis"):
                continue
            if element.within("svg", "memory"):
                continue  # sums of the record's: test_a_checked_step_has_its_map_of_memory
            if element.within("svg", "schedule"):
                continue  # test_a_predicted_step_has_its_schedule_below_its_parents
            for token in FIGURE.findall(text):
                if token in words or token in templates:
                    continue
                if element.within("title"):
                    continue  # the next test
                if not (element.within("svg") and token in drawn):
                    left.append((element.tag, token, text[:80]))
        assert left == []

    def test_points_say_their_figures(self, page: Page, record: ReportRecord) -> None:
        words = {*FIGURE.findall("\n".join(strings_of(encoded(record))))}
        told = [(e, text) for e, text in page.texts if e.tag == "title" and e.within("a", "mark")]
        assert len(told) > 300
        for element, text in told:
            values = [float(v) for v in element.path[-1].attributes["data-values"].split()]
            own = {f"{v:,.2f}" for v in values} | {f"{100 * abs(v):.1f}" for v in values}
            for token in FIGURE.findall(text):
                assert token in own or token in words, text


class TestDiffs:
    def test_they_are_whole(self, diffed: ReportRecord) -> None:
        page = read_page(report_page.page_text(with_ladders(diffed, 0)))
        steps = {step.name: step for lineage in diffed.lineages for step in lineage.steps}
        shown: dict[str, list[str]] = {}
        for element, text in page.texts:
            if element.within("pre", "diff"):
                ids = [each.attributes.get("id", "") for each in element.path]
                (step,) = (each for each in ids if each.startswith("step-"))
                shown.setdefault(step.removeprefix("step-"), []).append(text)
        assert {"h02", "h07"} <= shown.keys()
        for name, lines in shown.items():
            source = steps[name].source
            assert source is not None
            assert lines == [line for file in source.files for line in file.text if line.strip()], (
                name
            )

    def test_a_page_leaves_out_what_makes_it_too_long(
        self, diffed: ReportRecord, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bare = with_ladders(diffed, 0)
        whole = report_page.page_text(bare)
        assert "kernelbench diff h01 h02" not in unpacked(whole)
        monkeypatch.setattr(report_page, "MAX_BYTES", len(whole.encode()) - 1000)
        short = report_page.page_text(bare)
        assert len(short.encode()) <= report_page.MAX_BYTES
        assert "kernelbench diff h01 h02" in unpacked(short)

    def test_a_page_is_small_until_it_is_opened(self, text: str, page: Page) -> None:
        assert len(unpacked(text)) > 1.5 * len(text)
        assert 'data-packed="' not in unpacked(text)
        closed = [e for e in page.elements if e.attributes.get("class") == "step"]
        assert text.count('<p class="small muted" data-packed=') == len(closed) + 1

    def test_names_and_figures_are_escaped_once(self, tmp_path: Path) -> None:
        evil = '<script>alert("x")</script>'
        root = write_project(tmp_path / "p", {"s0": "x = 1\n"})
        write_step(root / "tiny", "s1", "x = 2  # </script><b>\n", 'parent = "s0"')
        toml = root / "tiny" / "s1" / "step.toml"
        toml.write_text(toml.read_text().replace('title = "s1"', f"title = '{evil}'"))
        (root / "tiny" / "s1" / "README.md").write_text(
            f"# s1\n\n**Idea.** {evil} `{evil}`\n\n* a\n"
        )
        context = Context(find_project(root))
        text = report_page.page_text(gather(context, root / "results", ["tiny"]))
        page = read_page(text)
        assert page.mistakes == []
        assert [e.tag for e in page.elements].count("script") == 2
        shown = " ".join(found for _, found in page.texts)
        assert shown.count(evil) >= 3
        assert "&amp;lt;" not in text


def test_templates_are_in_the_wheel() -> None:
    wheel = pytest.importorskip("hatchling.builders.wheel")
    files = wheel.WheelBuilder(str(ROOT)).recurse_included_files()
    shipped = {file.distribution_path for file in files}
    templates = {str(file.relative_to(ROOT)) for file in TEMPLATES.iterdir()}
    assert len(templates) > 4
    assert templates <= shipped


def test_an_empty_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_project(tmp_path / "p", {})
    monkeypatch.setenv("KERNELBENCH_ROOT", str(root))
    monkeypatch.chdir(tmp_path)
    assert run(["report"]) == 0
    assert "wrote report.html" in capsys.readouterr().err
    page = read_page((tmp_path / "report.html").read_text())
    assert page.mistakes == []
    shown = " ".join(text for _, text in page.texts)
    for part in (
        "Nothing was measured yet",
        "Nothing has been compared yet",
        "no record of a check",
    ):
        assert part in shown


def test_a_project_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What ran on a CPU is right or wrong, and has no times."""
    root = write_project(tmp_path / "p", {"s0": "x = 1\n"})
    made = run_record(result_row("s0", "u0", lineage="tiny", executor="emulator", device_us=None))
    cpu = replace(made, environment=replace(made.environment, kind="cpu", device="CPU"))
    path = root / "results" / "cpu" / "runs" / "20300101T000000Z-0.json"
    json_file.write_json(path, replace(cpu, device="CPU"))
    monkeypatch.setenv("KERNELBENCH_ROOT", str(root))
    output = tmp_path / "a.html"
    assert run(["report", "tiny", "-o", str(output), "--json", str(tmp_path / "a.json")]) == 0
    record = schema.decode(ReportRecord, json.loads((tmp_path / "a.json").read_text()))
    (lineage,) = record.lineages
    assert lineage.ladders == lineage.rooflines == lineage.fastest == ()
    shown = " ".join(text for _, text in read_page(output.read_text()).texts)
    assert "emulator (no times): u0" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mo"], "unknown lineage 'mo'; did you mean 'moe'?"),
        (["-o", "/nowhere/x.html"], "cannot write /nowhere/x.html"),
        (["--json", "/nowhere/x.json"], "cannot write /nowhere/x.json"),
    ],
)
@pytest.mark.usefixtures("in_checkout")
def test_mistakes_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_hang_has_its_wait_for_graph(record: ReportRecord) -> None:
    access = Access("load_warp", "v07/kernel.cuh:187")
    wait = Waiting(access, (0, 0, 0), 0, (4,), 1, "empty[0]", "", "1 more arrival")
    found = FindingPage("hang-1", "hang", "deadlock", "u3", 1, "", (wait,))
    check = CheckPage("v07", "2026-11-27", {"hang": 1}, 1, (found,), ())
    text = report_page.page_text(replace(record, lineages=(), checks=(check,)))
    page = read_page(text)
    assert page.mistakes == [] and not re.search(r"https?://", text)
    (graph,) = (e for e in page.elements if e.attributes.get("class") == "waits")
    assert graph.within("figure")
    texts = [t for e, t in page.texts if e.within("svg", "waits")]
    assert "empty[0] lacks 1 arrival" in texts and "load_warp (warp 4, 1 lane)" in texts


def test_a_checked_step_has_its_map_of_memory(record: ReportRecord) -> None:
    (lineage,) = (each for each in record.lineages if each.name == "group_gemm")
    steps = tuple(each for each in lineage.steps if each.name in ("v21", "v22"))
    few = replace(lineage, steps=steps, head=None, ladders=(), sweeps=(), rooflines=())
    regions = (Region("a", 0, 2048), Region("full", 2048, 8, True))
    memory = MemoryMap("group_gemm", 2064, 512, regions)
    check = CheckPage("v22", "2026-11-27", {"clean": 1}, 1, (), (), (memory,))
    page = read_page(report_page.page_text(replace(record, lineages=(few,), checks=(check,))))
    assert page.mistakes == []
    (drawn,) = (e for e in page.elements if e.attributes.get("class") == "memory")
    assert [e.attributes["id"] for e in drawn.path if "id" in e.attributes][-1] == "step-v22"
    texts = [t for e, t in page.texts if e.within("svg", "memory")]
    assert "shared memory: 2,064 of 232,448 bytes" in texts
    assert "TMEM: 512 of 512 columns allocated" in texts


def test_a_predicted_step_has_its_schedule_below_its_parents(record: ReportRecord) -> None:
    (lineage,) = (each for each in record.lineages if each.name == "group_gemm")
    predicted = {each.step: each for each in lineage.predicted}
    found = predicted["v16"]
    assert [each.prediction.step for each in found.schedules] == ["v15", "v16"]
    assert found.drawn and not predicted["v15"].drawn
    assert found.removed
    few = replace(lineage, head=None, ladders=(), sweeps=(), rooflines=(), predicted=(found,))
    text = report_page.page_text(replace(record, lineages=(few,)))
    page = read_page(text)
    assert page.mistakes == []
    (drawn,) = (e for e in page.elements if e.attributes.get("class") == "schedule")
    # Neither a script nor a click is needed, and a print has it, too.
    assert not drawn.within("details") and drawn.within("figure")
    texts = [t for e, t in page.texts if e.within("svg", "schedule")]
    for each in found.schedules:
        made = each.prediction
        title = f"{made.step} on {made.shape}: {short_us(made.device_us)} µs, predicted for "
        assert title + each.device in texts
    assert texts.count("critical path") == 2 and "v16 removes it" in texts
    bubble = next(each.bubble for each in found.removed if each.bubble.where)
    assert f"{bubble.cause}, {bubble.where}" in texts
    words = [t for e, t in page.texts if e.tag == "span" and e.attributes.get("class") == "tag"]
    assert words.count("predicted") == 2
    heads = {t for e, t in page.texts if e.tag == "th"}
    assert {"saves, predicted", "device if free, predicted µs"} <= heads
    stale = replace(found, stale="the model")
    pages = replace(few, predicted=(stale,))
    assert "since then the model changed" in report_page.page_text(
        replace(record, lineages=(pages,))
    )


def test_a_parent_of_other_costs_is_left_out(record: ReportRecord) -> None:
    (lineage,) = (each for each in record.lineages if each.name == "group_gemm")
    both = [each.schedules[-1] for each in lineage.predicted]
    context = Context(find_project(ROOT))
    steps = {name: context.lineages.get(name) for name in ("v15", "v16")}
    other = [replace(both[0], costs="others"), replace(both[1], source="edited")]
    parent, step = predicted_pages(other, steps)
    assert parent.stale == "the model" and step.stale == "the step's sources"
    assert len(step.schedules) == 1 and step.removed == ()
    assert all(each.parent_us is None for each in step.causes)
