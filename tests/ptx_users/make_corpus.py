"""Writes ``corpus/*.ptx.gz``: what Triton makes of the scripts here. Needs Triton 3.6, no GPU.

``python tests/ptx_users/make_corpus.py``; run it again after a change of a script.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import runpy
import sys
import tempfile
from pathlib import Path

from kernelbench.ptx.hosts.triton_session import triton_emulation

FOLDER = Path(__file__).parent
#: Script -> archs.
SCRIPTS = {
    "softmax": (90,),
    "layer_norm": (90,),
    "matmul": (90,),
    "matmul_rows": (90,),
    "matmul_tma": (90,),
    "grouped_fp8": (90,),
    "attention": (90,),
}


def stripped(text: str) -> str:
    """PTX without folders and without debug sections but for the strings."""
    text = re.sub(r'(\.file\s+\d+ )"[^"]*/', r'\1"', text)
    return re.sub(r"\t\.section\t\.debug_(?!str)\w+\n\t\{.*?\n\t\}\n", "", text, flags=re.DOTALL)


def main() -> None:
    """Compile each script, and keep its PTX."""
    (FOLDER / "corpus").mkdir(exist_ok=True)
    for script, archs in SCRIPTS.items():
        for arch in archs:
            with tempfile.TemporaryDirectory() as cache:
                text = stripped(compiled(script, arch, Path(cache)))
            data = gzip.compress(text.encode(), mtime=0)
            (FOLDER / "corpus" / f"{script}_{arch}.ptx.gz").write_bytes(data)
            print(f"{script} sm_{arch}: {len(data)} bytes", file=sys.stderr)


def compiled(script: str, arch: int, cache: Path) -> str:
    """The PTX of a script's one kernel. It is not run, so that the script finds it wrong."""
    os.environ["KERNELBENCH_CACHE"] = str(cache)
    file = FOLDER / "scripts" / f"{script}.py"
    with triton_emulation(arch) as session, session.tuning(), contextlib.suppress(AssertionError):
        runpy.run_path(str(file), run_name="__main__")
    (made,) = cache.glob("triton/*/*.ptx")
    return made.read_text()


if __name__ == "__main__":
    main()
