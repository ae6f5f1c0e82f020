"""The table of instructions: opcode → C++ → the test that proves it.

An instruction that no row spells is unsupported, and is named with its line before anything runs.
"""

from __future__ import annotations

import functools
from collections import defaultdict

from kernelbench.ptx.lowering import (
    barriers,
    comparisons,
    control,
    conversions,
    copies,
    floats,
    hints,
    integers,
    matrices,
    memory,
    tensor,
    textures,
    warps,
    wmma,
)
from kernelbench.ptx.lowering.forms import Form

TABLE: tuple[Form, ...] = (
    *integers.INTEGER_FORMS,
    *floats.FLOAT_FORMS,
    *comparisons.COMPARISON_FORMS,
    *conversions.CONVERSION_FORMS,
    *memory.MEMORY_FORMS,
    *control.CONTROL_FORMS,
    *warps.WARP_FORMS,
    *barriers.BARRIER_FORMS,
    *copies.COPY_FORMS,
    *matrices.MATRIX_FORMS,
    *wmma.WMMA_FORMS,
    *tensor.TENSOR_FORMS,
    *textures.TEXTURE_FORMS,
    *hints.HINT_FORMS,
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
    for spelling in dict.fromkeys((opcode, _in_order(opcode))):
        for form in _by_root().get(root, ()):
            match = form.pattern.fullmatch(spelling)
            if match is not None:
                return form, tuple(choice.removeprefix(".") for choice in match.groups())
    return None


_MEMORY = (
    ("relaxed", "acquire", "release", "acq_rel", "weak", "volatile"),
    ("cta", "cluster", "gpu", "sys"),
    ("global", "shared", "shared::cta", "shared::cluster"),
)
_MATRIX = (("sync",), ("aligned",), ("m8n8",))
#: The modifiers that come first, as PTX ISA 9.1 has them. ptxas takes any order, and headers,
#: compilers, CUTLASS and ThunderKittens write others.
_FIRST = {
    **dict.fromkeys(("atom", "red", "ld", "st"), _MEMORY),
    **dict.fromkeys(("ldmatrix", "stmatrix"), _MATRIX),
    "vote": (("sync",),),
}
#: And those that come last.
_LAST = {
    "cp": (("multicast::cluster",), ("cta_group::1", "cta_group::2"), ("L2::cache_hint",)),
    "tcgen05": (("shared::cluster",), ("multicast::cluster",), ("b64",)),
}


def _in_order(opcode: str) -> str:
    root, *modifiers = opcode.split(".")
    groups = (*_FIRST.get(root, ()), (), *_LAST.get(root, ()))
    others = groups.index(())

    def place(modifier: str) -> int:
        return next((at for at, names in enumerate(groups) if modifier in names), others)

    return ".".join((root, *sorted(modifiers, key=place)))
