"""The table of instructions: opcode → C++ → the test that proves it.

An instruction that no row spells is unsupported, and is named with its line before anything runs.
"""

from __future__ import annotations

import functools
from collections import defaultdict

from kernelbench.ptx import (
    barriers,
    control,
    copies,
    floats,
    integers,
    memory,
    tensor,
    warps,
)
from kernelbench.ptx.forms import Form

TABLE: tuple[Form, ...] = (
    *integers.INTEGER_FORMS,
    *floats.FLOAT_FORMS,
    *memory.MEMORY_FORMS,
    *control.CONTROL_FORMS,
    *warps.WARP_FORMS,
    *barriers.BARRIER_FORMS,
    *copies.COPY_FORMS,
    *tensor.TENSOR_FORMS,
)


@functools.cache
def _by_root() -> dict[str, list[Form]]:
    found: defaultdict[str, list[Form]] = defaultdict(list)
    for form in TABLE:
        for root in form.roots:
            found[root].append(form)
    return found


@functools.cache
def row_of(opcode: str) -> tuple[Form, tuple[str, ...]] | None:
    """The row that spells an opcode, with the choices made; None if there is none."""
    root = opcode.partition(".")[0]
    for spelling in dict.fromkeys((opcode, _in_order(opcode) if root in _ANY_ORDER else opcode)):
        for form in _by_root().get(root, ()):
            match = form.pattern.fullmatch(spelling)
            if match is not None:
                return form, tuple(choice.removeprefix(".") for choice in match.groups())
    return None


#: ptxas takes their modifiers in any order, and headers and compilers write them so.
_ANY_ORDER = ("atom", "red")
_FIRST = (
    ("relaxed", "acquire", "release", "acq_rel"),
    ("cta", "cluster", "gpu", "sys"),
    ("global", "shared", "shared::cta", "shared::cluster"),
)


def _in_order(opcode: str) -> str:
    """Order, scope and space first, as PTX ISA 9.1 has them; the others as they are."""
    root, *modifiers = opcode.split(".")

    def place(modifier: str) -> int:
        places = [at for at, names in enumerate(_FIRST) if modifier in names]
        return places[0] if places else len(_FIRST)

    return ".".join((root, *sorted(modifiers, key=place)))
