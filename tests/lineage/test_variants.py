"""Variants: steps in a subfolder of their lineage, written as a difference from their base."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from kernelbench.base.errors import UsageError
from kernelbench.build import compiler
from kernelbench.build.compiler import CompileFailure
from kernelbench.compare import comparer
from kernelbench.emulator import branches
from kernelbench.emulator.runtime import STEP_NAME
from kernelbench.emulator.symbols import located
from kernelbench.inspection import code_lock
from kernelbench.kinds import compiled
from kernelbench.kinds.callables import load_callable
from kernelbench.lineages.source_diff import changed_files, counted
from kernelbench.project import overlay
from kernelbench.project.building_blocks import source_sha
from kernelbench.project.project_file import find_project
from kernelbench.project.registry import Lineages, Step, load_lineages
from kernelbench.project.revision import lineages_at
from kernelbench.project.shipped import shipped_blocks
from kernelbench.project.source_files import own_sources, sources_of
from kernelbench.report.readme_tables import BESIDE_TITLE, lineage_table

LINEAGE = 'name = "own"\ntitle = "t"\nproblem = "kernelbench.problems.group_gemm:PROBLEM"\n'
STEP = 'name = "{name}"\ntitle = "t"\ntechnique = "t"\nhypothesis = "h"\nstatus = "works"\n'
BASE = 'arch = "sm_100a"\n{extra}[config]\nstages = 5\nwarps = 6\n[limits]\nnk = "fixed"\n'
LAUNCH = '#include "kernel.cuh"\n#include "store.cuh"\nint entry() { return kStages + kStore; }\n'
KERNEL = "constexpr int kStages = 5;\n"
STORE = "constexpr int kStore = 1;\n"

needs_compiler = pytest.mark.skipif(compiler.host_compiler() is None, reason="no C++ compiler")
needs_nvcc = pytest.mark.skipif(compiler.nvcc() is None, reason="no nvcc: nothing can be compiled")


def write(folder: Path, toml: str, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "step.toml").write_text(STEP.format(name=folder.name) + toml)
    for name, text in files.items():
        (folder / f"{name}.{'cu' if name == 'launch' else 'cuh'}").write_text(text)
    return folder


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lineage with s1, a variant of it with another store, and one without files of its own."""
    monkeypatch.setenv(compiler.CACHE_VARIABLE, str(tmp_path / "cache"))
    root = tmp_path / "project"
    own = root / "own"
    write(own / "s1", BASE.format(extra=""), launch=LAUNCH, kernel=KERNEL, store=STORE)
    write(
        own / "variants" / "s1-wide",
        'parent = "s1"\nbase = "s1"\n[config]\nstages = 4\n',
        store="constexpr int kStore = 2;\n",
    )
    write(own / "variants" / "s1-same", 'parent = "s1"\nbase = "s1"\n')
    (own / "lineage.toml").write_text(LINEAGE)
    (root / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["own"]\n')
    return root


def load(root: Path) -> Lineages:
    return load_lineages(find_project(root))


def names(steps: list[Step]) -> list[str]:
    return [step.name for step in steps]


class TestDiscovery:
    def test_subfolders_are_searched_and_come_after_the_main_line(self, root: Path) -> None:
        write(root / "own" / "s2", BASE.format(extra=""))
        assert names([*load(root).steps]) == ["s1", "s2", "s1-same", "s1-wide"]
        assert names(load(root).select(["s1..s2"])) == ["s1", "s2"]

    @pytest.mark.parametrize(
        "where", [".hidden/x", "variants/.x", "common/x", "s1/x", "variants/s1-wide/x", "a/b/x"]
    )
    def test_other_folders_are_not(self, root: Path, where: str) -> None:
        before = load(root).steps
        write(root / "own" / where, BASE.format(extra=""))
        assert load(root).steps == before

    def test_names_are_unique_over_subfolders(self, root: Path) -> None:
        write(root / "own" / "failed" / "s1", BASE.format(extra=""))
        with pytest.raises(UsageError, match="two steps named s1"):
            _ = load(root).steps

    def test_the_lineage_is_known_from_any_depth(self, root: Path) -> None:
        lineages = load(root)
        for step in lineages.steps:
            assert step.lineage_path == root / "own"
            assert lineages.lineage_of(step) == lineages.lineage("own")
        assert lineages.get("s1-wide").experiment
        assert not lineages.get("s1").experiment

    def test_a_folder_of_steps_means_all_of_them(self, root: Path) -> None:
        variants = root / "own" / "variants"
        assert names(load(root).select([str(variants)])) == ["s1-same", "s1-wide"]
        assert names(load(root).select([str(variants / "s1-wide")])) == ["s1-wide"]

    def test_a_variant_of_another_checkout_has_its_base_there(
        self, root: Path, tmp_path: Path
    ) -> None:
        elsewhere = root.rename(tmp_path / "elsewhere")
        empty = Lineages((), ())
        (step,) = empty.select([str(elsewhere / "own" / "variants" / "s1-wide")])
        assert step.base and step.base.path == elsewhere / "own" / "s1"
        with lineages_at(str(elsewhere), find_project(elsewhere)) as lineages:
            assert lineages.get("s1-wide") == step


class TestInheritance:
    def test_what_a_variant_takes_from_its_base(self, root: Path) -> None:
        write(
            root / "own" / "s1",
            'gpu_flags = ["--fmad=false"]\n'
            + BASE.format(extra="")
            + '[[allowance]]\nwhat = "spill"\nreason = "r"\n',
        )
        base, step = load(root).get("s1"), load(root).get("s1-wide")
        assert step.base == base
        assert (step.kind, step.arch) == ("step", "sm_100a")
        assert step.entry == base.entry
        assert step.config == {"stages": 4, "warps": 6}
        assert step.limits == {"nk": "fixed"}
        assert step.gpu_flags == ("--fmad=false",)
        assert step.allowances == ()
        assert base.allowances != ()

    def test_its_own_flags_replace_those_of_the_base(self, root: Path) -> None:
        write(root / "own" / "s1", 'gpu_flags = ["--fmad=false"]\n' + BASE.format(extra=""))
        write(root / "own" / "variants" / "s1-same", 'base = "s1"\ngpu_flags = []\n')
        assert load(root).get("s1-same").gpu_flags == ()

    @pytest.mark.parametrize(
        ("toml", "message"),
        [
            ('base = "s9"\n', r"unknown step 's9' \(field 'base'\) in .*; did you mean 's1'\?"),
            ('base = "x"\n', "field 'base': bases form a cycle: x has this step as its base"),
            ('base = "y"\n', "field 'base': bases form a cycle: "),
            ('base = "later"\n', "field 'base': later is planned: it has no code yet"),
            ('base = "s1"\nkind = "python"\n', "field 'kind': expected 'step', that of the base"),
            ('base = "s1"\narch = "any"\n', "field 'arch': expected 'sm_100a'"),
            ("", "field 'arch': missing"),
        ],
    )
    def test_errors_are_one_line(self, root: Path, toml: str, message: str) -> None:
        later = write(root / "own" / "later", BASE.format(extra="")) / "step.toml"
        later.write_text(later.read_text().replace('"works"', '"planned"'))
        write(root / "own" / "variants" / "x", toml)
        write(root / "own" / "variants" / "y", 'base = "x"\n')
        with pytest.raises(UsageError, match=message) as caught:
            _ = load(root).steps
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        "flag",
        ["--use_fast_math", "--fmad=false", "--ftz=true", "--maxrregcount=128", "-Xptxas  -O2"],
    )
    def test_gpu_flags(self, root: Path, flag: str) -> None:
        write(root / "own" / "s1", f'gpu_flags = ["{flag}"]\n' + BASE.format(extra=""))
        assert load(root).get("s1").gpu_flags == (" ".join(flag.split()),)

    @pytest.mark.parametrize(
        "flag",
        ["-O0", "--fmad=maybe", "--maxrregcount=0", "-Xptxas", "-Xptxas -O2 -I/", "-DX", "-I/"],
    )
    def test_other_gpu_flags_are_refused(self, root: Path, flag: str) -> None:
        write(root / "own" / "s1", f'gpu_flags = ["{flag}"]\n' + BASE.format(extra=""))
        with pytest.raises(UsageError, match=r"field 'gpu_flags': expected .* found"):
            _ = load(root).steps

    def test_a_python_step_has_no_gpu_flags(self, root: Path) -> None:
        write(root / "own" / "p", 'arch = "any"\nkind = "python"\ngpu_flags = ["--ftz=true"]\n')
        with pytest.raises(UsageError, match="a Python step is not built by nvcc"):
            _ = load(root).steps


class TestSources:
    def test_own_files_stand_in_for_those_of_the_base(self, root: Path) -> None:
        step, base = load(root).get("s1-wide"), root / "own" / "s1"
        assert sources_of(step) == {
            "kernel.cuh": base / "kernel.cuh",
            "launch.cu": base / "launch.cu",
            "store.cuh": step.path / "store.cuh",
        }
        assert [*own_sources(step)] == ["store.cuh"]

    def test_a_base_may_have_a_base(self, root: Path) -> None:
        own = root / "own"
        write(own / "s0", 'base = "s1-wide"\n', kernel="const int kStages = 5;\n")
        step = load(root).get("s0")
        assert sources_of(step) == {
            "kernel.cuh": own / "s0" / "kernel.cuh",
            "launch.cu": own / "s1" / "launch.cu",
            "store.cuh": own / "variants" / "s1-wide" / "store.cuh",
        }
        assert step.config == load(root).get("s1-wide").config
        assert [*own_sources(step)] == ["kernel.cuh"]

    def test_the_hash_is_that_of_the_same_step_written_out(self, root: Path) -> None:
        lineages = load(root)
        assert source_sha(lineages.get("s1-same")) == source_sha(lineages.get("s1"))
        assert comparer.identical(lineages.get("s1-same"), lineages.get("s1"))
        assert source_sha(lineages.get("s1-wide")) != source_sha(lineages.get("s1"))

    @pytest.mark.parametrize("where", ["s1/kernel.cuh", "variants/s1-same/kernel.cuh"])
    def test_the_hash_follows_files_of_both_folders(self, root: Path, where: str) -> None:
        before = source_sha(load(root).get("s1-same"))
        (root / "own" / where).write_text("constexpr int kStages = 7;\n")
        assert source_sha(load(root).get("s1-same")) != before

    def test_the_hash_follows_the_gpu_flags(self, root: Path) -> None:
        before = load(root).get("s1-same")
        write(before.path, 'base = "s1"\ngpu_flags = ["--ftz=true"]\n')
        after = load(root).get("s1-same")
        assert source_sha(after) != source_sha(before)
        assert code_lock.sources_hash(after) != code_lock.sources_hash(before)

    def test_the_difference_is_the_file_that_differs(self, root: Path) -> None:
        lineages = load(root)
        changed = changed_files(lineages.get("s1"), lineages.get("s1-wide"))
        assert counted(changed) == "+1 −1 lines in store.cuh"


class TestComposedFolder:
    def test_a_step_without_base_is_its_own_folder(self, root: Path) -> None:
        step = load(root).get("s1")
        assert overlay.folder_of(step) == step.path
        assert overlay.entry_of(step) == step.entry
        assert not (root.parent / "cache").exists()

    def test_links_to_the_files_of_both(self, root: Path) -> None:
        step = load(root).get("s1-wide")
        folder = overlay.folder_of(step)
        assert {file.name: file.readlink() for file in folder.iterdir()} == sources_of(step)
        assert overlay.folder_of(step) == folder
        assert overlay.entry_of(step) == folder / "launch.cu"
        (step.path / "kernel.cuh").write_text("")
        assert overlay.folder_of(step) != folder

    def test_files_are_shown_by_the_folder_that_they_are_in(self, root: Path) -> None:
        step = load(root).get("s1-wide")
        folder = overlay.folder_of(step)
        shown = [located(folder, PurePosixPath(name)) for name in ("kernel.cuh", "store.cuh")]
        assert shown == [
            (root / "own" / "s1" / "kernel.cuh", "s1/kernel.cuh"),
            (step.path / "store.cuh", "s1-wide/store.cuh"),
        ]

    def test_coverage_names_the_files_too(self, root: Path) -> None:
        folders = {STEP_NAME: overlay.folder_of(load(root).get("s1-wide"))}
        missed = [
            branches.Branches(f"{STEP_NAME}/{n}.cuh", 1, "f", 1, 1, 2) for n in ("kernel", "store")
        ]
        named = [*branches._with_text(missed, folders)]
        assert [(each.file, each.text) for each in named] == [
            ("s1/kernel.cuh", KERNEL.strip()),
            ("s1-wide/store.cuh", "constexpr int kStore = 2;"),
        ]

    def test_folders_of_a_vanished_checkout_go(self, root: Path, tmp_path: Path) -> None:
        gone = overlay.folder_of(load(root).get("s1-wide"))
        root.rename(tmp_path / "moved")
        kept = overlay.folder_of(load(tmp_path / "moved").get("s1-wide"))
        assert kept.is_dir()
        assert not gone.exists()

    def test_a_missing_entry(self, root: Path) -> None:
        (root / "own" / "s1" / "launch.cu").unlink()
        with pytest.raises(UsageError, match=r"s1-wide: .*launch\.cu is missing"):
            overlay.entry_of(load(root).get("s1-wide"))

    def test_a_python_variant_imports_its_own_module(self, root: Path) -> None:
        base, variant = root / "own" / "p", root / "own" / "variants" / "p-two"
        write(base, 'arch = "any"\nkind = "python"\n')
        write(variant, 'base = "p"\n')
        (base / "submission.py").write_text(
            "from part import VALUE\ndef custom_kernel(data): return VALUE\n"
        )
        (base / "part.py").write_text("VALUE = 1\n")
        (variant / "part.py").write_text("VALUE = 2\n")
        loaded = [load_callable(overlay.entry_of(load(root).get(n))) for n in ("p", "p-two", "p")]
        assert [kernel(None) for kernel in loaded] == [1, 2, 1]


@needs_compiler
class TestBuilds:
    def make(self, step: Step) -> Path:
        return compiler.compile_shared(
            step.name,
            [overlay.entry_of(step)],
            ("-x", "c++", "-std=c++20"),
            compiler=compiler.host_compiler(),
        )

    def test_includes_find_the_variants_file(self, root: Path) -> None:
        lineages = load(root)
        libraries = {name: self.make(lineages.get(name)) for name in ("s1", "s1-wide", "s1-same")}
        assert libraries["s1"] == libraries["s1-same"]
        assert libraries["s1"] != libraries["s1-wide"]

    @pytest.mark.parametrize("where", ["s1/kernel.cuh", "variants/s1-wide/store.cuh"])
    def test_diagnostics_name_the_real_file(self, root: Path, where: str) -> None:
        file = root / "own" / where
        file.write_text("int broken = ;\n")
        with pytest.raises(CompileFailure, match=f"{file}:1:14: error"):
            self.make(load(root).get("s1-wide"))


@needs_nvcc
def test_the_code_lock_covers_variants(root: Path) -> None:
    (root / "own" / "common" / "backend" / "sm100a").mkdir(parents=True)
    kernel = 'extern "C" __global__ void k(float* p) { p[0] = p[1] * p[2] + p[3] + kStages; }\n'
    (root / "own" / "s1" / "launch.cu").write_text(f'#include "kernel.cuh"\n{kernel}')
    write(root / "own" / "variants" / "s1-wide", 'base = "s1"\n', kernel="const int kStages = 1;\n")
    write(root / "own" / "variants" / "s1-same", 'base = "s1"\ngpu_flags = ["--fmad=false"]\n')
    steps = code_lock.locked_steps(load(root).steps)
    assert names(steps) == ["s1", "s1-same", "s1-wide"]
    entries = {key.step: entry for key, entry in code_lock.build_entries(steps)[0].items()}
    assert len({entry.sources for entry in entries.values()}) == 3
    assert len({entry.kernels["k"].sha256 for entry in entries.values()}) == 3


def test_tables_list_variants_below_the_main_line(root: Path) -> None:
    lineages = load(root)
    main, beside = lineage_table(lineages.lineage("own"), lineages.steps).split(BESIDE_TITLE)
    assert "[s1](s1/)" in main
    assert "variants" not in main
    assert "[s1-wide](variants/s1-wide/)" in beside
    assert BESIDE_TITLE not in lineage_table(lineages.lineage("own"), [lineages.get("s1")])


def test_the_backend_is_found_from_a_subfolder(root: Path) -> None:
    step = load(root).get("s1-wide")
    assert compiled.common_folder(step) == shipped_blocks()
    (root / "kernels" / "common" / "backend" / "emu").mkdir(parents=True)
    (root / "own" / "common").mkdir()
    assert compiled.common_folder(step) == root / "kernels" / "common"
    assert compiled.lineage_blocks(step) == (root / "own" / "common",)


def test_a_step_with_a_base_is_of_the_main_line_where_its_folder_is() -> None:
    steps = {step.name: step for step in load_lineages(find_project(Path(__file__).parent)).steps}
    for name, base in (("v03", "v02"), ("v05", "v04"), ("v23", "v22")):
        assert steps[name].base == steps[base]
        assert not steps[name].experiment
    assert steps["m05-halves"].base and steps["m05-halves"].experiment
