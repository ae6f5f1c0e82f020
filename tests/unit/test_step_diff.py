"""The difference of two steps: text, building blocks, settings, resources, figures."""

from __future__ import annotations

import difflib
import random
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import result_row, run_record

from kernelbench.base.errors import PlannedStepError
from kernelbench.inspection import resources
from kernelbench.inspection.resources import Build, Code, Inspection
from kernelbench.lineages import scaffold, source_diff
from kernelbench.lineages import step_diff as step_change
from kernelbench.lineages.source_diff import BlockChange
from kernelbench.lineages.step_diff import Change, FigureChange
from kernelbench.project.project_file import project_at
from kernelbench.project.registry import Lineages, Reported, Step, load_lineages
from kernelbench.records import ledger

TOML = """\
name = "{name}"
parent = "{parent}"
title = "Title of {name}"
technique = "Technique of {name}"
hypothesis = "h"
arch = "sm_100a"
status = "works"

[config]
{config}
"""
needs_clang_format = pytest.mark.skipif(
    source_diff.clang_format() is None, reason="no clang-format here"
)


def write(folder: Path, config: str = "", parent: str = "", **files: str) -> None:
    folder.mkdir(parents=True)
    toml = TOML.format(name=folder.name, parent=parent, config=config)
    (folder / "step.toml").write_text(toml.replace('parent = ""\n', ""))
    for name, text in files.items():
        (folder / (f"{name}.cu" if name == "launch" else f"{name}.cuh")).write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """s1 <- s2 <- s3, and three building blocks."""
    own = tmp_path / "own"
    common = own / "common"
    (common / "ptx").mkdir(parents=True)
    (common / "backend").mkdir()
    (common / "wait.cuh").write_text('#include "ptx/barrier.cuh"\nint wait();\n')
    (common / "ptx" / "barrier.cuh").write_text('#include "barrier.inl"\nint barrier();\n')
    (common / "ring.cuh").write_text("int ring();\n")
    (own / "lineage.toml").write_text('name = "own"\ntitle = "t"\nproblem = "p.py:P"\n')
    (tmp_path / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["own"]\n')
    launch = '#include "kernel.cuh"\n'
    write(
        own / "s1", "stages = 5\ntile = [1, 2, 5]", launch=launch, kernel="int a;\nint b;\nint c;\n"
    )
    write(
        own / "s2",
        'stages = 4\ntile = [1, 2, 5]\ngrid = "one"',
        "s1",
        launch=launch,
        kernel='#include "wait.cuh"\nint a;\nint d;\nint e;\nint c;\n',
    )
    write(own / "s3", "", "s2", launch=launch, other="int x;\n", kernel='#include "ring.cuh"\n')
    return tmp_path


def load(root: Path) -> Lineages:
    return load_lineages(project_at(root))


def pair(root: Path, base: str = "s1", cand: str = "s2") -> tuple[Step, Step]:
    lineages = load(root)
    return lineages.get(base), lineages.get(cand)


class TestText:
    def test_counts(self, root: Path) -> None:
        (file,) = source_diff.source_diff(*pair(root)).files
        assert (file.name, file.change) == ("kernel.cuh", "changed")
        # The include is new, and b became d and e.
        assert (file.added, file.removed, file.changed_lines) == (3, 1, 3)

    def test_files_that_only_one_has(self, root: Path) -> None:
        for names, change in ((("s2", "s3"), "added"), (("s3", "s2"), "removed")):
            files = {f.name: f for f in source_diff.source_diff(*pair(root, *names)).files}
            assert files["other.cuh"].change == change
            assert files["other.cuh"].added + files["other.cuh"].removed == 1

    @pytest.mark.parametrize("seed", range(8))
    def test_the_text_is_a_unified_diff(
        self, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(source_diff, "clang_format", lambda: None)
        rng = random.Random(seed)
        texts = [[str(rng.randrange(6)) for _ in range(rng.randrange(1, 60))] for _ in range(2)]
        files = [tmp_path / f"{i}.cuh" for i in range(2)]
        for file, lines in zip(files, texts, strict=True):
            file.write_text("\n".join(lines) + "\n")
        found = source_diff._file_diff("x", *files)
        assert found is not None
        assert [*found.text] == [*difflib.unified_diff(*texts, lineterm="")][2:]
        assert found.added - found.removed == len(texts[1]) - len(texts[0])

    def test_a_frequent_line_is_an_anchor_in_long_files(self, tmp_path: Path) -> None:
        lines = [f"int line_{i // 2};" if i % 2 else "}" for i in range(400)]
        old, new = tmp_path / "a.txt", tmp_path / "b.txt"
        old.write_text("\n".join(lines))
        new.write_text("\n".join([*lines[:101], "}", *lines[101:]]))
        found = source_diff._file_diff("x", old, new)
        assert found is not None
        assert (found.added, found.removed) == (1, 0)

    @needs_clang_format
    def test_formatting_does_not_count(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        bare = source_diff.source_diff(*pair(root))
        assert not bare.formatted
        assert bare.unformatted == "no .clang-format above s1 and s2"
        (root / ".clang-format").write_text("BasedOnStyle: Google\n")
        kernel = root / "own" / "s2" / "kernel.cuh"
        kernel.write_text("int   a;\n   int b; int c;\n")
        assert source_diff.source_diff(*pair(root)).files == ()
        assert source_diff.source_diff(*pair(root)).formatted
        assert source_diff.source_diff(*pair(root)).unformatted == ""
        monkeypatch.setattr(source_diff, "clang_format", lambda: None)
        raw = source_diff.source_diff(*pair(root))
        assert [file.name for file in raw.files] == ["kernel.cuh"]
        assert not raw.formatted

    def test_a_formatter_that_fails_leaves_the_text(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (root / ".clang-format").write_text("BasedOnStyle: Google\n")
        monkeypatch.setattr(source_diff, "clang_format", lambda: Path("/bin/false"))
        (file,) = source_diff.source_diff(*pair(root)).files
        assert file.added == 3


class TestBlocks:
    def test_what_one_includes_and_the_other_does_not(self, root: Path) -> None:
        found = source_diff.source_diff(*pair(root))
        # Through wait.cuh; what a backend puts behind barrier.inl is no building block.
        assert found.blocks_added == (
            BlockChange("ptx/barrier.cuh", "own/common", 2),
            BlockChange("wait.cuh", "own/common", 2),
        )
        assert found.blocks_removed == ()
        back = source_diff.source_diff(*pair(root, "s2", "s3"))
        assert [block.name for block in back.blocks_added] == ["ring.cuh"]
        assert [block.name for block in back.blocks_removed] == ["ptx/barrier.cuh", "wait.cuh"]

    def test_a_file_of_the_step_goes_before_a_block(self, root: Path) -> None:
        (root / "own" / "s2" / "wait.cuh").write_text("int wait();\n")
        assert source_diff.source_diff(*pair(root)).blocks_added == ()


def test_the_table_of_a_lineage(root: Path) -> None:
    table = source_diff.count_deltas(load(root), "own")
    rows = [(r.parent, r.step, r.added, r.removed, r.changed, r.block_lines) for r in table.rows]
    assert rows[0] == ("s1", "s2", 3, 1, 3, 4)
    assert rows[1][:2] == ("s2", "s3")
    assert rows[1][5] == 1
    assert table.median_added == (rows[0][2] + rows[1][2]) / 2
    assert table.median_changed == (rows[0][4] + rows[1][4]) / 2


def code(kernel: str, registers: int, code_bytes: int = 100) -> Code:
    return Code(
        kernel=kernel, symbol=kernel, registers=registers, barriers=1, stack_bytes=0,
        spill_store_bytes=0, spill_load_bytes=0, static_shared_bytes=0, dynamic_shared_bytes=9,
        threads=192, ctas_per_sm=1, limited_by=("registers",), code_bytes=code_bytes,
    )  # fmt: skip


def inspected(step: Step, *codes: Code, **constants: int) -> Inspection:
    """With constants that are as ``step.toml`` says, or else nothing, but for those named."""
    m, n, k = step.config.get("tile", [0, 0, 0])
    said = dict.fromkeys(("accumulators", "cluster", "shared_bytes", "stages", "tmem_columns"), 0)
    said |= {"tile_m": m, "tile_n": n, "tile_k": k, "threads": 0, **constants}
    build = Build("sm_100a", False, codes, (), ())
    return Inspection(step.name, "", said, (build,) if codes else (), (), ())


class TestChanges:
    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, Inspection]:
        """What the compilers would say, by step."""
        answers: dict[str, Inspection] = {}
        monkeypatch.setattr(resources, "inspect", lambda step, _: answers[step.name])
        return answers

    def test_resources_of_the_only_kernel(self, root: Path, asked: dict[str, Inspection]) -> None:
        base, cand = pair(root)
        asked["s1"] = inspected(base, code("one", 80), stages=5, tmem_columns=256, threads=192)
        asked["s2"] = inspected(cand, code("two", 80, 120), stages=4, tmem_columns=256, threads=192)
        found = step_change.step_diff(base, cand, [], [])
        assert found.constants == (
            Change("stages", "5", "4"),
            Change("TMEM columns", "256", "256"),
        )
        (kernel,) = found.kernels
        assert (kernel.before_name, kernel.after_name) == ("one", "two")
        assert kernel.changes == (
            Change("registers", "80", "80"),
            Change("machine code, B", "100", "120"),
        )
        assert found.not_built == ()

    def test_kernels_that_come_and_go(self, root: Path, asked: dict[str, Inspection]) -> None:
        base, cand = pair(root)
        asked["s1"] = inspected(base, code("route", 10), code("sort", 20))
        asked["s2"] = inspected(cand, code("route", 12))
        kernels = step_change.step_diff(base, cand, [], []).kernels
        assert [(k.before_name, k.after_name) for k in kernels] == [
            ("route", "route"),
            ("sort", None),
        ]
        assert kernels[0].changes == (Change("registers", "10", "12"),)

    def test_a_step_that_is_not_built_has_not_lost_its_kernels(
        self, root: Path, asked: dict[str, Inspection]
    ) -> None:
        base, cand = pair(root)
        asked["s1"] = inspected(base, code("one", 80))
        asked["s2"] = replace(inspected(cand), constants=None, missing=("cannot build s2",))
        found = step_change.step_diff(base, cand, [], [])
        assert found.kernels == ()
        assert found.not_built == ("cannot build s2",)

    def test_settings_that_the_code_does_not_have(
        self, root: Path, asked: dict[str, Inspection]
    ) -> None:
        toml = root / "own" / "s2" / "step.toml"
        toml.write_text(toml.read_text() + "warps = 6\naccumulators = 2\ncluster = [2, 1, 1]\n")
        base, cand = pair(root)
        asked["s1"] = inspected(base, stages=5)
        right = {"stages": 4, "threads": 192, "accumulators": 2, "cluster": 2}
        for wrong, remarks in (
            ({}, ()),
            ({"stages": 3}, ("s2: step.toml says stages = 4, the code 3",)),
            ({"threads": 224}, ("s2: step.toml says warps = 6, the code 7",)),
            ({"tile_n": 3}, ("s2: step.toml says tile = 1×2×5, the code 1×3×5",)),
            ({"cluster": 1}, ("s2: step.toml says cluster = 2×1×1, the code 1×1×1",)),
        ):
            asked["s2"] = inspected(cand, **(right | wrong))
            assert step_change.step_diff(base, cand, [], []).remarks == remarks

    def test_words_that_are_still_a_copys(self, root: Path) -> None:
        words = "technique in step.toml does not say yet what changes"
        made = scaffold.new_step(load(root), "s4", load(root).get("s1"))
        base = load(root).get("s1")
        assert step_change.step_diff(base, made, [], [], build=False).remarks == ()
        (made.path / "kernel.cuh").write_text("int other;\n")
        assert step_change.step_diff(base, made, [], [], build=False).remarks == (f"s4: {words}",)

    def test_without_nvcc_it_says_so(self, root: Path, asked: dict[str, Inspection]) -> None:
        base, cand = pair(root)
        asked["s1"] = inspected(base, stages=5)
        asked["s2"] = replace(inspected(cand), constants=None, missing=("s2: no compiler",))
        found = step_change.step_diff(base, cand, [], [])
        assert found.constants == ()
        assert found.kernels == ()
        assert found.not_built == (
            "s1: no nvcc, so no registers and no machine code",
            "s2: no compiler",
        )

    def test_settings(self, root: Path) -> None:
        found = step_change.step_diff(*pair(root), [], [], build=False)
        assert found.settings == (Change("stages", "5", "4"), Change("grid", None, "one"))
        assert found.not_built == ()

    def test_a_planned_step_has_no_difference(self, root: Path) -> None:
        base, cand = pair(root)
        with pytest.raises(PlannedStepError, match="s2 is planned"):
            step_change.step_diff(base, replace(cand, status="planned"), [], [])


class TestFigures:
    REPORTED = Reported("NVIDIA B200", "call", "us", {"A": 100.0, "B": 50.0})

    def figures(self, root: Path, new: Reported | None, *runs: object) -> tuple[FigureChange, ...]:
        base, cand = pair(root)
        base, cand = replace(base, reported=self.REPORTED), replace(cand, reported=new)
        return step_change.step_diff(base, cand, runs, [], build=False).figures  # type: ignore[arg-type]

    def test_reported_figures_of_the_same_kind(self, root: Path) -> None:
        new = replace(self.REPORTED, values={"A": 80.0, "C": 1.0})
        (found,) = self.figures(root, new)
        assert (found.source, found.shape, found.before, found.after) == ("reported", "A", 100, 80)
        assert found.change == pytest.approx(-0.2)

    @pytest.mark.parametrize(
        "other", [{"device": "NVIDIA H800"}, {"metric": "device"}, {"unit": "TFLOPS"}]
    )
    def test_figures_of_another_kind_are_not_compared(
        self, root: Path, other: dict[str, str]
    ) -> None:
        assert self.figures(root, replace(self.REPORTED, **other)) == ()
        assert self.figures(root, None) == ()

    def test_measured_figures_of_the_same_device_only(self, root: Path) -> None:
        runs = (
            run_record(result_row("s1", median=50.0)),
            run_record(result_row("s2", median=40.0)),
            run_record(result_row("s2", median=10.0), device="NVIDIA B200"),
            run_record(result_row("s2", shape="B", executor="emulator")),
        )
        (found,) = self.figures(root, None, *runs)
        assert (found.source, found.device, found.metric) == (
            "measured", "NVIDIA H200", "device, cold L2",
        )  # fmt: skip
        assert found.change == pytest.approx(-0.2)

    def test_verdicts_of_these_two(self, root: Path) -> None:
        entries = [
            ledger.LedgerEntry(
                ledger.SCHEMA, "x", "2030", "NVIDIA H200", "", "", ledger.ArmRecord(base, ""),
                ledger.ArmRecord(cand, ""), "A", "device", "graph", "FASTER", "", 1.0, 1.0, -0.1,
                None, None,
            )
            for base, cand in (("s1", "s2"), ("s2", "s1"), ("s1", "s3"), ("s2", "s2"))
        ]  # fmt: skip
        found = step_change.step_diff(*pair(root), [], entries, build=False)
        assert [(v.base, v.cand) for v in found.verdicts] == [("s1", "s2"), ("s2", "s1")]
