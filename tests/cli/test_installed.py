"""kernelbench from its wheel: in any folder, and in a project beside what ships."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from conftest import ROOT, Outcome, write_project

from kernelbench.build import prebuilt
from kernelbench.emulator.runtime import runtime_library, runtime_recipe
from kernelbench.lineages.scaffold import files_of
from kernelbench.machine.toolchain import cpu_level
from kernelbench.project.context import Context
from kernelbench.project.project_file import project_at
from kernelbench.project.shipped import shipped_blocks, shipped_names, shipped_root

MEGABYTES = 5


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return build_wheel(tmp_path_factory.mktemp("dist"), {})


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for Python's path with nothing but what the wheel has."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def call(
    installed: Path, folder: Path, *arguments: str, variables: Mapping[str, str] | None = None
) -> Outcome:
    """The installed command in a folder; a traceback fails the test."""
    dropped = {"KERNELBENCH_ROOT", "PYTHONPATH", "COLUMNS"}
    done = subprocess.run(
        [sys.executable, "-m", "kernelbench", *arguments],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name not in dropped}
        | {
            "PYTHONPATH": str(installed),
            "CUDA_VISIBLE_DEVICES": "",
            "NO_COLOR": "1",
            "XDG_DATA_HOME": str(folder.parent / "data"),
        }
        | (variables or {}),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Outcome(done.returncode, done.stdout, done.stderr)


def build_wheel(folder: Path, variables: Mapping[str, str]) -> Path:
    """The wheel of this checkout, made there."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(
        build, cwd=ROOT, check=True, capture_output=True, env={**os.environ, **variables}
    )
    (file,) = folder.glob("*.whl")
    return file


@pytest.mark.skipif(platform.machine() != "x86_64", reason="wheels bring libraries for x86_64")
def test_the_runtime_comes_built(tmp_path: Path) -> None:
    """A wheel that brings the runtime of these sources: nothing but the step is built."""
    recipe = runtime_recipe(shipped_blocks(), cpu_level())
    entry = tmp_path / "built" / prebuilt.entry_name(recipe)
    shutil.copytree(runtime_library(shipped_blocks()).parent, entry)
    wheel = build_wheel(tmp_path / "dist", {"KERNELBENCH_PREBUILT": str(tmp_path / "built")})
    assert wheel.name.endswith("-py3-none-manylinux_2_28_x86_64.whl")
    site, here = tmp_path / "site", tmp_path / "here"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    here.mkdir()
    empty = {"KERNELBENCH_CACHE": str(tmp_path / "cache")}
    run = call(site, here, "run", "v22", "--shape", "u1", "--check-only", variables=empty)
    assert run.code == 0, run.err
    metas = (tmp_path / "cache" / "builds").glob("*/meta.json")
    assert [json.loads(meta.read_text())["name"] for meta in metas] == ["v22 (emulator)"]


def test_the_wheel_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size <= MEGABYTES * 1e6


def test_the_wheel_has_what_the_checkout_has(installed: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", *shipped_names()],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    names = [name for name in listed.stdout.split("\0") if (ROOT / name).is_file() and name]
    if listed.returncode or not names:
        pytest.skip("not a git checkout")
    shipped = installed / "kernelbench" / "_shipped"
    assert [name for name in names if not (shipped / name).is_file()] == []


def test_init_writes_all_of_a_template(installed: Path, tmp_path: Path) -> None:
    """What a wheel could leave out of them: names with dots, and files that are no Python."""
    assert call(installed, tmp_path, "init", "new", "--problem", "gemm").code == 0
    found = {file.relative_to(tmp_path / "new") for file in (tmp_path / "new").rglob("*")}
    assert found >= files_of("gemm").keys()
    assert Path(".github/workflows/kernels.yml") in found


def test_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    here = tmp_path / "empty"
    here.mkdir()
    steps = call(installed, here, "list").out
    for name in ("v23", "m10", "h06", "moe-triton"):
        assert f"\n{name} " in steps
    run = call(installed, here, "run", "v22", "--shape", "u1", "--check-only")
    assert run.code == 0, run.err
    assert f"saved {tmp_path / 'data' / 'kernelbench' / 'results'}" in run.out
    diff = call(installed, here, "diff", "v15", "v16")
    assert "--- v15/kernel.cuh" in diff.out
    check = call(installed, here, "check", "v22", "--shape", "u1", "--schedules", "1", "--sms", "2")
    assert check.code == 0, check.err
    shutil.copy(ROOT / "tests" / "submissions" / "right.py", here / "my_kernel.py")
    mine = call(installed, here, "run", "my_kernel.py", "--shape", "u1", "--check-only")
    assert mine.code == 0, mine.err
    new = call(installed, here, "new", "v24", "--from", "v23")
    assert new.code == 2
    assert "there is no project here; `kernelbench init` makes one" in new.error
    assert [file.name for file in here.iterdir()] == ["my_kernel.py"]


def test_a_project_with_a_copy_of_a_shipped_step(installed: Path, tmp_path: Path) -> None:
    root = write_project(tmp_path / "own", {})
    assert call(installed, root, "new", "t00", "--from", "v01").code == 0
    (root / "shapes.yaml").write_text("group_gemm:\n  mine: {m: 1, n: 128, k: 256}\n")
    listed = call(installed, root, "list").out
    assert "t00" in listed
    assert "\nv01 " not in listed
    assert "also here, shipped with kernelbench: group_gemm, moe" in listed
    run = call(installed, root, "run", "t00", "v01", "--shape", "mine", "--check-only")
    assert run.code == 0, run.err
    assert "2 passed of 2" in run.out
    assert (root / "results").is_dir()
    assert "the sources are the same" in call(installed, root, "diff", "t00", "--stat").out


def test_building_blocks_of_a_shipped_lineage(installed: Path, tmp_path: Path) -> None:
    root = write_project(tmp_path / "own", {})
    file = root / "tiny" / "lineage.toml"
    file.write_text(file.read_text().replace("group_gemm", "fused_moe"))
    (root / "shapes.yaml").unlink()
    refused = call(installed, root, "new", "t00", "--from", "m10")
    assert refused.code == 2
    assert f'add building_blocks = "moe" to {file}' in refused.error
    file.write_text(file.read_text() + 'building_blocks = "mo"\n')
    wrong = call(installed, root, "new", "t00", "--from", "m10")
    assert "did you mean 'moe'?" in wrong.error
    file.write_text(file.read_text().replace('"mo"', '"moe"'))
    assert call(installed, root, "new", "t00", "--from", "m10").code == 0
    run = call(installed, root, "run", "t00", "--shape", "s0", "--check-only")
    assert run.code == 0, run.out


class TestOwnProject:
    """The names of a project and those that ship."""

    @pytest.fixture
    def context(self, tmp_path: Path) -> Context:
        step = "def custom_kernel(data):\n    return []\n"
        root = write_project(tmp_path / "own", {"v00": step, "mine": step})
        (root / "shapes.yaml").write_text("group_gemm:\n  D: {m: 1, n: 128, k: 256}\n")
        return Context(project_at(root))

    def test_its_own_step_comes_first(self, context: Context) -> None:
        lineages = context.lineages
        assert lineages.get("v00").lineage == "tiny"
        assert lineages.get("v01").lineage == "group_gemm"
        assert [step.name for step in lineages.steps] == ["mine", "v00"]

    def test_a_range_of_shipped_steps(self, context: Context) -> None:
        assert [s.name for s in context.lineages.select(["v01..v03"])] == ["v01", "v02", "v03"]
        assert context.lineages.select(["moe"])[-1].lineage == "moe"

    def test_its_own_shapes_come_first(self, context: Context) -> None:
        shapes = context.shapes.of("group_gemm")
        assert shapes["D"].describe() == "g=1 m=1 n=128 k=256"
        assert shapes["A"].describe().startswith("g=8")
        assert "qwen35" in context.shapes.of("fused_moe")

    def test_a_shipped_step_has_its_shipped_parent(self, context: Context) -> None:
        parent = context.lineages.parent_of(context.lineages.get("v01"))
        assert parent is not None
        assert parent.lineage == "group_gemm"

    def test_its_own_lineage_hides_the_shipped_one(self, tmp_path: Path) -> None:
        root = write_project(tmp_path / "own", {})
        file = root / "tiny" / "lineage.toml"
        file.write_text(file.read_text().replace('"tiny"', '"moe"'))
        lineages = Context(project_at(root)).lineages
        assert lineages.steps_of("moe") == ()
        assert all(step.lineage != "moe" for step in lineages.all_steps)

    def test_the_checkout_has_nothing_beyond_itself(self) -> None:
        assert shipped_root() == ROOT
        assert Context(project_at(ROOT)).lineages.shipped.steps == ()
