"""Check small programs of the kinds in NVIDIA's cuda-samples, and write the docs' table.

``python tools/sample_programs.py`` runs ``kernelbench check`` on each program of
tests/ptx_users/samples and writes docs/evidence-samples.md; names check those alone. With
``--native`` it builds and runs them on this machine's GPU instead, and writes native_run.json
beside them, which the page quotes.
"""

from __future__ import annotations

import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernelbench.machine.environment import cpu_name

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "tests" / "ptx_users" / "samples"
PAGE = ROOT / "docs" / "evidence-samples.md"
FIRST = SAMPLES / "first_run.json"  # the verdict of each program when it was checked first
NATIVE = SAMPLES / "native_run.json"  # what each program did on a GPU
#: What the build of a program needs that has this text.
BUILD_FLAGS = {
    "<cublas_v2.h>": "-lcublas", "<cufft.h>": "-lcufft", "<nvrtc.h>": "-lnvrtc",
    "<cuda.h>": "-lcuda", "A kernel launches a kernel": "-rdc=true",
}  # fmt: skip
TWO_GPUS = "// Two GPUs"  # what a program for them begins with
ASKED = ("--arch", "90", "--seed", "1", "--schedules", "4", "--no-save")


def flags_of(file: Path) -> list[str]:
    """What the build of a program needs."""
    return [flag for word, flag in BUILD_FLAGS.items() if word in file.read_text()]


def verdict(file: Path) -> tuple[str, float]:
    """What the check says of a program, and its seconds."""
    begin = time.perf_counter()
    options = [f"--nvcc={each}" for each in flags_of(file) if each[:2] != "-l"]
    options += ["--gpus=2"] if TWO_GPUS in file.read_text() else []
    done = subprocess.run(
        [sys.executable, "-m", "kernelbench", "check", str(file), *ASKED, *options], check=False,
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    found = "finding" if "error[" in done.stdout else "wrong"
    said = {0: "right and clean", 3: found}.get(done.returncode, "refused")
    return said, time.perf_counter() - begin


def native(file: Path) -> str:
    """``right``, or how the build or the run of a program ends on this machine's GPU."""
    flags = flags_of(file)
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/program"
        build = ["nvcc", "-arch=sm_90", "-std=c++17", "-o", program, str(file), *flags]
        for what, command in (("build", build), ("exit", ["timeout", "60", program])):
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode:
                last = (done.stdout + done.stderr).splitlines()[-1:]
                return f"{what} {done.returncode}: {''.join(last)}"
    return "right"


def run_native(files: list[Path]) -> None:
    """Build and run, as many at a time as there are cores, and write the file."""
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    device = subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip()
    with ThreadPoolExecutor() as pool:
        programs = dict(zip((each.stem for each in files), pool.map(native, files), strict=True))
    record = {"device": device, "date": str(datetime.date.today()), "programs": programs}
    NATIVE.write_text(json.dumps(record, indent=1) + "\n")


def main(names: list[str]) -> None:
    """Check and print; all of them are the page."""
    on_gpu = "--native" in names
    names = [name for name in names if name != "--native"]
    files = [each for each in sorted(SAMPLES.glob("*.cu")) if not names or each.stem in names]
    if on_gpu:
        run_native(files)
        return
    found = []
    with ThreadPoolExecutor(2) as pool:
        for file, (said, seconds) in zip(files, pool.map(verdict, files), strict=True):
            found.append((said, seconds))
            print(f"{len(found)}/{len(files)} {file.stem}: {said}, {seconds:.0f} s", flush=True)
    first = json.loads(FIRST.read_text())
    for file, (said, _) in zip(files, found, strict=True):
        first.setdefault(file.stem, said)
    gpu = json.loads(NATIVE.read_text())
    ran = gpu["programs"]
    rows = [
        f"| {f.stem} | {f.read_text().splitlines()[0][3:]} | {first[f.stem]} | {said} | {s:.0f} "
        f"| {ran.get(f.stem, '')} |"
        for f, (said, s) in zip(files, found, strict=True)
    ]
    now = Counter(said for said, _ in found)
    then = Counter(first[each.stem] for each in files)
    head = (
        f"Own small programs of the kinds in NVIDIA's cuda-samples: {len(files)}. When each "
        f"was checked first: {_counted(then)}. Now: {_counted(now)}; median "
        f"{statistics.median(s for _, s in found):.0f} s ({datetime.date.today()}, {cpu_name()}; "
        f"`python tools/sample_programs.py`, `check {' '.join(ASKED)}`). On a GPU: "
        f"{_counted(Counter(each.partition(':')[0] for each in ran.values()))} "
        f"({gpu['device']}, {gpu['date']}, `--native`)."
    )
    columns = [
        "| program | | first run | now | seconds | on a GPU |",
        "| --- | --- | --- | --- | ---: | --- |",
    ]
    text = "\n".join([head, "", *columns, *rows])
    print(text)
    if not names:
        FIRST.write_text(json.dumps(first, indent=1, sort_keys=True) + "\n")
        PAGE.write_text(f"# Samples\n\n{text}\n")


def _counted(said: Counter[str]) -> str:
    return ", ".join(f"{count} {each}" for each, count in said.most_common())


if __name__ == "__main__":
    main(sys.argv[1:])
