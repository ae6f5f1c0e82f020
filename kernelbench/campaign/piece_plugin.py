"""What goes to the workers of a Dask cluster: the code, and what runs a piece with it.

Both are sent as code, by value, so that a worker needs Dask and nothing of kernelbench.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distributed import WorkerPlugin

from kernelbench.campaign.piece_process import PieceRunner


class CodePlugin(WorkerPlugin):  # type: ignore[misc]
    """The code of a campaign (see :class:`PieceRunner`) at each worker, also at later ones."""

    def __init__(self, data: bytes, sha: str, root: str) -> None:
        self._archive = (data, sha, root)
        self.runner: PieceRunner | None = None

    def setup(self, worker: Any) -> None:
        """At the worker: be ready; the code is unpacked for the first piece."""
        self.runner = PieceRunner(*self._archive)

    def teardown(self, worker: Any) -> None:
        """At the worker: end what runs; called when the client takes the plugin away."""
        if self.runner is not None:
            self.runner.stop()


def runner_of(plugin: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A task for a worker that has the plugin of that name.

    It is a function within a function, which goes by value, unlike one of a module.
    """

    def run(order: dict[str, Any]) -> dict[str, Any]:
        from distributed import get_worker

        found: dict[str, Any] = get_worker().plugins[plugin].runner.run(order)
        return found

    return run
