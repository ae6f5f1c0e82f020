"""What a stranger meets first: files by the API, damaged files, full disks, short messages."""

from __future__ import annotations

import contextlib
import errno
import gzip
import re
import shutil
from pathlib import Path

import pytest
from conftest import ROOT, launch

import kernelbench
from kernelbench.base import console
from kernelbench.base.errors import EnvironmentProblem, ExitCode, UnknownNameError, UsageError
from kernelbench.build import compiler
from kernelbench.build.recipe import Recipe
from kernelbench.cli import invoke
from kernelbench.machine.toolchain import host_compiler
from kernelbench.records.store import newest_figures
from kernelbench.runs import settings

KERNEL = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k() { ret; }
"""


@pytest.fixture
def ptx_file(tmp_path: Path) -> Path:
    file = tmp_path / "k.ptx"
    file.write_text(KERNEL)
    file.with_suffix(".toml").write_text('[[launch]]\nkernel = "k"\ngrid = [1]\nblock = [1]\n')
    return file


def test_the_api_checks_files(ptx_file: Path) -> None:
    report = kernelbench.check(ptx_file, schedules=2, seed=1)
    (row,) = report.rows()
    assert (row["step"], row["status"]) == ("k.ptx", "clean")
    assert repr(report).startswith("<CheckReport: 1 row; kernelbench.check(")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"shapes": "A"}, "--shape belongs to steps"),
        ({"budget_s": 5.0}, "--budget belongs to steps"),
        ({"strict": True}, "--strict belongs to steps"),
        ({"sequence": False}, "--no-sequence belongs to steps"),
        ({"sms": (1, 2)}, "--sms: one number for a file"),
    ],
)
def test_what_belongs_to_steps(ptx_file: Path, options: dict, error: str) -> None:
    with pytest.raises(UsageError, match=error):
        kernelbench.check(ptx_file, **options)


def test_a_file_that_is_nothing_to_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.md").write_text("# Notes\n")
    monkeypatch.chdir(tmp_path)
    assert invoke(["check", "notes.md"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "notes.md: neither a step nor a submission" in line
    assert "v00" not in line


def test_long_lists_of_names_are_cut() -> None:
    error = UnknownNameError("step", "zzz", [f"v{i:02}" for i in range(40)])
    assert str(error).endswith("v11 and 28 more")


def test_what_is_assumed_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["explain", "dependent-stores"]) == ExitCode.PASS
    assert capsys.readouterr().out.startswith("Assumed: a store that depends on what an atomic")
    assert invoke(["explain", "dependent-store"]) == ExitCode.USAGE
    assert "did you mean 'dependent-stores'?" in capsys.readouterr().err


def test_an_arch_that_is_not_emulated_is_explained(
    ptx_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["check", str(ptx_file), "--arch", "75"]) == 2
    assert "the emulator has no sm_75: it stands for 80, 86, 89, 90, 100" in capsys.readouterr().err
    for text in ("90", "sm_90", "90a", "sm_90a"):
        assert invoke(["check", str(ptx_file), "--arch", text, "--schedules", "1"]) == 0


@pytest.mark.parametrize("with_nvcc", [True, False])
def test_what_a_program_lacks_is_the_environments(tmp_path: Path, with_nvcc: bool) -> None:
    """Not the program's fault, and not in nvcc's words."""
    nvcc = shutil.which("nvcc")
    if with_nvcc and nvcc is None:
        pytest.skip("no nvcc")
    (tmp_path / "k.cu").write_text("int main() {}\n")
    (tmp_path / "bin").mkdir()
    if with_nvcc:
        (tmp_path / "bin" / "nvcc").symlink_to(str(nvcc))
    lacks = {"PATH": str(tmp_path / "bin"), "CXX": "", "CUDA_HOME": "", "CUDA_PATH": ""}
    done = launch("check", tmp_path / "k.cu", root=tmp_path, env=lacks)
    assert done.code == 5
    if with_nvcc:
        assert (
            "nvcc needs a C++ compiler, and there is no g++ or clang++; install g++" in done.error
        )
    elif "no nvcc" in done.error:  # there may be one in the Python environment
        assert "pip install nvidia-cuda-nvcc" in done.error


@pytest.mark.parametrize("page", ["docs/getting-started.md", "docs/ptx.md"])
def test_pages_name_the_package_that_has_nvcc(page: str) -> None:
    assert "nvidia-cuda-nvcc" in (ROOT / page).read_text()


def test_a_truncated_record_is_named(tmp_path: Path) -> None:
    device = tmp_path / "nvidia-h200"
    shutil.copytree(ROOT / "results" / "nvidia-h200", device)
    assert newest_figures(tmp_path)[1] == []
    oldest = sorted((device / "runs").glob("*Z-????????.json.gz"))[0]
    oldest.write_bytes(oldest.read_bytes()[:-40])
    figures, (line,) = newest_figures(tmp_path)
    assert figures
    assert oldest.name in line
    assert "not a whole gzip file" in line
    oldest.write_bytes(gzip.compress(b"{"))
    assert "not valid JSON" in newest_figures(tmp_path)[1][0]


def test_a_damaged_build_is_named_and_built_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELBENCH_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "f.cpp"
    source.write_text('extern "C" int f() { return 1; }\n')
    host = host_compiler()
    assert host is not None
    recipe = Recipe("f of a test", host, [source], ["-O0"])
    library = compiler.build(recipe)
    whole = library.read_bytes()
    library.write_bytes(whole[:100])
    warned: list[str] = []
    monkeypatch.setattr(console, "warn", warned.append)
    assert compiler.build(recipe).read_bytes() == whole
    assert re.fullmatch(r"the cached build of f of a test is damaged \(.*\); .* anew", warned[0])
    assert compiler.build(recipe) == library
    assert len(warned) == 1


def test_a_full_disk_is_called_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def full(**_: object):  # type: ignore[no-untyped-def]
        raise OSError(errno.ENOSPC, "No space left on device")
        yield

    monkeypatch.setattr(settings.tempfile, "TemporaryFile", full)
    with pytest.raises(EnvironmentProblem, match=r"has no room left \(No space left on device\)"):
        settings.require_writable_results(tmp_path)
