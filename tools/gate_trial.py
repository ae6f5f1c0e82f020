"""Show on a GPU that the gate passes what is unchanged and stops what is slower.

Makes a project with one step (a copy of ``examples/triton_group_gemm.py``), then:

* A/A: pairs of tables of the same code, each run in a process of its own, through
  ``gate --baseline --current``;
* planted: the same step with a spin that makes it some 3 % slower, as tables and live;
* a row removed from the current table;
* live, with a source that differs in a comment only.

``python tools/gate_trial.py --pairs 20`` prints a line per case and keeps all of it in
``results/<device>/gate/``. Exit code 0 if every case ended as it must.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from kernelbench.base import json_file
from kernelbench.records import run_record

ROOT = Path(__file__).resolve().parent.parent
STEP_TOML = """name = "t00"
title = "Triton group GEMM"
technique = "Dequantize in registers"
hypothesis = "The gate's test object."
arch = "any"
kind = "torch"
status = "works"
"""
LINEAGE_TOML = """name = "trial"
title = "The gate's trial"
problem = "kernelbench.problems.group_gemm:PROBLEM"
"""
PLANT = """

_right = custom_kernel


def custom_kernel(data):
    result = _right(data)
    torch.cuda._sleep({cycles})
    return result
"""


def make_project(folder: Path, source: str) -> Path:
    """A project whose only step, t00, has ``source``."""
    step = folder / "trial" / "t00"
    step.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["trial"]\n')
    shapes = "group_gemm:\n  D: {m: [128, 384], n: 4096, k: 1536}\n"
    (folder / "shapes.yaml").write_text(shapes)
    (folder / "trial" / "lineage.toml").write_text(LINEAGE_TOML)
    (step / "step.toml").write_text(STEP_TOML)
    (step / "README.md").write_text("# t00\n")
    (step / "submission.py").write_text(source)
    return folder


def kernelbench(project: Path, *arguments: str) -> tuple[int, str]:
    """Run the command line in a project; exit code and everything printed."""
    environment = {**os.environ, "KERNELBENCH_ROOT": str(project), "PYTHONPATH": str(ROOT)}
    environment.pop("GITHUB_STEP_SUMMARY", None)
    answer = subprocess.run(
        [sys.executable, "-m", "kernelbench", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    return answer.returncode, answer.stdout + answer.stderr


class Trial:
    """Collects cases, each with what was expected of it."""

    def __init__(self, folder: Path, results: Path) -> None:
        self.folder = folder
        self.results = results
        self.cases: list[dict[str, Any]] = []

    def gate(self, name: str, project: Path, expected: int, word: str, *arguments: str) -> None:
        """Run the gate and keep whether it left with ``expected`` and said ``word``."""
        code, text = kernelbench(project, "gate", *arguments, "--results", str(self.results))
        ok = code == expected and word in text
        lines = [line for line in text.splitlines() if line.startswith(("## ", "* ", "kernelb"))]
        self.cases.append(
            {"case": name, "exit": code, "expected": expected, "ok": ok, "said": lines}
        )
        print(f"{'ok ' if ok else 'NOT'} {name}: exit {code}: {lines[0] if lines else text}")

    def table(self, project: Path, name: str) -> Path:
        """Measure a table of t00 on D in a process of its own."""
        path = self.folder / f"{name}.json"
        code, text = kernelbench(
            project, "run", "t00", "--inputs", "gpu-mode", "--no-save", "--json", str(path)
        )
        if code != 0:
            raise SystemExit(f"run failed ({code}):\n{text}")
        return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--percent", type=float, default=3.0)
    parser.add_argument("--results", type=Path, default=ROOT / "results")
    options = parser.parse_args()
    source = (ROOT / "examples" / "triton_group_gemm.py").read_text()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        trial = Trial(folder, options.results.resolve())
        base = make_project(folder / "base", source)
        first = trial.table(base, "first")
        record = run_record.read_run(first)
        median = record.results[0].device_us
        assert median is not None
        mhz = record.results[0].sm_mhz or 1980.0
        # The extra launch costs about 1.3 µs by itself inside a graph.
        cycles = max(0, round((median.median * options.percent / 100 - 1.3) * mhz))
        slower = make_project(folder / "slower", source + PLANT.format(cycles=cycles))
        renamed = make_project(folder / "renamed", source + "# another comment\n")
        planted = trial.table(slower, "planted")
        found = run_record.read_run(planted).results[0].device_us
        assert found is not None
        change = found.median / median.median - 1
        print(f"planted: {median.median:.2f} -> {found.median:.2f} us, {100 * change:+.2f} %")
        trial.gate(
            f"tables, planted {100 * change:+.2f} %", slower, 1, "t00",
            "--baseline", str(first), "--current", str(planted),
        )  # fmt: skip
        value = json.loads(first.read_text())
        value["results"] = value["results"][1:]
        (folder / "missing.json").write_text(json.dumps(value))
        trial.gate(
            "tables, a row missing", base, 1, "missing",
            "--baseline", str(first), "--current", str(folder / "missing.json"),
        )  # fmt: skip
        trial.gate("live, planted", slower, 1, "confirmed", "--against", str(base), "t00")
        trial.gate("live, a comment changed", renamed, 0, "PASS", "--against", str(base), "t00")
        for pair in range(options.pairs):
            one = trial.table(base, f"a{pair}")
            two = trial.table(base, f"b{pair}")
            trial.gate(
                f"tables, A/A pair {pair}", base, 0, "PASS",
                "--baseline", str(one), "--current", str(two),
            )  # fmt: skip
        unchanged = [case for case in trial.cases if "A/A" in case["case"]]
        passed = sum(case["ok"] for case in unchanged)
        others = all(case["ok"] for case in trial.cases if "A/A" not in case["case"])
        print(f"A/A pairs passed: {passed} of {len(unchanged)}")
        keep = options.results / run_record.device_slug(record.device) / "gate"
        json_file.write_json(
            keep / f"{run_record.new_id()}.json",
            {
                "schema": "kernelbench.gate-trial/1",
                "created": run_record.now_iso(),
                "device": record.device,
                "environment": record.environment,
                "command": f"python tools/gate_trial.py --pairs {options.pairs} "
                f"--percent {options.percent:g}",
                "planted_change": change,
                "passed": passed,
                "pairs": len(unchanged),
                "cases": trial.cases,
            },
        )
        return 0 if others and passed >= 0.95 * len(unchanged) else 1


if __name__ == "__main__":
    sys.exit(main())
