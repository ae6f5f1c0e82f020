"""``python -m kernelbench_moe``: compile the steps of the table, and say what is here."""

from __future__ import annotations

import importlib.metadata
import sys

from kernelbench_moe import TABLE, __version__, sglang_plugin, vllm_plugin
from kernelbench_moe.op import load_launcher, load_step


def main() -> int:
    """Print a line for each row and each engine; 1 if a step cannot be compiled."""
    print(f"kernelbench-moe {__version__}")
    failed = False
    for row in TABLE:
        try:
            load_step(row.step)
            by = "C++" if load_launcher(row.step) else "Python"
            print(f"up to {row.tokens} tokens: {row.step}, compiled, launched from {by}")
        except RuntimeError as error:
            failed = True
            print(f"up to {row.tokens} tokens: {row.step}: {error}", file=sys.stderr)
    for engine, written_for in (
        ("vllm", vllm_plugin.WRITTEN_FOR), ("sglang", sglang_plugin.WRITTEN_FOR),
    ):  # fmt: skip
        try:
            here = importlib.metadata.version(engine)
        except importlib.metadata.PackageNotFoundError:
            here = "none here"
        print(f"{engine}: {here}, written for {written_for}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
