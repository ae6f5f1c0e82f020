"""Names of kernels as their sources have them."""

from __future__ import annotations

import ctypes
import functools
import re


def source_name(name: str) -> str:
    """``scale<float, 4>`` for ``_Z5scaleIfLi4EEvPT_``, ``add`` for what CuTe DSL makes of it; other
    names as they are.

    Parameters and results are left out: they are long, and seldom tell kernels apart.
    """
    if of_cute_dsl := _OF_CUTE_DSL.match(name):
        return of_cute_dsl[1]
    name = _without_file(name)
    whole = cxx_name(name)
    if not whole:
        return short_name(name)
    short = _without_types(whole)
    if len(short) > _LONG:
        short = f"{short.partition('<')[0]}<…>"
    return short or name


def short_name(mangled: str) -> str:
    """``load_warp`` for ``_ZN2kb4step9load_warpERKNS0_6GroupsE``, ``main::{lambda(int)#1}`` for
    ``_ZZ4mainENKUliE_clEi``; other names as they are.
    """
    mangled = _without_file(mangled)
    if _LAMBDA.match(mangled):
        return _lambda_name(cxx_name(mangled)) or mangled
    if (static := _STATIC.search(mangled)) is not None:
        return static[2][: int(static[1])]
    if not mangled.startswith("_Z"):
        return mangled
    at, last = len(mangled) - len(re.sub(r"^_ZN?[rVK]*", "", mangled)), mangled
    while (number := re.compile(r"(?:S_|St|L)?(\d+)").match(mangled, at)) is not None:
        end = number.end() + int(number[1])
        last, at = mangled[number.end() : end], end
    return last


def _without_file(name: str) -> str:
    """What nvcc -rdc=true puts ahead of a static kernel's name is left out: its file, in so many
    letters."""
    file = re.match(r"__nv_static_(\d+)__", name)
    return (file and name[file.end() + int(file[1]) :]) or name


#: A variable of a function: ``_ZZ6kernelPiE4tile``; and a lambda's call.
_STATIC = re.compile(r"^_ZZ.*E(\d+)([A-Za-z_]\w*)$")
_LAMBDA = re.compile(r"^_ZZ.*U[lE].*E\d*_cl[EI](?!.*E\d)")


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


def cxx_name(name: str) -> str:
    """What the library says of a C++ name; nothing of what it does not know, as some of nvcc's."""
    library = _library() if name.startswith("_Z") else None
    if library is None:
        return ""
    status = ctypes.c_int()
    text = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if not text:
        return ""
    try:
        return ctypes.string_at(text).decode(errors="replace")
    finally:
        library.free(ctypes.c_void_p(text))


def _lambda_name(whole: str) -> str:
    """``main::{lambda(int)#1}`` for ``auto main::{lambda(int)#1}::operator()(int) const``."""
    inside = re.findall(r"(\w+)(?:<[^{}]*>)?(?:\([^{}]*\))?(?: const)?::(?=\{lambda)", whole)
    parts = re.findall(r"\{lambda[^{}]*\}", whole)
    return "::".join([*inside[:1], *parts])


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
