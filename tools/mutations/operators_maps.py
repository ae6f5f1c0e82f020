"""Operators on tensor maps that a kernel changes, publishes and acquires."""

from __future__ import annotations

from collections.abc import Iterator

from cpp_source import Edit, Source, Span
from mutant import WRONG, Site, drop, expect, operator
from objects import GLOBAL, MAP_ROLES, MAPS, UNORDERED, buffer_in

_PUBLISHED = "tensor-map-proxy"
# A map that covers other memory than it should, or that the hardware refuses.
_WRONG_FIELD = expect(f"{WRONG} out-of-bounds descriptor", GLOBAL, roles=MAP_ROLES)


@operator("replace-dropped", "a field of a tensor map keeps its old value")
def replace_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls(r"tensormap_replace_\w+|replace_matrix|replace_rows"):
        assert call.statement
        # The templates' addresses are null; their rows are one tile.
        yield Site(call.span.start, (drop(call.statement),), _WRONG_FIELD)


@operator("replace-other-map", "a field of another tensor map is replaced")
def replace_other_map(source: Source) -> Iterator[Site]:
    for call in source.calls(r"tensormap_replace_\w+"):
        if source[call.arguments[1]].startswith("&"):
            yield _of_other_map(source, call.span.start, call.arguments[1])
    # A group's maps are changed as a whole.
    for call in source.calls("replace_matrix|replace_rows"):
        yield _of_other_map(source, call.span.start, call.arguments[0])


def _of_other_map(source: Source, position: int, argument: Span) -> Site:
    name = buffer_in(source, argument)
    kind, last = name[:-1], name[-1]
    start = source.code.index(name, argument.start)
    edit = Edit(Span(start, start + len(name)), kind + ("b" if last == "a" else "a"))
    # Another thread may be changing that map.
    expected = expect(
        f"{WRONG} out-of-bounds descriptor {UNORDERED}", GLOBAL, MAPS, roles=MAP_ROLES
    )
    return Site(position, (edit,), expected)


@operator("replace-rows", "a tensor map has a row or column too many or too few")
def replace_rows(source: Source) -> Iterator[Site]:
    sites = [(call, call.arguments[-1]) for call in source.calls("tensormap_replace_global_dim")]
    sites += [(call, call.arguments[2]) for call in source.calls("replace_matrix|replace_rows")]
    for call, at in sites:
        for sign in "+-":
            edit = Edit(at, f"{source[at]} {sign} 1")
            yield Site(call.span.start, (edit,), _WRONG_FIELD, note=f"{sign} 1")


@operator("replace-extent", "a tensor map's rows are half as long, or twice as far apart")
def replace_extent(source: Source) -> Iterator[Site]:
    for call in source.calls("replace_matrix"):
        for at, text in ((call.arguments[3], "/ 2"), (call.arguments[4], "* 2")):
            edit = Edit(at, f"{source[at]} {text}")
            yield Site(call.span.start, (edit,), _WRONG_FIELD, note=text)


@operator("nk-var-inverted", "extents are replaced in the other kernel")
def nk_var_inverted(source: Source) -> Iterator[Site]:
    for match in source.find(r"\((kNkVar)\)"):
        edit = Edit(Span(match.start(1), match.end(1)), "!kNkVar")
        yield Site(match.start(), (edit,), _WRONG_FIELD)


@operator("cp-fenceproxy-dropped", "a changed tensor map is not published")
def cp_fenceproxy_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("tensormap_cp_fenceproxy"):
        assert call.statement
        # The map in device memory was never written: no map at all.
        yield Site(
            call.span.start,
            (drop(call.statement),),
            expect(f"{_PUBLISHED} descriptor", roles=MAP_ROLES),
        )


@operator("cp-fenceproxy-generic", "a changed tensor map is published by ordinary stores")
def cp_fenceproxy_generic(source: Source) -> Iterator[Site]:
    for call in source.calls("tensormap_cp_fenceproxy"):
        to, value = (source[argument] for argument in call.arguments)
        to = to[1:] if to.startswith("&") else f"*{to}"
        yield Site(
            call.span.start,
            (Edit(call.span, f"{to} = {value.removeprefix('&')}"),),
            expect(f"{_PUBLISHED} {UNORDERED}", MAPS, roles=MAP_ROLES),
        )


@operator("map-acquire-dropped", "a changed tensor map is not acquired")
def map_acquire_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("fence_proxy_tensormap_generic_acquire_gpu"):
        assert call.statement
        yield Site(call.span.start, (drop(call.statement),), expect(_PUBLISHED, roles=MAP_ROLES))


@operator("map-acquire-early", "a tensor map is acquired before it is published")
def map_acquire_early(source: Source) -> Iterator[Site]:
    published: dict[str, int] = {}
    for call in source.calls("tensormap_cp_fenceproxy"):
        published.setdefault(source.function_at(call.span.start), call.span.start)
    for call in source.calls("fence_proxy_tensormap_generic_acquire_gpu"):
        assert call.statement
        first = published.get(source.function_at(call.span.start))
        if first is None:
            continue
        at = Span(first, first)
        edits = (Edit(at, source[call.statement] + "\n  "), drop(call.statement))
        yield Site(call.span.start, edits, expect(_PUBLISHED, roles=MAP_ROLES))


@operator("group-change-inverted", "maps are patched when the group stays")
def group_change_inverted(source: Source) -> Iterator[Site]:
    kinds = f"{_PUBLISHED} descriptor out-of-bounds {UNORDERED} {WRONG}"
    expected = expect(kinds, GLOBAL, MAPS, roles=MAP_ROLES)
    for match in source.find(r"\.new_group = [^;]* (!=) "):
        yield Site(match.start(1), (Edit(Span(match.start(1), match.end(1)), "=="),), expected)
    for match in source.find(r"\bif \((tile\.new_group)\b"):
        at = Span(match.start(1), match.end(1))
        yield Site(at.start, (Edit(at, "!tile.new_group"),), expected)
