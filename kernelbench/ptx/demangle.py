"""Names of kernels as their sources have them."""

from __future__ import annotations

import ctypes
import functools
import re

from kernelbench.ptx.sources import short_name


def source_name(name: str) -> str:
    """``scale<float, 4>`` for ``_Z5scaleIfLi4EEvPT_``, ``add`` for what CuTe DSL makes of it; other
    names as they are.

    Parameters and results are left out: they are long, and seldom tell kernels apart.
    """
    if of_cute_dsl := _OF_CUTE_DSL.match(name):
        return of_cute_dsl[1]
    library = _library() if name.startswith("_Z") else None
    if library is None:
        return name
    status = ctypes.c_int()
    text = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not text:
        # What the library does not know of nvcc's names.
        return short_name(name)
    try:
        whole = ctypes.string_at(text).decode(errors="replace")
    finally:
        library.free(ctypes.c_void_p(text))
    short = _without_types(whole)
    if len(short) > _LONG:
        short = f"{short.partition('<')[0]}<…>"
    return short or name


#: What CuTe DSL makes of a function's name: its arguments' types and a number are behind it.
_OF_CUTE_DSL = re.compile(
    r"kernel_cutlass_(.+?)(?:_(?:tensorptr|TiledMMA_|TiledCopy_|CopyAtom_|ComposedLayout)\w*|_*)_\d+$"
)
#: Letters of a name; template arguments beyond are left out.
_LONG = 80


@functools.cache
def _library() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    library.__cxa_demangle.restype = ctypes.c_void_p
    library.free.restype = None
    return library


def _without_types(whole: str) -> str:
    """What is outside brackets and before the parameters, behind the result's type."""
    depth, begin = 0, 0
    for at, letter in enumerate(whole):
        if (
            letter == "("
            and depth == 0
            and at > begin
            and not (whole.startswith("(anonymous", at) or whole.endswith("operator", begin, at))
        ):
            return whole[begin:at]
        if letter in "<([{":
            depth += 1
        elif letter in ">)]}":
            depth -= 1
        elif letter == " " and depth == 0:
            begin = at + 1
    return whole[begin:]
