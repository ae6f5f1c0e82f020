"""Compare what our reader accepts with what the published models of FlashInfer-Bench accept.

``python tools/compare_flashinfer.py`` takes the definition, workloads, solutions and traces that
the tests are made of, and each of them with one field left out or replaced by something else. Every
document goes to the models of the installed ``flashinfer-bench`` (``pip install flashinfer-bench``)
and to ours; verdicts that differ are listed with the reason, or as unexplained.

Exit codes: 0 no unexplained difference, 1 some, 5 the package is not installed.
"""

from __future__ import annotations

import copy
import importlib
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kernelbench.base.errors import UsageError
from kernelbench.problems.flashinfer.json_fields import JsonFields
from kernelbench.problems.flashinfer.models import (
    read_definition,
    read_figure,
    read_solution,
    read_workload,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "flashinfer"))
datasets = importlib.import_module("datasets")

PACKAGE = "flashinfer-bench"
#: What a field is replaced by; a list or object also by itself without its members.
REPLACEMENTS: tuple[Any, ...] = (None, "", "no such", "a::b::c", -1, 2, 1.5, True, [], ["x <"], {})
#: By which side accepts, document and field: why the verdicts may differ.
EXPLAINED = (
    ("published", r".* = true$", "we take no boolean for a number"),
    ("published", r"definition /(in|out)puts", "run takes other inputs, or there is no output"),
    ("published", r"workload /workload/", "the definition has other axes or inputs"),
    ("published", r"workload /definition", "a file has its own definition's workloads"),
    ("published", r"workload /solution", "refused when the published code loads a dataset"),
    ("published", r"trace /solution", "it names nothing"),
    ("ours", r"definition /op_type", "optional in SOL-ExecBench"),
    ("ours", r"definition /tags", "not used"),
    ("ours", r"solution /spec/language", "listed as a language that is not run"),
    ("ours", r"trace ", "read for its latency only"),
    ("ours", r".* = null$", "null is read as a field that is not there"),
)

Reader = Callable[[JsonFields], object]


def documents() -> Iterator[tuple[str, str, dict[str, Any], Reader]]:
    """Kind, name of the published model, document, and how we read it."""
    definition = read_definition(JsonFields("definition", datasets.RMSNORM))
    yield "definition", "Definition", datasets.RMSNORM, read_definition
    for stored in (False, True):
        line = datasets.workload("aaa", 4, stored)
        yield "workload", "Trace", line, lambda fields: read_workload(fields, definition)
    for each in (
        datasets.RETURNS, datasets.WRITES, datasets.REORDERED, datasets.TRITON, datasets.CUDA,
    ):  # fmt: skip
        yield "solution", "Solution", each, read_solution
    for line in (datasets.trace("aaa", 0.008), datasets.trace("ccc", 0, "RUNTIME_ERROR")):
        yield "trace", "Trace", line, read_figure


def variants(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The document itself, then with one field changed: what was done, and the result."""
    yield "as it is", document
    for path in _paths(document):
        pointer = "".join(f"/{key}" for key in path)
        yield f"{pointer} left out", _changed(document, path, None, leave_out=True)
        for value in REPLACEMENTS:
            yield f"{pointer} = {json.dumps(value)}", _changed(document, path, value)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    numbered = dict(enumerate(value)) if isinstance(value, list) else {}
    for key, item in (value if isinstance(value, dict) else numbered).items():
        yield (*path, key)
        yield from _paths(item, (*path, key))


def _changed(document: Any, path: tuple[Any, ...], value: Any, leave_out: bool = False) -> Any:
    changed = copy.deepcopy(document)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    if leave_out:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return changed


def accepted_by_us(read: Reader, document: Any) -> bool:
    """Whether our reader takes it; anything but its own error is a fault of ours and is raised."""
    try:
        read(JsonFields("document", document))
    except UsageError:
        return False
    return True


def accepted_by_them(model: Any, document: Any) -> bool:
    """Whether the published model takes it."""
    try:
        model.model_validate_json(json.dumps(document))
    except ValueError:
        return False
    return True


def main() -> int:
    """Print the table."""
    try:
        published = importlib.import_module("flashinfer_bench.data")
        found = version(PACKAGE)
    except (ImportError, PackageNotFoundError) as error:
        print(f"{PACKAGE} is not installed ({error}): pip install {PACKAGE}", file=sys.stderr)
        return 5
    verdicts: Counter[tuple[str, str]] = Counter()
    differing: dict[tuple[str, str], list[str]] = {}
    for kind, model, document, read in documents():
        for what, variant in variants(document):
            theirs = accepted_by_them(getattr(published, model), variant)
            ours = accepted_by_us(read, variant)
            side = "same" if ours == theirs else "ours" if ours else "published"
            verdicts[kind, side] += 1
            if side != "same":
                where = f"{kind} {what}"
                reasons = (why for by, at, why in EXPLAINED if by == side and re.match(at, where))
                differing.setdefault((side, next(reasons, "UNEXPLAINED")), []).append(where)
    print(f"{PACKAGE} {found}: documents by verdict")
    print(f"{'':12}{'same':>8}{'published only':>16}{'ours only':>12}")
    for kind in dict.fromkeys(kind for kind, _ in verdicts):
        same, theirs_only, ours_only = (verdicts[kind, s] for s in ("same", "published", "ours"))
        print(f"{kind:12}{same:8}{theirs_only:16}{ours_only:12}")
    for (side, reason), wheres in differing.items():
        print(f"accepted by {side} only: {reason} ({len(wheres)}), e.g. {wheres[0]}")
        if reason == "UNEXPLAINED":
            print("\n".join(f"    {where}" for where in wheres))
    return int(any(reason == "UNEXPLAINED" for _, reason in differing))


if __name__ == "__main__":
    sys.exit(main())
