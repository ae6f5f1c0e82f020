"""Make or refresh the project's virtual environment in ``.venv``.

``python3 tools/bootstrap.py`` installs what running needs, ``--dev`` also what testing needs. Only
the standard library is used. A stamp in ``.venv`` records what was installed from, so a repeated
call does nothing, offline too; it is written last, so an interrupted call is simply repeated.

torch is chosen so that nobody gets gigabytes of CUDA libraries without an NVIDIA GPU:

1. torch >= 2.9 that the calling Python already has is used as it is;
2. with an NVIDIA GPU, the pinned version is installed from the usual index;
3. without one, its CPU build is: ``+cpu`` where pip finds it, else through uv, which knows where
   PyTorch keeps its CPU builds.

Exit codes: 0 ready, 5 the environment lacks something (one line says what), 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 9)
ENVIRONMENT = 5
INTERRUPTED = 130

REUSE, CUDA, CPU = "reuse", "cuda", "cpu"

#: g++ needs nothing of what is installed, and this much of Python's packages.
_BUILD_NEEDS = "filelock"
_BUILD_EMULATOR = """
from kernelbench.emulator.runtime import runtime_library
from kernelbench.project.shipped import shipped_blocks
runtime_library(shipped_blocks())
"""
_PROBE_TORCH = "import torch; print('torch', torch.__version__)"


class SetupError(Exception):
    """What this machine lacks, and what to do about it, in one line."""


def fail(message: str) -> NoReturn:
    """Stop the set-up with one line."""
    raise SetupError(message)


def choose_torch(found: str | None, nvidia_gpu: bool) -> str:
    """How to get torch: ``reuse``, ``cuda`` (the usual build) or ``cpu``.

    Args:
        found: Version of an importable torch, e.g. ``2.11.0+cu130``; None if there is none.
        nvidia_gpu: Whether the machine has an NVIDIA GPU.
    """
    if found is not None and _recent_enough(found):
        return REUSE
    return CUDA if nvidia_gpu else CPU


def _recent_enough(version: str) -> bool:
    match = re.match(r"(\d+)\.(\d+)(\.\d+)?(a|b|rc|\.dev)?", version)
    if match is None:
        return False
    # pip takes 2.9.0a0 (vendors' builds have such versions) as older than 2.9.
    released = 0 if match[4] else 1
    return (int(match[1]), int(match[2]), released) >= (*OLDEST_TORCH, 1)


def has_nvidia_gpu() -> bool:
    """Whether ``nvidia-smi -L`` lists a GPU."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    try:
        listed = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and "GPU " in listed.stdout


def torch_of(python: str) -> str | None:
    """Version of the torch that an interpreter really imports; None if it does not."""
    # What torch in .venv compiles on import is kept: each later import would take a second more.
    kept = {} if python == sys.executable else {"PYTHONDONTWRITEBYTECODE": ""}
    try:
        done = subprocess.run(
            [python, "-c", _PROBE_TORCH], capture_output=True, text=True, timeout=300, cwd=ROOT,
            env=os.environ | kept,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"^torch (\S+)$", done.stdout, re.MULTILINE)
    return match[1] if done.returncode == 0 and match else None


def constraints(text: str, torch: str | None) -> str:
    """The constraints to install under.

    Args:
        text: ``constraints.txt``.
        torch: Version of a torch that must stay as it is. Its siblings (numpy, ...) then stay too:
            only the development tools keep their pins, which ``pyproject.toml`` repeats.
    """
    return text if torch is None else f"torch=={torch}\n"


def fingerprint(dev: bool) -> str:
    """Hash of everything that decides what is installed."""
    digest = hashlib.sha256()
    for name in ("pyproject.toml", "constraints.txt", "tools/bootstrap.py"):
        digest.update((ROOT / name).read_bytes() + b"\0")
    digest.update(repr((str(ROOT), sys.version_info[:2], dev)).encode())
    return digest.hexdigest()


class Environment:
    """The virtual environment and the log of what was done to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = str(folder / "bin" / "python")
        self.log = folder / "bootstrap.log"

    def stamp(self, dev: bool) -> Path:
        """The file that says what the environment was installed from."""
        return self.folder / (".stamp-dev" if dev else ".stamp-run")

    def fresh(self, dev: bool) -> bool:
        """Whether everything asked for is installed already; the dev set contains the other."""
        if not os.access(self.python, os.X_OK):
            return False
        for kind in {True, dev}:
            with contextlib.suppress(OSError):
                if self.stamp(kind).read_text() == fingerprint(kind):
                    return True
        return False

    def usable(self) -> bool:
        """Whether the folder holds a working environment of a recent enough Python, with pip."""
        probe = f"import sys, pip; sys.exit(sys.version_info < {OLDEST_PYTHON})"
        try:
            done = subprocess.run([self.python, "-c", probe], capture_output=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0

    def create(self, share_packages: bool) -> None:
        """Make the environment anew; what a broken one left is removed."""
        if self.folder.exists() and any(self.folder.iterdir()):
            if not (self.folder / "pyvenv.cfg").is_file():
                fail(f"{self.folder} exists and is not a virtual environment; move it away")
            shutil.rmtree(self.folder)
        command = [sys.executable, "-m", "venv", str(self.folder)]
        if share_packages:
            command.append("--system-site-packages")
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            fail(f"python3 -m venv failed: {last_line(done.stdout + done.stderr)}")
        if share_packages and sys.prefix != sys.base_prefix:
            # System packages are the base installation's; torch is in the calling environment.
            parent = "\n".join(p for p in sys.path if p.startswith(sys.prefix) and "-packages" in p)
            (site_packages(self.folder) / "calling_environment.pth").write_text(parent + "\n")

    def run(self, *command: str) -> str | None:
        """Run a module in the environment; None if it worked, else the line that says why not."""
        with self.log.open("a+") as log:
            log.write(f"\n$ python -m {' '.join(command)}\n")
            log.flush()
            start = log.tell()
            done = subprocess.run(
                [self.python, "-m", *command], stdout=log, stderr=subprocess.STDOUT, cwd=ROOT
            )
            log.seek(start)
            return last_line(log.read()) if done.returncode else None

    def pip(self, *arguments: str) -> str | None:
        """``pip install``; None if it worked, else the line that says why not."""
        # Of torch a third is ever imported; compiling it whole takes longer than unpacking it.
        options = ("--disable-pip-version-check", "--no-input", "--progress-bar=off")
        return self.run("pip", "install", "--no-compile", *options, *arguments)


def site_packages(folder: Path) -> Path:
    """Where packages of an environment are."""
    return folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def tools_elsewhere(folder: Path) -> list[str]:
    """The development tools that an environment has from the calling one only.

    pip is content with those, but their programs are not in the environment's ``bin``.
    """
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = {path.name.split("-")[0].lower() for path in site_packages(folder).glob("*.dist-info")}
    return [
        tool
        for tool in project["optional-dependencies"]["dev"]
        if re.split("[<>=]", tool)[0].lower().replace("-", "_") not in own
    ]


def last_line(text: str) -> str:
    """The line of a tool's output that names the error: pip's first ``ERROR:``, else the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(error:|×)", line, re.IGNORECASE)]
    line = errors[0] if errors else lines[-1] if lines else "no output"
    line = re.sub(r"^(error:|×)\s*", "", line, flags=re.IGNORECASE)
    return line if len(line) <= 200 else line[:200] + "..."


@contextlib.contextmanager
def phase(what: str) -> Iterator[None]:
    """Print one line for a phase, with the time that it took."""
    start = time.monotonic()
    print(f"setup: {what} ...", end="", flush=True, file=sys.stderr)
    try:
        yield
    except BaseException:
        print(" failed", file=sys.stderr)
        raise
    print(f" {time.monotonic() - start:.0f} s", file=sys.stderr)


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Hold the lock, so that of two calls at once the second waits and then finds all done."""
    import fcntl

    with (ROOT / ".venv.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("setup: waiting for another set-up to finish", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install_torch(environment: Environment, plan: str) -> None:
    """Install the pinned torch by plan ``cuda`` or ``cpu``."""
    pinned = re.search(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    if pinned is None:
        fail(f"{ROOT / 'constraints.txt'}: no line torch==VERSION")
    version = pinned[1]
    if plan == CUDA:
        with phase(f"torch {version} with CUDA"):
            problem = environment.pip(f"torch=={version}")
            if problem:
                fail(f"torch {version} cannot be installed: {problem}; see {environment.log}")
        return
    with phase(f"torch {version} for the CPU (no NVIDIA GPU here)"):
        problem = environment.pip(f"torch=={version}+cpu")
        if problem:
            problem = environment.pip("uv") or environment.run(
                *("uv", "pip", "install", "--quiet", "--python", environment.python),
                *("--torch-backend=cpu", f"torch=={version}"),
            )
        if problem:
            fail(f"torch {version} for the CPU cannot be installed: {problem}; see "
                 f"{environment.log}, or install torch >= 2.9 for python3 yourself")  # fmt: skip


def install_packages(environment: Environment, dev: bool, plan: str, found: str | None) -> None:
    """Install torch by its plan, kernelbench and, for ``dev``, the tools.

    Args:
        found: Version of the torch that is there.
    """
    if plan == REUSE:
        print(f"setup: torch {found} is there and stays", file=sys.stderr)
    else:
        install_torch(environment, plan)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        text = (ROOT / "constraints.txt").read_text()
        file.write(constraints(text, found if plan == REUSE else None))
        file.flush()
        what = ".[dev,torch]" if dev else ".[torch]"
        with phase("kernelbench" + (" and the development tools" if dev else "")):
            how = "--compile" if dev else "--no-compile"  # tools are started often
            problem = environment.pip(how, "--constraint", file.name, "--editable", what)
            if problem:
                fail(f"kernelbench cannot be installed: {problem}; see {environment.log}")
        shared = tools_elsewhere(environment.folder) if dev and plan == REUSE else []
        if shared:
            with phase("development tools that python3 has, once more"):
                problem = environment.pip("--ignore-installed", "--no-deps", *shared)
                if problem:
                    fail(f"{', '.join(shared)}: {problem}; see {environment.log}")


@contextlib.contextmanager
def emulator_meanwhile(environment: Environment) -> Iterator[None]:
    """Build the emulator's runtime into the compile cache while packages are downloaded.

    Whoever lacks it later builds it, or is told why that fails: here a failure is in the log only.
    """
    pinned = re.search(
        rf"^{_BUILD_NEEDS}==.+$", (ROOT / "constraints.txt").read_text(), re.MULTILINE
    )
    if pinned is None or environment.pip(pinned[0]):
        yield
        return
    with environment.log.open("a") as log:
        build = subprocess.Popen(
            [environment.python, "-c", _BUILD_EMULATOR], stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        try:
            yield
            with phase("the rest of the emulator, built meanwhile"):
                build.wait()
        finally:
            build.terminate()
            build.wait()


def install(environment: Environment, dev: bool) -> None:
    """Bring the environment up to date, from nothing if need be."""
    start = time.monotonic()
    found = torch_of(environment.python) if environment.usable() else None
    if found is None and not environment.usable():
        found = torch_of(sys.executable)
        plan = choose_torch(found, has_nvidia_gpu())
        with phase("virtual environment in .venv"):
            environment.create(share_packages=plan == REUSE)
    else:
        plan = choose_torch(found, has_nvidia_gpu())
    with emulator_meanwhile(environment):
        install_packages(environment, dev, plan, found)
    if torch_of(environment.python) is None:
        fail(f"torch does not import in {environment.folder}; remove that folder and try again")
    stamp = environment.stamp(dev)
    scratch = stamp.with_suffix(".new")
    scratch.write_text(fingerprint(dev))
    scratch.replace(stamp)
    print(f"setup: ready in {time.monotonic() - start:.0f} s", file=sys.stderr)


def check_python() -> None:
    """Leave with one line if this Python cannot make the environment."""
    if sys.version_info[:2] < OLDEST_PYTHON:
        have = ".".join(map(str, sys.version_info[:2]))
        need = ".".join(map(str, OLDEST_PYTHON))
        fail(f"Python {have} is too old, {need} or newer is needed; try make PYTHON=python{need}")
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        fail("this Python cannot make virtual environments; on Debian or Ubuntu: "
             "apt install python3-venv")  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(description="Make or refresh .venv.")
    parser.add_argument("--dev", action="store_true", help="also what `make test` needs")
    dev = bool(parser.parse_args(arguments).dev)
    environment = Environment(ROOT / ".venv")
    if environment.fresh(dev):
        return 0
    check_python()
    with only_one():
        if not environment.fresh(dev):
            install(environment, dev)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SetupError as problem:
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(ENVIRONMENT)
    except KeyboardInterrupt:
        print("\nsetup: interrupted; run it again to go on", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except OSError as error:
        print(f"error: {error.filename or ROOT}: {error.strerror}", file=sys.stderr)
        sys.exit(ENVIRONMENT)
