"""New steps and variants from old ones."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernelbench.base.errors import EnvironmentProblem, PlannedStepError, UsageError
from kernelbench.compare import comparer
from kernelbench.kinds.callables import load_callable
from kernelbench.lineages import scaffold
from kernelbench.lineages.scaffold import StepWords
from kernelbench.lineages.source_diff import changed_files
from kernelbench.project import overlay
from kernelbench.project.project_file import project_at
from kernelbench.project.registry import Lineages, load_lineages

TOML = """\
name = "{name}"
title = "t"
technique = "t"
hypothesis = "h"
status = "{status}"
{rest}
"""
CUDA = """\
arch = "sm_100a"
gpu_flags = ["--ftz=true"]

[config]
tile = [128, 256]
grid = 'the "whole" one'
ratio = 0.5
clc = true

[limits]
nk = "fixed"

[[allowance]]
what = "spill"
reason = "r"

[reported]
device = "d"
metric = "call"
unit = "us"
values = { A = 1.0 }
"""


def write(folder: Path, rest: str, status: str = "works", **files: str) -> None:
    (folder / "sub").mkdir(parents=True)
    (folder / "step.toml").write_text(TOML.format(name=folder.name, status=status, rest=rest))
    for name, text in files.items():
        (folder / name.replace("__", "/").replace("_", ".")).write_text(text)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`own` with s1 (CUDA), p1 (Python), bad (failed), later (planned); `other` with m1."""
    monkeypatch.setenv("KERNELBENCH_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "project"
    own, other = root / "own", root / "other"
    write(own / "s1", CUDA, launch_cu="int a;\n", kernel_cuh="int b;\n", sub__part_cuh="int c;\n")
    python = 'arch = "any"\nkind = "python"\nentry = "main.py"'
    write(own / "p1", python, main_py="def custom_kernel(data): return data + 1\n")
    write(own / "bad", 'arch = "sm_100a"', "failed", launch_cu="int a;\n")
    write(own / "later", 'arch = "sm_100a"', "planned")
    write(other / "m1", python, main_py="def custom_kernel(data): return data\n")
    for folder in (own, other):
        (folder / "lineage.toml").write_text(
            f'name = "{folder.name}"\ntitle = "t"\nproblem = "p.py:P"\n'
        )
    (root / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["own", "other"]\n')
    return root


def load(root: Path) -> Lineages:
    return load_lineages(project_at(root))


class TestNewStep:
    def test_it_is_its_parent_to_the_last_byte(self, root: Path) -> None:
        source = load(root).get("s1")
        made = scaffold.new_step(load(root), "s2", source)
        step = load(root).get("s2")
        assert made == step
        assert step.path == root / "own" / "s2"
        assert (step.parent, step.status, step.base) == ("s1", "works", None)
        assert comparer.identical(source, step)
        assert step.config == source.config
        assert step.limits == source.limits
        assert step.allowances == source.allowances
        # What was reported or repaired is the source's own affair.
        assert step.reported is None
        assert [step.name for step in load(root).steps_of("own")][-2:] == ["s2", "bad"]

    @pytest.mark.parametrize("variant", [False, True])
    def test_a_step_of_another_project_is_refused(
        self, root: Path, tmp_path: Path, variant: bool
    ) -> None:
        """It was written into the other project, or beside another step of the same name."""
        elsewhere = tmp_path / "elsewhere"
        shutil.copytree(root, elsewhere)
        lineages = load(root)
        (source,) = lineages.select([str(elsewhere / "own" / "s1")])
        make = scaffold.new_variant if variant else scaffold.new_step
        with pytest.raises(UsageError, match="own/s1 is no step of this project; name one"):
            make(lineages, "s2", source)
        assert not [*tmp_path.rglob("s2")]

    def test_a_python_step_runs(self, root: Path) -> None:
        made = scaffold.new_step(load(root), "p2", load(root).get("p1"))
        assert (made.kind, made.arch) == ("python", "any")
        assert load_callable(overlay.entry_of(made))(1) == 2

    def test_what_it_says_of_itself(self, root: Path) -> None:
        words = StepWords('A "title"', "One line.", "Because \\ so")
        made = scaffold.new_step(load(root), "s2", load(root).get("s1"), words)
        assert (made.title, made.technique, made.hypothesis) == (
            words.title, words.technique, words.hypothesis,
        )  # fmt: skip
        readme = (made.path / "README.md").read_text()
        assert readme.startswith('# s2 · A "title"\n')
        assert "(from [s1](../s1/)). One line.\n" in readme
        bare = scaffold.new_step(load(root), "s3", load(root).get("s1"))
        assert bare.title == "A copy of s1"
        assert scaffold.still_a_copy(bare)
        assert not scaffold.still_a_copy(made)

    def test_words_are_one_line_each(self, root: Path) -> None:
        words = StepWords(" two\nlines ", "\t", "a\r\nb")
        made = scaffold.new_step(load(root), "s2", load(root).get("s1"), words)
        assert (made.title, made.hypothesis) == ("two lines", "a b")
        assert scaffold.still_a_copy(made)

    def test_a_copy_of_a_failed_step_fails_too(self, root: Path) -> None:
        assert scaffold.new_step(load(root), "s2", load(root).get("bad")).status == "failed"

    def test_a_copy_of_a_failed_experiment_lies_beside_it(self, root: Path) -> None:
        (root / "own" / "bad").rename(root / "own" / "moved")
        (root / "own" / "failed").mkdir()
        (root / "own" / "moved").rename(root / "own" / "failed" / "bad")
        made = scaffold.new_step(load(root), "worse", load(root).get("bad"))
        assert made.path == root / "own" / "failed" / "worse"
        assert load(root).get("worse").experiment
        assert "(from [bad](../bad/))" in (made.path / "README.md").read_text()

    def test_whether_ranges_have_it_after_its_parent(self, root: Path) -> None:
        for name, before in (("s2", False), ("a", True), ("z", False)):
            made = scaffold.new_step(load(root), name, load(root).get("s1"))
            assert scaffold.sorts_before_parent(load(root), made) is before
        variant = scaffold.new_variant(load(root), "b", load(root).get("s1"))
        assert not scaffold.sorts_before_parent(load(root), variant)
        promoted = scaffold.new_step(load(root), "c", variant)
        assert not scaffold.sorts_before_parent(load(root), promoted)


class TestNewVariant:
    def test_it_holds_only_what_was_asked_for(self, root: Path) -> None:
        source = load(root).get("s1")
        made = scaffold.new_variant(load(root), "s1-x", source, ["sub/part.cuh"])
        assert made.path == root / "own" / "variants" / "s1-x"
        assert (made.base, made.parent) == (source, "s1")
        files = {p.relative_to(made.path).as_posix() for p in made.path.rglob("*") if p.is_file()}
        assert files == {"README.md", "step.toml", "sub/part.cuh"}
        assert comparer.identical(source, made)
        assert "(from [s1](../../s1/))" in (made.path / "README.md").read_text()
        (made.path / "sub" / "part.cuh").write_text("int d;\n")
        (changed,) = changed_files(source, load(root).get("s1-x"))
        assert changed.name == "sub/part.cuh"

    def test_a_variant_of_a_variant_has_the_same_base(self, root: Path) -> None:
        first = scaffold.new_variant(load(root), "s1-x", load(root).get("s1"), ["kernel.cuh"])
        (first.path / "kernel.cuh").write_text("int changed;\n")
        toml = first.path / "step.toml"
        own = 'base = "s1"\ngpu_flags = []\n[config]\nratio = 2\n'
        toml.write_text(toml.read_text().replace('base = "s1"\n', own))
        first = load(root).get("s1-x")
        second = scaffold.new_variant(load(root), "s1-y", first)
        assert second.base == first.base
        assert second.parent == "s1-x"
        assert second.config["ratio"] == 2
        assert comparer.identical(first, second)
        # What is the base's own stays there.
        text = (second.path / "step.toml").read_text()
        assert 'base = "s1"\ngpu_flags = []\n\n[config]\nratio = 2\n\n[[allow' in text

    def test_what_the_compilers_may_say_of_it(self, root: Path) -> None:
        source = load(root).get("s1")
        made = scaffold.new_variant(load(root), "s1-x", source, ["kernel.cuh"])
        assert made.allowances == source.allowances
        assert len(made.allowances) == 1

    def test_a_step_from_a_variant_has_all_files(self, root: Path) -> None:
        first = scaffold.new_variant(load(root), "s1-x", load(root).get("s1"), ["kernel.cuh"])
        made = scaffold.new_step(load(root), "s2", first)
        assert comparer.identical(first, made)
        assert "(from [s1-x](../variants/s1-x/))" in (made.path / "README.md").read_text()


class TestRefusals:
    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("p1", "p1 exists: .*own/p1; choose another name, such as s2$"),
            ("m1", "m1 exists: .*other/m1; choose another name, such as s2$"),
            ("S1", "s1 exists: .*own/s1; choose another name"),
            ("later", "later exists: .*own/later; choose another name$"),
            ("other", "other is the name of a lineage; choose another name$"),
            ("m2", "m2 is named as the steps of other are; this is one of own: .* such as s2$"),
            ("common", "common is the folder of the building blocks"),
            ("2s", "'2s' is no name for a step"),
            ("a/b", "'a/b' is no name for a step"),
            ("../s2", "is no name for a step"),
            (".s2", "is no name for a step"),
            ("", "is no name for a step"),
        ],
    )
    def test_names(self, root: Path, name: str, message: str) -> None:
        for make in (scaffold.new_step, scaffold.new_variant):
            with pytest.raises(UsageError, match=message) as caught:
                make(load(root), name, load(root).get("s1"))
            assert "\n" not in str(caught.value)

    def test_a_folder_that_is_no_step(self, root: Path) -> None:
        (root / "own" / "s2").mkdir()
        with pytest.raises(UsageError, match="own/s2 exists, but is no step"):
            scaffold.new_step(load(root), "s2", load(root).get("s1"))

    def test_a_planned_source(self, root: Path) -> None:
        with pytest.raises(PlannedStepError, match="later is planned"):
            scaffold.new_step(load(root), "s2", load(root).get("later"))

    def test_a_submission_as_source(self, root: Path) -> None:
        file = root / "mine.py"
        file.write_text("def custom_kernel(data): ...\n")
        (source,) = load(root).select([str(file)])
        with pytest.raises(UsageError, match="mine belongs to no lineage"):
            scaffold.new_step(load(root), "s2", source)

    def test_a_file_that_the_source_lacks(self, root: Path) -> None:
        with pytest.raises(UsageError, match=r"unknown file 'kernel\.cu' of s1; did you mean"):
            scaffold.new_variant(load(root), "s1-x", load(root).get("s1"), ["kernel.cu"])

    def test_a_failure_leaves_nothing(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("shutil.copyfile", full)
        before = sorted(root.rglob("*"))
        with pytest.raises(EnvironmentProblem, match=r"cannot write .*s2: No space left on device"):
            scaffold.new_step(load(root), "s2", load(root).get("s1"))
        assert sorted(root.rglob("*")) == before
