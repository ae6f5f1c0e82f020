"""Hook of the build: the steps that the package runs, as ``kernelbench export`` writes them."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).resolve().parent
PACKAGE = HERE / "src" / "kernelbench_moe"


class ExportedSteps(BuildHookInterface[Any]):
    """Puts the steps into the wheel; hatchling finds it by pyproject.toml's ``hooks.custom``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Export the steps, where kernelbench is or the steps are not there yet."""
        folder = PACKAGE / "steps"
        try:
            export_steps(folder)
        except RuntimeError:
            # In a source distribution they are there.
            if not all((folder / f"{name}.py").is_file() for name in step_names()):
                raise
        build_data["artifacts"].append("src/kernelbench_moe/steps/*.py")


def step_names() -> list[str]:
    """The steps of the package's table, and the one that CPU tensors are computed with."""
    table = runpy.run_path(str(PACKAGE / "table.py"))
    return sorted({row.step for row in table["TABLE"]} | {table["CPU_STEP"]})


def export_steps(folder: Path) -> None:
    """Write each step to ``folder/NAME.py``.

    Args:
        folder: An existing folder; files of these names are replaced.

    Raises:
        RuntimeError: In one line, if kernelbench is missing or refuses to export a step.
    """
    environment = dict(os.environ)
    checkout = HERE.parents[1]
    if (checkout / "kernelbench" / "__main__.py").is_file():
        inherited = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(checkout), inherited)))
    for name in step_names():
        # A Python step needs the name of one; it becomes a comment.
        command = [sys.executable, "-m", "kernelbench", "export", name, "--leaderboard", "none"]
        done = subprocess.run(
            [*command, "--force", "-o", str(folder / f"{name}.py")],
            cwd=HERE, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(
                f"kernelbench-moe: cannot export step {name}: {reason}; build with "
                "--no-build-isolation where kernelbench is installed"
            )
