"""The code lock: this checkout's is current, and it tells an edited step from one that was moved.

Also: no step spills or warns without an allowance in its ``step.toml``.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT

from kernelbench.base import console
from kernelbench.base.errors import EnvironmentProblem, RecordError, UsageError
from kernelbench.build import compiler
from kernelbench.inspection import code_lock, cubin, resources
from kernelbench.inspection.code_lock import LockedKernel, LockedStep, LockKey, Move
from kernelbench.project.model import Step
from kernelbench.project.project_file import Project, project_at
from kernelbench.project.registry import load_lineages

needs_nvcc = pytest.mark.skipif(compiler.nvcc() is None, reason="no nvcc: nothing can be compiled")

PROJECT = project_at(ROOT)
WRITTEN = {step.name: step for step in code_lock.locked_steps(load_lineages(PROJECT).steps)}
FLAVOURS = [
    (name, soft) for name, step in WRITTEN.items() for soft in resources.flavours(step, "all")
]


def test_every_step_with_device_code_is_covered() -> None:
    """By the files in the folders, whatever ``step.toml`` says of kind and status."""
    folders = [file.parent for path in PROJECT.lineages for file in path.rglob("step.toml")]
    with_code = {folder.name for folder in folders if any(folder.glob("*.cu*"))}
    assert with_code
    assert with_code <= set(WRITTEN)


@needs_nvcc
@pytest.mark.long
@pytest.mark.parametrize(("name", "soft"), FLAVOURS)
def test_no_spill_and_no_warning(name: str, soft: bool) -> None:
    step = WRITTEN[name]
    code = cubin.compile_cubin(step, soft=soft)
    assert code.kernels
    assert cubin.complaints(code, step.allowances) == []


def test_this_checkout_is_as_locked() -> None:
    moves, why_not = code_lock.check_lock(PROJECT)
    if why_not:
        pytest.skip(f"the code lock cannot be compared: {why_not}")
    assert [str(move) for move in moves] == [], "if that is meant, run `make lock`"


@needs_nvcc
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_this_checkout_is_as_locked_whatever_its_keys_say() -> None:
    moves, why_not = code_lock.check_lock(PROJECT, anew=True)
    if why_not:
        pytest.skip(f"the code lock cannot be compared: {why_not}")
    assert [str(move) for move in moves] == []


STEP = """\
name = "{name}"
title = "{name}"
technique = "none"
hypothesis = "none"
arch = "sm_100a"
status = "works"
"""
KERNEL = """\
#include "shared.cuh"
extern "C" __global__ void kernel(float* p) { p[threadIdx.x] = mechanism(p[0]) + 1; }
"""
WORKS = 'status = "works"'
ALLOWED = '\n[[allowance]]\nwhat = "{}"\nreason = "a test"\n'
STALE = "its keys changed through common/, its own sources are as recorded; its code did not"
SHARED = "__device__ inline float mechanism(float x) { return x * 2; }\n"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A compile cache of these tests' own: what two of them build is built once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def project(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Two steps over one building block, locked."""
    monkeypatch.setenv(compiler.CACHE_VARIABLE, str(cache))
    root = tmp_path / "project"
    for backend in ("sm100a", "soft"):
        (root / "tiny" / "common" / "backend" / backend).mkdir(parents=True)
    (root / "results").mkdir()
    (root / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["tiny"]\n')
    (root / "tiny" / "lineage.toml").write_text(
        'name = "tiny"\ntitle = "t"\nproblem = "kernelbench.problems.group_gemm:PROBLEM"\n'
    )
    (root / "tiny" / "common" / "shared.cuh").write_text(SHARED)
    for name in ("one", "two"):
        (root / "tiny" / name).mkdir()
        (root / "tiny" / name / "step.toml").write_text(STEP.format(name=name))
        (root / "tiny" / name / "launch.cu").write_text(KERNEL)
    found = project_at(root)
    if compiler.nvcc() is not None:
        code_lock.update(found)
    return found


def edit(project: Project, file: str, old: str, new: str) -> None:
    path = project.root / "tiny" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def moved(project: Project) -> dict[str, Move]:
    moves, why_not = code_lock.check_lock(project)
    assert why_not == ""
    return {move.key.step: move for move in moves}


@needs_nvcc
class TestCheck:
    def test_current(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        assert moved(project) == {}
        monkeypatch.setenv("KERNELBENCH_ROOT", str(project.root))
        assert code_lock.main(["--check"]) == 0

    def test_progress(
        self,
        project: Project,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv("KERNELBENCH_ROOT", str(project.root))
        monkeypatch.setattr(code_lock, "Status", lambda: console.Status(interval_s=0.0))
        assert code_lock.main(["--check"]) == 0
        assert capsys.readouterr().err == "", "nothing had to be built"
        assert code_lock.main(["--check", "--anew"]) == 0
        captured = capsys.readouterr()
        assert captured.out == ""
        lines = ["building 2 steps", "built 1 of 2 steps", "built 2 of 2 steps"]
        assert captured.err.splitlines() == lines

    def test_comments_move_nothing(self, project: Project) -> None:
        edit(project, "common/shared.cuh", "__device__", "// Why.\n\n__device__")
        edit(project, "one/launch.cu", "extern", "/* what */\nextern")
        assert moved(project) == {}

    def test_what_is_as_recorded_is_not_built_again(
        self, project: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        built: list[str] = []
        compile_cubin = cubin.compile_cubin

        def counting(step: Step, *, soft: bool = False) -> cubin.Cubin:
            built.append(f"{step.name} {'soft' if soft else 'native'}")
            return compile_cubin(step, soft=soft)

        monkeypatch.setattr(cubin, "compile_cubin", counting)
        assert moved(project) == {}
        assert built == []
        edit(project, "one/launch.cu", "+ 1", "+ 7")
        assert set(moved(project)) == {"one"}
        assert built == ["one native", "one soft"]
        built.clear()
        code_lock.check_lock(project, anew=True)
        assert sorted(built) == ["one native", "one soft", "two native", "two soft"]

    def test_a_wrong_key_fails(self, project: Project) -> None:
        """It neither skips the build nor goes unseen: code that is not as recorded is found."""
        path = project.results / "code.lock"
        right = code_lock.read_lock(path)
        for name in ("native", "soft"):
            wrong = {
                key: replace(entry, keys=entry.keys | {name: "0" * 64})
                for key, entry in right.items()
            }
            path.write_text(code_lock.text_of(wrong))
            assert {move.what for move in moved(project).values()} == {STALE}
        edit(project, "one/launch.cu", "+ 1", "+ 7")
        assert "changed with its own sources: kernel (" in moved(project)["one"].what
        path.write_text(
            code_lock.text_of({k: replace(entry, keys={}) for k, entry in right.items()})
        )
        assert set(moved(project)) == {"one", "two"}

    @pytest.mark.parametrize(
        ("file", "old", "new"),
        [
            ("one/step.toml", WORKS, WORKS + '\ngpu_flags = ["--use_fast_math"]'),
            ("one/step.toml", WORKS, WORKS + ALLOWED.format("spill")),
            ("one/launch.cu", '#include "shared.cuh"', '#include "shared.cuh"\n#define Y'),
            ("common/shared.cuh", "x * 2", "x + x"),
        ],
        ids=["flags", "allowances", "text", "included text"],
    )  # fmt: skip
    def test_the_key_is_of_all_that_decides(
        self, project: Project, file: str, old: str, new: str
    ) -> None:
        def keys() -> dict[bool, str]:
            (step,) = (s for s in load_lineages(project).steps if s.name == "one")
            return {soft: code_lock.build_key(step, soft=soft) for soft in (False, True)}

        before = keys()
        edit(project, file, old, new)
        after = keys()
        assert all(before[soft] != after[soft] for soft in (False, True))
        assert before[False] != before[True]

    def test_a_build_that_complains_gets_no_key(self, project: Project) -> None:
        edit(project, "one/launch.cu", "{ p", "{ int unused = 3; p")
        moves = code_lock.update(project)
        assert any("native build: " in str(move) and "unused" in str(move) for move in moves)
        for _ in range(2):  # it stays so, until it is mended or allowed
            moves, _ = code_lock.check_lock(project)
            assert {move.key.step for move in moves} == {"one"}
            assert {move.what.partition(":")[0] for move in moves} == {"native build", "soft build"}
        edit(project, "one/step.toml", WORKS, WORKS + ALLOWED.format("warning"))
        code_lock.update(project)
        assert moved(project) == {}

    def test_a_building_block_moves_every_step(
        self,
        project: Project,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        edit(project, "common/shared.cuh", "x * 2", "x * 3")
        moves = moved(project)
        assert set(moves) == {"one", "two"}
        assert not any(move.own for move in moves.values())
        assert str(moves["one"]).startswith("one (sm_100a): changed through common/")
        assert "kernel (" in str(moves["one"])
        monkeypatch.setenv("KERNELBENCH_ROOT", str(project.root))
        assert code_lock.main([]) == 1
        lines = capsys.readouterr().out.splitlines()
        assert [line.split(" (")[0] for line in lines[:2]] == [
            "results/code.lock: one",
            "results/code.lock: two",
        ]
        assert "make lock" in lines[2]

    def test_an_edited_step_is_told_from_a_moved_one(self, project: Project) -> None:
        edit(project, "one/launch.cu", "+ 1", "+ 7")
        assert {name: move.own for name, move in moved(project).items()} == {"one": True}
        edit(project, "common/shared.cuh", "x * 2", "x * 3")
        assert {name: move.own for name, move in moved(project).items()} == {
            "one": True,
            "two": False,
        }

    def test_update_records_and_says_what_moved(self, project: Project) -> None:
        edit(project, "two/launch.cu", "kernel(", "other(")
        (move,) = code_lock.update(project)
        assert "kernel is gone; other is new" in str(move)
        assert moved(project) == {}

    def test_steps_that_come_and_go(self, project: Project) -> None:
        (project.root / "tiny" / "two").rename(project.root / "tiny" / "three")
        edit(project, "three/step.toml", "two", "three")
        moves = moved(project)
        assert "is not recorded" in str(moves["three"])
        assert "no such compiled step" in str(moves["two"])
        code_lock.update(project)
        assert {key.step for key in code_lock.read_lock(project.results / "code.lock")} == {
            "one",
            "three",
        }

    def test_no_lock_at_all(self, project: Project) -> None:
        (project.results / "code.lock").unlink()
        assert set(moved(project)) == {"one", "two"}

    def test_another_nvcc_is_not_compared_and_its_entries_stay(
        self, project: Project, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = compiler.nvcc()
        assert real is not None
        before = code_lock.read_lock(project.results / "code.lock")
        other = compiler.Compiler("nvcc", real.path, "99.1")
        monkeypatch.setattr(compiler, "nvcc", lambda: other)
        moves, why_not = code_lock.check_lock(project)
        assert moves == []
        assert why_not == f"it is of nvcc {real.version}, here is 99.1"
        code_lock.update(project)
        after = code_lock.read_lock(project.results / "code.lock")
        assert before.items() <= after.items()
        assert {key.nvcc for key in after} == {real.version, "99.1"}

    def test_a_step_that_does_not_compile_leaves_the_lock(self, project: Project) -> None:
        before = (project.results / "code.lock").read_bytes()
        edit(project, "one/launch.cu", "+ 1", "+ nonsense")
        with pytest.raises(compiler.CompileFailure, match="nonsense"):
            code_lock.check_lock(project)
        with pytest.raises(compiler.CompileFailure, match="nonsense"):
            code_lock.update(project)
        assert (project.results / "code.lock").read_bytes() == before

    def test_it_does_not_depend_on_where_the_checkout_is(
        self, project: Project, tmp_path: Path
    ) -> None:
        shutil.copytree(project.root, tmp_path / "else" / "where")
        assert moved(project_at(tmp_path / "else" / "where")) == {}


def test_without_nvcc(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "nvcc", lambda: None)
    assert code_lock.check_lock(project) == ([], "there is no nvcc here")
    with pytest.raises(EnvironmentProblem, match="the code lock needs nvcc"):
        code_lock.update(project)


class TestFile:
    LOCK_PATH = "code.lock"

    def test_it_is_read_as_written_and_sorted(self, tmp_path: Path) -> None:
        kernels = {"b<1>": LockedKernel("0" * 64, 40, 1280), "a": LockedKernel("f" * 64, 0, 0)}
        lock = {
            LockKey("v02", "sm_100a", "13.0.88"): LockedStep("2" * 64, {}),
            LockKey("v01", "sm_90a", "13.0.88"): LockedStep("1" * 64, kernels),
            LockKey("v01", "sm_90a", "12.9.86"): LockedStep("3" * 64, kernels),
        }
        path = tmp_path / self.LOCK_PATH
        path.write_text(code_lock.text_of(lock))
        assert code_lock.read_lock(path) == lock
        heads = [line for line in path.read_text().splitlines() if line.startswith("[")]
        assert heads == [
            '[v01.sm_90a."12.9.86"]', '[v01.sm_90a."13.0.88"]', '[v02.sm_100a."13.0.88"]',
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("text", "what"),
        [
            ("[v01", "not a code lock"),
            ("v01 = 3", "v01: expected an object"),
            ('[v01.sm_90a."1"]\nsources = "x"', "missing field 'kernels'"),
            ('[v01.sm_90a."1"]\nsources = "x"\nkernels.k = {sha256 = 3}', "sha256: expected str"),
        ],
    )
    def test_malformed(self, tmp_path: Path, text: str, what: str) -> None:
        path = tmp_path / self.LOCK_PATH
        path.write_text(text)
        with pytest.raises(RecordError, match=what):
            code_lock.read_lock(path)

    def test_arguments(self) -> None:
        with pytest.raises(UsageError, match="usage"):
            code_lock.main(["--force"])
