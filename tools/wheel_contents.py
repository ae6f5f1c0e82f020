"""Hook of the build: what a wheel carries beside the package, so that it works in any folder.

An editable install has the checkout itself: see ``kernelbench/project/shipped.py``.
"""

from __future__ import annotations

import os
import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: Names the folder that ``tools/prebuild.py`` has filled; unset, a wheel brings nothing built.
PREBUILT_VARIABLE = "KERNELBENCH_PREBUILT"
#: What that is good for.
PREBUILT_TAG = "py3-none-manylinux_2_28_x86_64"


class ShippedTree(BuildHookInterface[Any]):
    """Puts the lineages and what is built into wheels.

    hatchling finds it by pyproject.toml's ``hooks.custom``.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files to a wheel; to an editable one none."""
        if version == "editable":
            return
        shipped = runpy.run_path(f"{self.root}/kernelbench/project/shipped.py")
        build_data["force_include"] |= {
            f"{self.root}/{name}": f"kernelbench/_shipped/{name}"
            for name in shipped["shipped_names"]()
        }
        if folder := os.environ.get(PREBUILT_VARIABLE):
            if not [*Path(folder).glob("*/lib.so")]:
                raise FileNotFoundError(f"{PREBUILT_VARIABLE}: {folder} has no */lib.so")
            build_data["force_include"][str(Path(folder).resolve())] = "kernelbench/_prebuilt"
            build_data |= {"pure_python": False, "tag": PREBUILT_TAG}
