"""One file of a source and all that it includes, and the same for another backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelbench.base.errors import UsageError
from kernelbench.build.flatten import Folders, flatten, parse_flat, with_backend

FILES = {
    "step/launch.cu": '#include <set>\n#include "kernel.cuh"\n#include "late.cuh"  // l\nint x;\n',
    "step/kernel.cuh": '#pragma once\n\n#include "rt.cuh"\n// #include "absent.cuh"\nint kernel;\n',
    "common/rt.cuh": '#pragma once\n#include "types.cuh"\nint rt;\n#include "rt.inl"\n',
    "common/types.cuh": "#pragma once\nint types;",
    "common/late.cuh": '#pragma once\n/* #include "absent"\n*/\n#include <types.cuh>\nint late;\n',
    "common/backend/one/rt.inl": '#include "../both/all.inl"\nint one;\n',
    "common/backend/both/all.inl": '#include "types.cuh"\nint shared;\n',
    "common/backend/two/rt.inl": '#include "late.cuh"\n#include "only.cuh"\nint two;\n',
    "common/only.cuh": '#pragma once\n#include "types.cuh"\nint only;\n',
}
FLAT = """\
// >>> step/launch.cu
#include <set>
// >>> step/kernel.cuh

// >>> common/rt.cuh
// >>> common/types.cuh
int types;
// <<< common/types.cuh
int rt;
// >>> backend/rt.inl
// >>> common/backend/both/all.inl
// === common/types.cuh
int shared;
// <<< common/backend/both/all.inl
int one;
// <<< backend/rt.inl
// <<< common/rt.cuh
// #include "absent.cuh"
int kernel;
// <<< step/kernel.cuh
// >>> common/late.cuh
/* #include "absent"
*/
// === common/types.cuh
int late;
// <<< common/late.cuh
int x;
// <<< step/launch.cu
"""


def folders(root: Path, backend: str = "one") -> Folders:
    common = root / "common"
    return Folders(
        {"step": root / "step", "common": common, "backend": common / "backend" / backend}
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_each_text_stands_where_it_is_included_first(root: Path) -> None:
    assert flatten(root / "step" / "launch.cu", folders(root)) == FLAT


def test_another_backend_brings_its_own_order(root: Path) -> None:
    """It includes late.cuh early, and a file of its own; what the first one shared is gone."""
    code = [
        line
        for line in with_backend(FLAT, folders(root, "two")).splitlines()
        if line.startswith("int")
    ]
    names = ["types", "rt", "late", "only", "two", "kernel", "x"]
    assert code == [f"int {name};" for name in names]


def test_another_backend_meets_the_texts_of_the_flat_file(root: Path) -> None:
    (root / "common" / "late.cuh").write_text("int newer;\n")
    (root / "common" / "types.cuh").unlink()
    found = with_backend(FLAT, folders(root, "two"))
    assert "int late;" in found and "newer" not in found


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("step/kernel.cuh", "#include NAME\n", r"kernel\.cuh:1: cannot tell what this includes"),
        ("step/kernel.cuh", "#if A\n#include <late.cuh>\n#endif\n", r"kernel\.cuh:2: .*inside #if"),
        ("step/kernel.cuh", "// >>> a/b\n", r"kernel\.cuh:1: reads as a mark"),
        ("common/types.cuh", b"// \xff\n", r"types\.cuh is not UTF-8"),
    ],
)
def test_what_cannot_be_one_file(root: Path, file: str, text: str | bytes, said: str) -> None:
    (root / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=said) as caught:
        flatten(root / "step" / "launch.cu", folders(root))
    assert "\n" not in str(caught.value)


def test_a_guard_by_macro_is_no_condition(root: Path) -> None:
    guarded = '// Guarded.\n#ifndef G\n#define G\n#include "types.cuh"\n#endif  // G\n'
    (root / "step" / "kernel.cuh").write_text(guarded)
    assert "int types;" in flatten(root / "step" / "launch.cu", folders(root))


@pytest.mark.parametrize(
    "damage",
    ["// <<< common/rt.cuh\n", "// >>> common/rt.cuh\n", "// <<< step/launch.cu\n"],
)
def test_marks_that_do_not_fit_are_refused(damage: str) -> None:
    assert damage in FLAT
    with pytest.raises(UsageError, match="flat source"):
        parse_flat(FLAT.replace(damage, "", 1))
    with pytest.raises(UsageError, match="flat source"):
        parse_flat("int x;\n")
