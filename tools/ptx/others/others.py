"""Kernels of others on the emulator: fetches pinned packages from PyPI and checks programs here.

python tools/ptx/others/others.py fetch FOLDER            the packages, into FOLDER
python tools/ptx/others/others.py run FOLDER [NAME …]     check them, and say what came of it

Nothing of the packages is kept here: the scripts and programs beside this file call them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
_TRITON = {"3.6": "triton==3.6.0", "3.9": "triton==3.9.0"}
_HEADERS = "cutlass_library/source"


class Case(NamedTuple):
    """A script or a program beside this file.

    Attributes:
        packages: What it needs of PyPI.
        triton: FaultOrigin version compiles it; nvcc if empty.
        alone: Whether it is a program that loads PTX and says itself what came of it.
    """

    file: str
    packages: tuple[str, ...] = ()
    triton: str = ""
    arch: int = 90
    alone: bool = False


#: Programs around CUTLASS's tutorials of examples/cute/tutorial, each on a small product in both
#: layouts that it has, or as it compares by itself: the verdict that it leaves with.
TUTORIALS = {
    "cutlass_sgemm_2.cu": ("sgemm_2", "float", "256, 128, 128"),
    "cutlass_sgemm_sm80.cu": ("sgemm_sm80", "cute::half_t", "256, 128, 256"),
    "cutlass_wgmma_sm90.cu": ("hopper/wgmma_sm90", "cute::half_t", "256, 128, 256"),
    "cutlass_wgmma_tma_sm90.cu": ("hopper/wgmma_tma_sm90", "cute::half_t", "256, 128, 256"),
    "cutlass_mma_sm100.cu": ("blackwell/01_mma_sm100", "", '"512", "512", "128"'),
    "cutlass_mma_tma_sm100.cu": ("blackwell/02_mma_tma_sm100", "", '"512", "512", "128"'),
    "cutlass_mma_tma_multicast_sm100.cu": (
        "blackwell/03_mma_tma_multicast_sm100", "", '"512", "512", "128"',
    ),
    "cutlass_mma_tma_2sm_sm100.cu": ("blackwell/04_mma_tma_2sm_sm100", "", '"512", "1024", "64"'),
    "cutlass_mma_tma_epi_sm100.cu": ("blackwell/05_mma_tma_epi_sm100", "", '"512", "1024", "64"'),
}  # fmt: skip
_PROGRAM = """#define main tutorial_main
#include <examples/cute/tutorial/{}.cu>
#undef main
#include "{}.hpp"
int main() {{ return {}; }}
"""
_LIGER, _FLA = ("liger-kernel==0.8.5",), ("fla-core==0.6.0", "einops==0.8.2")
_CUTLASS = ("nvidia-cutlass==4.2.0.0",)
CASES = (
    Case("liger_norms.py", _LIGER, "3.6"),
    Case("liger_activations.py", _LIGER, "3.6"),
    Case("liger_losses.py", _LIGER, "3.6"),
    Case("fla_rows.py", _FLA, "3.6"),
    Case("fla_chunks.py", _FLA, "3.9"),
    Case("xformers_rows.py", ("xformers==0.0.35",), "3.6"),
    Case("torch_bsr.py", (), "3.9"),
    Case("numba_rows.py", ("numba==0.68.1", "llvmlite==0.50.0"), alone=True),
    Case("cccl.cu"),
    *(Case(name, _CUTLASS, arch=100 if "sm100" in name else 90) for name in TUTORIALS),
)


def _place(folder: Path, package: str) -> Path:
    return folder / package.replace("==", "-")


def fetch(folder: Path, cases: Sequence[Case]) -> None:
    """Install each package into a folder of its own, without what it depends on."""
    wanted = {each for case in cases for each in case.packages}
    wanted |= {_TRITON[case.triton] for case in cases if case.triton}
    for package in sorted(wanted):
        if not (place := _place(folder, package)).is_dir():
            command = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", place]
            subprocess.run([*map(str, command), package], check=True)


def _program(folder: Path, name: str) -> Path:
    """A script or program beside this file, or one around a tutorial, written into the folder."""
    if name not in TUTORIALS:
        return HERE / name
    tutorial, kind, numbers = TUTORIALS[name]
    verdict = f"tutorial_verdict<{kind}>({numbers})"
    if not kind:
        verdict = f'!says_so("Execution is successful", {{{numbers}}}, tutorial_main)'
    file = folder / name
    file.write_text(_PROGRAM.format(tutorial, "gemm" if kind else "says", verdict))
    return file


def run(folder: Path, case: Case, schedules: int) -> int:
    """Check one; the exit code of ``kernelbench check``."""
    packages = [*case.packages, *([_TRITON[case.triton]] if case.triton else [])]
    places = [_place(folder, each) for each in packages]
    paths = [ROOT, HERE, *places, *filter(None, [os.environ.get("PYTHONPATH")])]
    include = [
        f"-I{place / _HEADERS / below}"
        for place in places
        for below in ("", "include", "tools/util/include")
        if (place / _HEADERS).is_dir()
    ]
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "NVCC_APPEND_FLAGS": " ".join(["-w", f"-I{HERE}", *include]),
    }  # fmt: skip
    if case.alone:
        return subprocess.run(
            [sys.executable, HERE / case.file], env=environment, check=False
        ).returncode
    command = [
        sys.executable, "-m", "kernelbench", "check", _program(folder, case.file), "--json", "-",
        "--arch", case.arch, "--schedules", schedules, "--seed", "1",
    ]  # fmt: skip
    ended = subprocess.run(
        list(map(str, command)), env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    for step in json.loads(ended.stdout or "{}").get("steps", ()):
        for row in step["rows"]:
            kinds = sorted({each["finding"]["kind"] for each in row["seen"] if not each["allowed"]})
            print(f"{case.file:36} {row['shape']:60} {row['status']:8} {' '.join(kinds)}")
    return ended.returncode


def main() -> int:
    """See the file's head."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("fetch", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="files; all by default")
    parser.add_argument("--schedules", type=int, default=5)
    given = parser.parse_args()
    folder = given.folder.resolve()
    cases = [each for each in CASES if not given.names or each.file in given.names]
    if given.what == "fetch":
        fetch(folder, cases)
        return 0
    return max(run(folder, each, given.schedules) for each in cases)


if __name__ == "__main__":
    sys.exit(main())
