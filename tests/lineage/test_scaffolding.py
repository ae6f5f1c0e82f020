"""The project's scaffolding: set-up decisions, pins, and what no file may hold."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "tools" / "bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestChooseTorch:
    @pytest.mark.parametrize("gpu", [True, False])
    @pytest.mark.parametrize("found", ["2.9.0", "2.11.0+cu130", "2.13.0+cpu", "2.10.0a0", "3.0"])
    def test_an_existing_recent_torch_stays(self, bootstrap: Any, found: str, gpu: bool) -> None:
        assert bootstrap.choose_torch(found, gpu) == "reuse"

    @pytest.mark.parametrize("found", [None, "2.8.1", "1.13.0+cu117", "2.9.0a0+nv25", "unknown"])
    def test_else_the_gpu_decides(self, bootstrap: Any, found: str | None) -> None:
        assert bootstrap.choose_torch(found, True) == "cuda"
        assert bootstrap.choose_torch(found, False) == "cpu"

    def test_constraints_never_replace_an_existing_torch(self, bootstrap: Any) -> None:
        pins = (ROOT / "constraints.txt").read_text()
        assert bootstrap.constraints(pins, None) == pins
        assert bootstrap.constraints(pins, "2.11.0+cu130") == "torch==2.11.0+cu130\n"


class TestNvidiaSmi:
    @pytest.mark.parametrize(
        ("script", "expected"),
        [
            ("echo 'GPU 0: NVIDIA B200 (UUID: x)'", True),
            ("echo 'No devices were found'; exit 6", False),
            ("echo 'No devices were found'", False),
        ],
    )
    def test_what_counts_as_a_gpu(
        self,
        bootstrap: Any,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        script: str,
        expected: bool,
    ) -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        assert bootstrap.has_nvidia_gpu() is expected

    def test_no_driver(
        self, bootstrap: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert bootstrap.has_nvidia_gpu() is False


class TestEnvironment:
    @pytest.fixture
    def project(self, bootstrap: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A copy of what the stamp depends on, with an environment whose Python must not run."""
        (tmp_path / "tools").mkdir()
        for name in ("pyproject.toml", "constraints.txt", "tools/bootstrap.py"):
            (tmp_path / name).write_bytes((ROOT / name).read_bytes())
        monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
        python = tmp_path / ".venv" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text("#!/bin/sh\nexit 99\n")
        python.chmod(0o755)
        return tmp_path

    def stamp(self, bootstrap: Any, project: Path, dev: bool) -> Any:
        environment = bootstrap.Environment(project / ".venv")
        environment.stamp(dev).write_text(bootstrap.fingerprint(dev))
        return environment

    @pytest.mark.parametrize(("dev", "last"), [(False, "--no-compile"), (True, "--compile")])
    def test_packages_are_not_compiled_before_they_are_used(
        self, bootstrap: Any, project: Path, dev: bool, last: str
    ) -> None:
        """For tools they are; pip goes by the option that comes last."""
        python, log = project / ".venv" / "bin" / "python", project / "calls"
        python.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
        environment = bootstrap.Environment(project / ".venv")
        bootstrap.install_packages(environment, dev, bootstrap.CPU, None)
        torch, package = log.read_text().splitlines()
        assert "--no-compile" in torch and "torch==" in torch and "--compile" not in torch.split()
        options = [each for each in package.split() if each.endswith("-compile")]
        assert options[-1] == last and "--editable" in package

    def test_what_importing_torch_compiles_is_kept(
        self, bootstrap: Any, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In the environment; elsewhere it is as the caller's variables say."""
        monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        python = project / ".venv" / "bin" / "python"
        python.write_text('#!/bin/sh\necho "torch 2.9.${PYTHONDONTWRITEBYTECODE:-0}"\n')
        assert bootstrap.torch_of(str(python)) == "2.9.0"
        monkeypatch.setattr(bootstrap.sys, "executable", str(python))
        assert bootstrap.torch_of(str(python)) == "2.9.1"

    def test_a_fresh_stamp_ends_the_call(self, bootstrap: Any, project: Path) -> None:
        self.stamp(bootstrap, project, dev=False)
        assert bootstrap.main([]) == 0
        assert not (project / ".venv.lock").exists()

    def test_the_dev_stamp_covers_the_other_but_not_vice_versa(
        self, bootstrap: Any, project: Path
    ) -> None:
        environment = self.stamp(bootstrap, project, dev=False)
        assert environment.fresh(False)
        assert not environment.fresh(True)
        environment.stamp(False).unlink()
        self.stamp(bootstrap, project, dev=True)
        assert environment.fresh(True)
        assert environment.fresh(False)

    @pytest.mark.parametrize("name", ["pyproject.toml", "constraints.txt", "tools/bootstrap.py"])
    def test_changed_requirements_make_it_stale(
        self, bootstrap: Any, project: Path, name: str
    ) -> None:
        environment = self.stamp(bootstrap, project, dev=False)
        with (project / name).open("a") as file:
            file.write("\n")
        assert not environment.fresh(False)

    def test_a_vanished_python_makes_it_stale(self, bootstrap: Any, project: Path) -> None:
        environment = self.stamp(bootstrap, project, dev=False)
        (project / ".venv" / "bin" / "python").unlink()
        assert not environment.fresh(False)

    def test_a_broken_environment_is_not_usable(self, bootstrap: Any, project: Path) -> None:
        assert not bootstrap.Environment(project / ".venv").usable()

    def test_a_folder_that_is_no_environment_is_not_removed(
        self, bootstrap: Any, project: Path
    ) -> None:
        with pytest.raises(bootstrap.SetupError, match="is not a virtual environment"):
            bootstrap.Environment(project / ".venv").create(share_packages=False)
        assert (project / ".venv" / "bin" / "python").exists()


class TestEmulatorMeanwhile:
    """The emulator is built beside the downloads, and no failure of it ends the set-up."""

    @pytest.fixture
    def environment(self, bootstrap: Any, tmp_path: Path) -> Any:
        environment = bootstrap.Environment(tmp_path)
        environment.python = str(tmp_path / "python")
        return environment

    def program(self, environment: Any, text: str) -> None:
        Path(environment.python).write_text(f'#!/bin/sh\n[ "$1" = -m ] && exit 0\n{text}\n')
        Path(environment.python).chmod(0o755)

    def test_it_is_waited_for(self, bootstrap: Any, environment: Any, tmp_path: Path) -> None:
        self.program(environment, f"sleep 0.2; echo built > {tmp_path / 'there'}")
        with bootstrap.emulator_meanwhile(environment):
            assert not (tmp_path / "there").exists()
        assert (tmp_path / "there").exists()

    def test_a_build_that_fails_is_in_the_log(self, bootstrap: Any, environment: Any) -> None:
        self.program(environment, "echo no compiler; exit 5")
        with bootstrap.emulator_meanwhile(environment):
            pass
        assert "no compiler" in environment.log.read_text()

    def test_a_set_up_that_fails_ends_it(self, bootstrap: Any, environment: Any) -> None:
        self.program(environment, "exec sleep 1000")
        with pytest.raises(bootstrap.SetupError), bootstrap.emulator_meanwhile(environment):
            bootstrap.fail("no network")

    def test_what_it_runs_builds_the_runtime(self, bootstrap: Any, tmp_path: Path) -> None:
        """With nothing installed but what it installs before."""
        (tmp_path / "filelock.py").write_text(
            "import contextlib\nTimeout = OSError\n"
            "def FileLock(path, timeout): return contextlib.nullcontext()\n"
        )
        compiler = tmp_path / "g++"
        compiler.write_text('#!/bin/sh\n[ "$1" = --version ] && echo g++ 99.1 && exit\nexit 7\n')
        compiler.chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-S", "-c", bootstrap._BUILD_EMULATOR],
            env={"PATH": f"{tmp_path}", "KERNELBENCH_CACHE": str(tmp_path / "cache"),
                 "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "g++ 99.1 cannot build emulator runtime" in done.stderr


def test_tools_of_the_calling_environment_are_installed_again(
    bootstrap: Any, tmp_path: Path
) -> None:
    """What is shared has no program in the environment's own folder, where ``make`` looks."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    every = tools["optional-dependencies"]["dev"]
    assert bootstrap.tools_elsewhere(tmp_path) == every
    for tool in every:
        name, version = tool.split("==")
        if name != "ruff":
            folder = f"{name.replace('-', '_')}-{version}.dist-info"
            (bootstrap.site_packages(tmp_path) / folder).mkdir(parents=True)
    assert [tool.split("==")[0] for tool in bootstrap.tools_elsewhere(tmp_path)] == ["ruff"]


def test_a_python_without_ensurepip_is_told_what_to_install(
    bootstrap: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap.check_python()
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    with pytest.raises(bootstrap.SetupError, match="apt install python3-venv"):
        bootstrap.check_python()


def test_an_old_python_is_refused(bootstrap: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "OLDEST_PYTHON", (99, 0))
    with pytest.raises(bootstrap.SetupError, match=r"Python 3\.\d+ is too old, 99\.0 or newer"):
        bootstrap.check_python()


def test_the_line_that_says_why(bootstrap: Any) -> None:
    text = "Collecting x\nERROR: No matching distribution\n\n[notice] a newer pip\n"
    assert bootstrap.last_line(text) == "No matching distribution"
    assert bootstrap.last_line("one\ntwo\n") == "two"
    assert bootstrap.last_line("") == "no output"


def test_pins_agree() -> None:
    """constraints.txt pins every requirement, and the development tools as pyproject.toml does."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.lower().split("==") for line in lines if line and not line.startswith("#"))
    for requirement in project["optional-dependencies"]["dev"]:
        name, version = requirement.lower().split("==")
        assert pins.pop(name) == version
    needed = [*project["dependencies"], *project["optional-dependencies"]["torch"]]
    wanted = {re.split(r"[<>=]", each)[0].lower() for each in needed}
    assert set(pins) == wanted
    assert pins["torch"] == "2.13.0"


def test_no_file_speaks_of_one_machine_or_of_its_making() -> None:
    """No path of one machine, no package host, no talk of tasks: a stranger must understand all."""
    # Assembled, so that this file does not hold the words itself.
    words = ("/" + "work/", r"\bshared" + "/", r"\bhelp" + r"ers?\b", r"\bissue " + r"#?\d")
    hosts = ("pypi" + r"\.org", "python" + r"hosted", "download\\.py" + r"torch")
    forbidden = re.compile("|".join((*words, *hosts, r"\bagen" + r"ts?\b")), re.IGNORECASE)
    found = []
    for file in files_of_the_project():
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            # A class of CuTe DSL has such a name.
            if forbidden.search(line.replace("pipeline." + "Agen" + "t.", "")):
                found.append(f"{file.relative_to(ROOT)}:{number}: {line.strip()[:80]}")
    assert found == []


def files_of_the_project() -> list[Path]:
    """Tracked files and new ones that are not ignored; without git, everything but caches."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        files = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        skip = {".venv", ".git", "__pycache__", "build", "kernelbench_lineage.egg-info"}
        files = [
            file
            for file in ROOT.rglob("*")
            if not skip & set(file.relative_to(ROOT).parts)
            and not any(part.endswith("_cache") for part in file.parts)
        ]
    return [file for file in files if file.is_file()]


def test_the_search_above_sees_the_project() -> None:
    names = {file.relative_to(ROOT).as_posix() for file in files_of_the_project()}
    assert {"pyproject.toml", "kernelbench/project/registry.py", "kernels/v06/README.md"} <= names
