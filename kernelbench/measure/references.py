"""References that the steps of one run share.

The float64 product of a large shape takes as long as many calls of a step, and ``run v01..v23``
judges all of its steps on the same inputs. So the first to need a reference leaves it in a folder
of the run, and the others map it. Inputs are drawn anew for every step all the same.

A problem with ``shares_references = False`` has its references computed for every step.

For steps of a lineage on a CPU only: a submission must find no result that it has not computed, and
a GPU computes a reference in no time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelbench.project.guarded import GuardedProblem

if TYPE_CHECKING:
    from kernelbench.project.problem import Problem


def reference(
    folder: str,
    problem: Problem,
    shape: Any,
    input_class: str,
    seed: int,
    compute: Callable[[], Any],
) -> Any:
    """The reference of inputs drawn from ``seed``, from the folder, or computed and left there.

    Args:
        folder: Of :func:`kernelbench.runs.shared_references.shared_folder`; empty to compute it in
        any case.
        problem: As the step is judged by it.
        compute: Gives the reference. A folder that cannot hold it costs time and nothing else.
    """
    if not folder or not getattr(problem, "shares_references", True):
        return compute()
    import torch

    settings = problem.settings() if isinstance(problem, GuardedProblem) else vars(problem)
    what = repr((problem.name, settings, shape, input_class, seed))
    path = Path(folder) / f"{hashlib.sha256(what.encode()).hexdigest()}.pt"
    if path.exists():
        # Our own file in a folder that only we can write; its classes are the problem's.
        return torch.load(path, weights_only=False, mmap=True)
    value = compute()
    unfinished = path.with_suffix(f".{os.getpid()}")
    try:
        torch.save(value, unfinished)
        unfinished.replace(path)
    except (OSError, RuntimeError):  # torch's writer raises the latter on a full disk
        unfinished.unlink(missing_ok=True)
    return value
