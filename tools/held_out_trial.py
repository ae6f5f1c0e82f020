"""Run the held-out trials of the checker again: ``python tools/held_out_trial.py [--only q03]``.

``tools/trials`` has the programs, by authors who had not seen the checker's code, and for each
planted bug where it is and of what class. What is counted is the exit code alone: whether a bug is
found, and whether a right program is clean. See docs/evidence-trial.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

TRIALS = Path(__file__).resolve().parent / "trials"
#: On review of its author's it is none: ``cooperative_groups::wait`` has a barrier in it.
NO_BUG = "p22_pipeline__BUG03.cu"


def main() -> int:
    """Check every program; 1 if a right one is not clean."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="beginning of names")
    parser.add_argument("--seed", default="1")
    asked = parser.parse_args()
    clean = True
    for archive in sorted(TRIALS.glob("programs-*.tar.gz")):
        clean &= _run(archive, asked.only, asked.seed)
    return 0 if clean else 1


def _run(archive: Path, only: str, seed: str) -> bool:
    counts = {"right": [0, 0], "host side": [0, 0], "device": [0, 0]}
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
        bugs = json.loads(Path(folder, "expected.json").read_text())
        files = {each["file"] for each in bugs if "define" not in each}
        right = [{"file": each.name} for each in Path(folder).glob("*.cu")]
        cases = [*(each for each in right if each["file"] not in files), *bugs]
        for case in sorted(cases, key=lambda each: (each["file"], each.get("define", ""))):
            name = case["file"]
            if name == NO_BUG or not name.startswith(only):
                continue
            define = ["-D", case["define"]] if "define" in case else []
            head, _, flags = Path(folder, name).read_text().partition("\n")[0].partition("flags: ")
            define += [f"--nvcc={flags}"] if head == "// " and flags else []
            command = [sys.executable, "-m", "kernelbench", "check", name, "--seed", seed, *define]
            code = subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode
            kind = "right" if "what" not in case else "host side" if case["host_side"] else "device"
            as_it_should = code == (0 if kind == "right" else 3)
            counts[kind][0] += as_it_should
            counts[kind][1] += 1
            if not as_it_should:
                print(name, *define[1:], f"exit code {code}", case.get("what", "it is right"))
    print(archive.name)
    for kind, (good, every) in counts.items():
        print(f"  {kind}: {good} of {every} {'clean' if kind == 'right' else 'found'}")
    return counts["right"][0] == counts["right"][1]


if __name__ == "__main__":
    sys.exit(main())
