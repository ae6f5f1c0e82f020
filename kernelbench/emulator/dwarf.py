"""What a library's DWARF says: which source lines an address comes from, how a struct is laid out.

GNU addr2line is not enough: it names some inlined functions after the symbol that holds them.
"""

from __future__ import annotations

import bisect
import functools
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

#: Elements of at least this size are named by index; smaller ones are bytes of a buffer.
_INDEXED_BYTES = 8
_MAX_DEPTH = 16
_HOLDING_FUNCTIONS = (
    "DW_TAG_namespace", "DW_TAG_subprogram", "DW_TAG_structure_type", "DW_TAG_class_type",
    "DW_TAG_lexical_block",
)  # fmt: skip
_CODE = ("DW_TAG_subprogram", "DW_TAG_inlined_subroutine", "DW_TAG_lexical_block")


@dataclass(frozen=True)
class Frame:
    """One function, inlined or not, that holds an address: innermost first in a chain."""

    function: str
    file: str
    line: int


@functools.cache
def frames_at(module: str, offset: int) -> tuple[Frame, ...]:
    """The chain of inlined functions at an offset in a library; empty without debug information."""
    return _first(module, lambda unit, local: unit.frames(offset, local))


@functools.cache
def callers_at(module: str, offset: int) -> tuple[Frame, ...]:
    """:func:`frames_at` without the innermost: reads no table of lines, which takes seconds."""
    return _first(module, lambda unit, local: unit.callers(offset, local))


def _first(module: str, frames: Callable[[_Unit, bool], list[Frame]]) -> tuple[Frame, ...]:
    """What one unit finds; functions of functions are looked for where nothing else is found."""
    every = ((unit, local) for local in (False, True) for unit in _units(module))
    return next((tuple(found) for unit, local in every if (found := frames(unit, local))), ())


@functools.cache
def layout_of(module: str, type_name: str) -> Layout | None:
    """The struct of that name, qualified or not; None without debug information."""
    path = re.sub(r"\{anonymous\}|\(anonymous namespace\)", "", type_name).split("::")
    for unit in _units(module):
        die = _find(unit.top, [part for part in path if part])
        if die is not None:
            return _type(die)
    return None


@functools.cache
def _units(module: str) -> tuple[_Unit, ...]:
    try:
        from elftools.common.exceptions import ELFError
        from elftools.elf.elffile import ELFFile
    except ImportError:
        return ()  # a finding without its lines is better than none

    try:
        # In memory, as DIEs are read when they are asked for.
        elf = ELFFile(io.BytesIO(Path(module).read_bytes()))
        if not elf.has_dwarf_info():
            return ()
        info = elf.get_dwarf_info(relocate_dwarf_sections=False)  # it is linked
        return tuple(_Unit(info, unit) for unit in info.iter_CUs())
    except (OSError, ELFError):
        return ()


class _Unit:
    """One compilation unit."""

    def __init__(self, info: Any, unit: Any) -> None:
        self._info = info
        self._unit = unit
        self._known: dict[int, tuple[tuple[int, int], ...]] = {}  # ranges, by a DIE's offset

    @functools.cached_property
    def top(self) -> Any:
        """Its DIE, before which the unit's table of abbreviations is read."""
        return self._unit.get_top_DIE()

    def frames(self, offset: int, local: bool) -> list[Frame]:
        """Innermost first; ``local``: of functions that are another one's."""
        dies = self._holding(offset, local)
        where = self._line(offset) if dies else None
        return self._chain(dies, *where) if where is not None else []

    def callers(self, offset: int, local: bool) -> list[Frame]:
        """The frames but the innermost."""
        return self._chain(self._holding(offset, local), "", 0)[1:]

    def _chain(self, dies: Sequence[Any], file: str, line: int) -> list[Frame]:
        frames = []
        for die in reversed(dies):
            frames.append(Frame(_origin_name(die), file, line))
            if die.tag == "DW_TAG_inlined_subroutine":
                file = self._files[int(die.attributes["DW_AT_call_file"].value)]
                line = int(die.attributes["DW_AT_call_line"].value)
        return frames

    def _holding(self, offset: int, local: bool) -> list[Any]:
        """The functions that hold an address, outermost first."""
        return [*(self._local if local else self._enclosing)(self.top, offset)]

    def _local(self, scope: Any, offset: int) -> Iterator[Any]:
        """Those of a function that is another one's, such as a lambda that is not inlined."""
        for die in scope.iter_children():
            if die.tag in _HOLDING_FUNCTIONS:
                found = [*self._enclosing(die, offset)] or [*self._local(die, offset)]
                if found:
                    yield from found
                    return

    def _enclosing(self, scope: Any, offset: int) -> Iterator[Any]:
        """The functions that hold an address, outermost first."""
        for die in scope.iter_children():
            if die.tag == "DW_TAG_namespace":
                yield from self._enclosing(die, offset)
            elif die.tag in _CODE and any(a <= offset < b for a, b in self._ranges_of(die)):
                if die.tag != "DW_TAG_lexical_block":
                    yield die
                yield from self._enclosing(die, offset)

    def _ranges_of(self, die: Any) -> tuple[tuple[int, int], ...]:
        if die.offset not in self._known:
            self._known[die.offset] = tuple(self._ranges(die))
        return self._known[die.offset]

    def _ranges(self, die: Any) -> Iterator[tuple[int, int]]:
        from elftools.dwarf.descriptions import describe_form_class
        from elftools.dwarf.ranges import RangeEntry

        low = die.attributes.get("DW_AT_low_pc")
        high = die.attributes.get("DW_AT_high_pc")
        if low is not None and high is not None:
            absolute = describe_form_class(high.form) == "address"
            yield low.value, high.value + (0 if absolute else low.value)
        elif "DW_AT_ranges" in die.attributes:
            start = self.top.attributes.get("DW_AT_low_pc")
            base = start.value if start is not None else 0
            lists = self._info.range_lists()
            for entry in lists.get_range_list_at_offset(
                die.attributes["DW_AT_ranges"].value, self._unit
            ):
                if not isinstance(entry, RangeEntry):
                    base = entry.base_address
                else:
                    shift = 0 if entry.is_absolute else base
                    yield shift + entry.begin_offset, shift + entry.end_offset

    def _line(self, offset: int) -> tuple[str, int] | None:
        index = bisect.bisect_right(self._rows, offset, key=lambda row: row[0]) - 1
        if index < 0 or self._rows[index][1] is None:
            return None
        _, file, line = self._rows[index]
        return self._files[file or 0], line

    @functools.cached_property
    def _rows(self) -> list[tuple[int, int | None, int]]:
        """Address, file and line where each row begins; no file where a sequence ends."""
        rows: list[tuple[int, int | None, int]] = []
        for entry in self._info.line_program_for_CU(self._unit).get_entries():
            state = entry.state
            if state is not None:
                file = None if state.end_sequence else int(state.file)
                rows.append((int(state.address), file, int(state.line)))
        # Where a sequence ends another may begin.
        return sorted(rows, key=lambda row: (row[0], row[1] is not None))

    @functools.cached_property
    def _files(self) -> dict[int, str]:
        header = self._info.line_program_for_CU(self._unit).header
        folders = [folder.decode(errors="replace") for folder in header["include_directory"]]
        first = 0
        if header["version"] < 5:
            # Before DWARF 5 files count from 1, and folder 0 is where the compiler ran.
            folder = self.top.attributes.get("DW_AT_comp_dir")
            folders.insert(0, folder.value.decode(errors="replace") if folder else "")
            first = 1
        return {
            number: str(
                PurePosixPath(folders[entry.dir_index]) / entry.name.decode(errors="replace")
            )
            for number, entry in enumerate(header["file_entry"], first)
        }


def _origin_name(die: Any) -> str:
    for _ in range(_MAX_DEPTH):
        if "DW_AT_name" in die.attributes:
            return _name(die)
        for link in ("DW_AT_abstract_origin", "DW_AT_specification"):
            if link in die.attributes:
                die = die.get_DIE_from_attribute(link)
                break
        else:
            break
    return ""


# -- fields of a struct --------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """A type as far as naming a byte of it needs: a struct's members, or an array's element.

    Attributes:
        name: Of a struct, without its namespace.
    """

    size: int
    members: tuple[tuple[str, int, Layout], ...] = ()
    element: Layout | None = None
    name: str = ""

    def name_at(self, offset: int) -> str:
        """The field that holds a byte."""
        return self._path(offset).removeprefix(".")

    def _path(self, offset: int, depth: int = 0) -> str:
        rest = f" + {offset:#x}" if offset else ""
        if depth > _MAX_DEPTH:
            return rest
        if self.element is not None:
            if self.element.size < _INDEXED_BYTES:
                return rest
            index, inside = divmod(offset, self.element.size)
            return f"[{index}]{self.element._path(inside, depth + 1)}"
        if self.size <= _INDEXED_BYTES and depth:
            return rest
        for name, start, kind in self.members:
            if start <= offset < start + kind.size:
                # Members of the standard library's containers and base classes have no name here.
                shown = "" if not name or name.startswith("_M_") else f".{name}"
                return shown + kind._path(offset - start, depth + 1)
        return rest


_SCOPES = ("DW_TAG_namespace", "DW_TAG_structure_type", "DW_TAG_class_type")


def _find(scope: Any, path: Sequence[str]) -> Any:
    """The definition of a struct whose qualified name is or ends in ``path``."""
    for die in scope.iter_children():
        name = _name(die)
        if die.tag not in _SCOPES or name == "std":
            continue
        found = None
        if name == path[0]:
            if len(path) > 1:
                found = _find(die, path[1:])
            elif "DW_AT_byte_size" in die.attributes:
                found = die
        if found is None and die.tag == "DW_TAG_namespace":
            found = _find(die, path)
        if found is not None:
            return found
    return None


def _name(die: Any) -> str:
    value = die.attributes.get("DW_AT_name")
    return value.value.decode(errors="replace") if value is not None else ""


def _size(die: Any) -> int:
    value = die.attributes.get("DW_AT_byte_size")
    return int(value.value) if value is not None else 0


def _type(die: Any, depth: int = 0) -> Layout:
    if depth > _MAX_DEPTH:
        return Layout(0)
    if die.tag in (
        "DW_TAG_typedef", "DW_TAG_const_type", "DW_TAG_volatile_type", "DW_TAG_atomic_type",
    ):  # fmt: skip
        if "DW_AT_type" not in die.attributes:
            return Layout(0)
        return _type(die.get_DIE_from_attribute("DW_AT_type"), depth + 1)
    if die.tag == "DW_TAG_array_type":
        element = _type(die.get_DIE_from_attribute("DW_AT_type"), depth + 1)
        extents = [_extent(child) for child in die.iter_children()]
        for extent in reversed(extents):
            element = Layout(extent * element.size, element=element)
        return element
    if die.tag in ("DW_TAG_structure_type", "DW_TAG_class_type", "DW_TAG_union_type"):
        members = []
        for child in die.iter_children():
            static = "DW_AT_external" in child.attributes or "DW_AT_declaration" in child.attributes
            if child.tag not in ("DW_TAG_member", "DW_TAG_inheritance") or static:
                continue
            where = child.attributes.get("DW_AT_data_member_location")
            kind = _type(child.get_DIE_from_attribute("DW_AT_type"), depth + 1)
            members.append((_name(child), int(where.value) if where is not None else 0, kind))
        return Layout(_size(die), members=tuple(members), name=_name(die))
    return Layout(_size(die))


def _extent(die: Any) -> int:
    for name, more in (("DW_AT_count", 0), ("DW_AT_upper_bound", 1)):
        value = die.attributes.get(name)
        if value is not None and isinstance(value.value, int):
            return value.value + more
    return 0
