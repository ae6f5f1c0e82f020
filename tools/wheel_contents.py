"""Hook of the build: what a wheel carries beside the package, so that it works in any folder.

An editable install has the checkout itself: see ``kernelbench/project/shipped.py``.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: Records of measurements, documentation and tests stay in the repository.
SHIPPED = ("pyproject.toml", "shapes.yaml", ".clang-format", "kernels", "moe", "hopper", "peers")


class ShippedTree(BuildHookInterface[Any]):
    """Puts the lineages into wheels; hatchling finds it by pyproject.toml's ``hooks.custom``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files to a wheel; to an editable one none."""
        if version != "editable":
            build_data["force_include"] |= {
                f"{self.root}/{name}": f"kernelbench/_shipped/{name}" for name in SHIPPED
            }
