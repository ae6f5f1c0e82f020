"""How many lines of the steps' functions stand byte for byte in more than one step.

python tools/repeated_lines.py                       every lineage here
python tools/repeated_lines.py --functions 15        and which functions have most of them
python tools/repeated_lines.py --tree /path/to/tree  of another checkout, to compare with
python tools/repeated_lines.py --folders 'moe/m0[89]' 'moe/m1*'  of these steps alone

A function is repeated where its text, from its head to the brace that ends it, stands in several
files below the steps' folders. Every copy but one counts. Building blocks are no step's.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
#: Groups of steps, by name: folders, as patterns below the tree.
GROUPS = {
    "group_gemm, main line": ("kernels/v*",),
    "group_gemm, failed": ("kernels/failed/*",),
    "moe, main line": ("moe/m*",),
    "moe, variants": ("moe/variants/*",),
    "group_gemm_hopper": ("hopper/h*",),
}
_SOURCES = (".cu", ".cuh")
# As clang-format writes them: the head starts in the first column, and so does the last brace.
_FUNCTION = re.compile(
    r"^(?:template <[^\n]*>\n)?(?![/#}\s]|namespace|struct|enum|union|using)[^\n;=]*\([^;{]*\{\n"
    r".*?^\}\n",
    re.DOTALL | re.MULTILINE,
)


def functions_of(file: Path) -> list[str]:
    """The functions of a source file, as they stand there."""
    return _FUNCTION.findall(file.read_text(encoding="utf-8"))


def files_of(tree: Path, patterns: Iterable[str]) -> list[Path]:
    """The sources in the folders that match, in order."""
    folders = [folder for pattern in patterns for folder in sorted(tree.glob(pattern))]
    files = [file for folder in folders for file in sorted(folder.glob("*.cu*"))]
    return [file for file in files if file.suffix in _SOURCES]


def copies(files: Iterable[Path]) -> dict[str, list[Path]]:
    """Where each function stands, for those that stand in several files."""
    found: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        for text in functions_of(file):
            found[text].append(file)
    return {text: places for text, places in found.items() if len(places) > 1}


def repeated(found: dict[str, list[Path]]) -> int:
    """Lines of all copies but one."""
    return sum((len(places) - 1) * text.count("\n") for text, places in found.items())


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tree", type=Path, default=_ROOT, help="checkout (default: this one)")
    parser.add_argument("--functions", type=int, default=0, metavar="N", help="list the first N")
    parser.add_argument("--folders", nargs="+", metavar="PATTERN", help="steps below the tree")
    options = parser.parse_args(arguments)
    if not (options.tree / "kernels").is_dir():
        parser.error(f"--tree {options.tree}: no folder kernels there")
    groups = {"these": options.folders} if options.folders else GROUPS
    everything = files_of(options.tree, [each for group in groups.values() for each in group])
    for name, patterns in groups.items():
        print(f"{repeated(copies(files_of(options.tree, patterns))):6}  {name}")
    found = copies(everything)
    print(f"{repeated(found):6}  all of them together")
    most = sorted(found.items(), key=lambda item: -(len(item[1]) - 1) * item[0].count("\n"))
    for text, places in most[: options.functions]:
        head = text.splitlines()[0]
        print(f"  {len(places):3} copies of {text.count(chr(10)):3} lines  {head}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
