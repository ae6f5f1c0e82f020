"""The file of a campaign: YAML that says which commands to run, on what, and how often.

::

    name: moe-over-m
    campaign:
      - run: [m07, m13]
        shapes: {qwen35: {m: [1..4096 by 2x]}}
        peers: true
      - check: [v01..v07]
        shapes: [u1]
        schedules: 20
        sms: [1, 4]
      - mutants: [kernels/mutants]
        schedules: 20

Every other key of an item is an option of its command. Errors name the file and the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from kernelbench.base.errors import UsageError
from kernelbench.base.yaml_file import yaml_nodes

PieceCommand = Literal["run", "ab", "check"]
COMMANDS: tuple[PieceCommand, ...] = ("run", "ab", "check")
#: An item of steps with planted faults, of which each is given to ``check``.
MUTANTS = "mutants"

#: Seconds after which a piece is ended, if the file does not say.
LIMIT_S = 3600.0

_TOP = ("name", "campaign", "results", "limit", "gpu")
#: Keys of an item that are no options of its command.
_OWN = ("shapes", "repeat", "peers")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}


class OptionFault(ValueError):
    """An option of an item is none of its command, or has a wrong value; ``option`` says which."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option


#: Turns a command and its options, by name, into arguments of the command line.
OptionReader = Callable[[str, Mapping[str, Any]], Sequence[str]]


@dataclass(frozen=True)
class ShapeRange:
    """Shapes that an item names."""

    place: str  #: ``FILE:LINE`` of it.
    #: A shape's name, ``all``, ``every`` or an ad-hoc shape; empty if ``fields`` are all.
    name: str
    #: What each field goes through, in place of the named shape's.
    fields: Mapping[str, list[Sequence[Any]]]


@dataclass(frozen=True)
class CampaignItem:
    """One entry of a campaign."""

    place: str  #: ``FILE:LINE`` of it.
    command: PieceCommand
    steps: tuple[str, ...]  #: As on the command line; two of ``ab``.
    shapes: tuple[ShapeRange, ...]  #: The command's default shapes if empty.
    options: tuple[str, ...]  #: Arguments of the command line, the same for all its pieces.
    sms: tuple[int, ...] = ()  #: Of ``check``: the numbers of SMs, each of which is a piece.
    repeat: int = 1  #: How often each piece is run.
    peers: bool = False  #: Of ``run``: whether the peers of the steps' lineages are run, too.
    #: Of ``check``: whether the steps have planted faults, which are to be found.
    mutants: bool = False


@dataclass(frozen=True)
class Campaign:
    """What a file says."""

    name: str  #: Of the folder that keeps what is done.
    items: tuple[CampaignItem, ...]
    #: Where results go, relative to the file; None for the project's folder.
    results: Path | None = None
    limit_s: float = LIMIT_S  #: Seconds after which a piece is ended.
    #: Whether ``run`` and ``ab`` have to be on a GPU; None if that is for the machine to say.
    gpu: bool | None = None


def read_campaign(path: Path, options: OptionReader) -> Campaign:
    """Read a campaign; UsageError (``FILE:LINE: what was expected``) if it is malformed."""
    with yaml_nodes(path) as (root, loader):
        if root is None:
            raise UsageError(f"{path}:1: the file is empty: expected 'name' and 'campaign'")
        return _Reader(path, loader, options).campaign(root)


#: The entries of a mapping by name: where each stands, and what it is.
_Entries = dict[str, tuple[yaml.Node, yaml.Node]]


@dataclass
class _Reader:
    path: Path
    loader: yaml.SafeLoader
    options: OptionReader

    def campaign(self, root: yaml.Node) -> Campaign:
        top = self._entries(root, "'name' and 'campaign'")
        for name, (key, _) in top.items():
            if name not in _TOP:
                raise self._fault(key, f"unknown {name!r}: expected {', '.join(_TOP)}")
        for name in ("name", "campaign"):
            if name not in top:
                raise self._fault(root, f"missing {name!r}")
        name = self._value(top, "name", str, "a name")
        if not _NAME.fullmatch(name):
            raise self._fault(top["name"][1], f"expected a name for a folder, found {name!r}")
        listed = top["campaign"][1]
        if not isinstance(listed, yaml.SequenceNode) or not listed.value:
            raise self._fault(listed, "expected a list such as '- run: [m07, m13]'")
        results = self._value(top, "results", str, "a folder")
        return Campaign(
            name,
            tuple(self._item(node) for node in listed.value),
            self.path.parent / Path(results).expanduser() if results else None,
            self._limit(top),
            self._value(top, "gpu", bool, "true or false"),
        )

    def _limit(self, top: _Entries) -> float:
        if "limit" not in top:
            return LIMIT_S
        found = self._plain(top["limit"][1])
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", str(found))
        if match is None or not float(match[1]):
            raise self._fault(top["limit"][1], f"expected a time such as 20m, found {found!r}")
        return float(match[1]) * _UNITS[match[2]]

    def _item(self, node: yaml.Node) -> CampaignItem:
        entries = self._entries(node, "an item such as 'run: [m07]' with its options")
        named = [name for name in (*COMMANDS, MUTANTS) if name in entries]
        if mutants := named == [MUTANTS]:
            entries["check"] = entries.pop(MUTANTS)
            named = ["check"]
        if named == ["ab", "check"]:
            # `check` is an option of ab, too.
            named.pop()
        if len(named) != 1 or named[0] not in COMMANDS:
            kinds = ", ".join((*COMMANDS, MUTANTS))
            raise self._fault(node, f"expected one of {kinds} in an item")
        command = named[0]
        steps = self._steps(entries[command][1])
        if command == "ab" and len(steps) != 2:
            raise self._fault(entries[command][0], f"ab takes [BASE, CAND], found {len(steps)}")
        repeat = self._value(entries, "repeat", int, "a number", 1)
        if repeat < 1:
            raise self._fault(entries["repeat"][1], f"expected 1 or more, found {repeat}")
        if "peers" in entries and command != "run":
            raise self._fault(entries["peers"][0], "peers are for run")
        return CampaignItem(
            place=self._place(node),
            command=command,
            steps=steps,
            shapes=self._shapes(entries["shapes"][1]) if "shapes" in entries else (),
            options=self._arguments(command, entries),
            sms=self._sms(entries) if command == "check" else (),
            repeat=repeat,
            peers=self._value(entries, "peers", bool, "true or false", False),
            mutants=mutants,
        )

    def _steps(self, node: yaml.Node) -> tuple[str, ...]:
        found = self._plain(node)
        found = found if isinstance(found, list) else [found]
        if not found or not all(isinstance(each, str) and each for each in found):
            raise self._fault(node, "expected names of steps, such as [v01..v07, v22]")
        return tuple(found)

    def _sms(self, entries: _Entries) -> tuple[int, ...]:
        if "sms" not in entries:
            return ()
        node = entries["sms"][1]
        try:
            found = [value for part in values_of(self._plain(node)) for value in part]
        except ValueError as error:
            raise self._fault(node, f"sms: {error}") from None
        if not all(type(value) is int and value > 0 for value in found):
            raise self._fault(node, "sms: expected numbers of SMs, such as [1, 4, 148]")
        return tuple(dict.fromkeys(found))

    def _arguments(self, command: PieceCommand, entries: _Entries) -> tuple[str, ...]:
        apart = (command, *_OWN, *(("sms",) if command == "check" else ()))
        given = {
            name: self._plain(node) for name, (_, node) in entries.items() if name not in apart
        }
        try:
            return tuple(self.options(command, given))
        except OptionFault as fault:
            where = entries[fault.option][0] if fault.option in entries else entries[command][0]
            raise self._fault(where, str(fault)) from None

    def _shapes(self, node: yaml.Node) -> tuple[ShapeRange, ...]:
        if isinstance(node, yaml.SequenceNode):
            return tuple(found for each in node.value for found in self._shapes(each))
        if isinstance(node, yaml.MappingNode):
            entries = self._entries(node, "shapes")
            if all(isinstance(value, yaml.MappingNode) for _, value in entries.values()):
                return tuple(
                    ShapeRange(self._place(key), name, self._fields(value))
                    for name, (key, value) in entries.items()
                )
            return (ShapeRange(self._place(node), "", self._fields(node)),)
        name = self._plain(node)
        if not isinstance(name, str):
            raise self._fault(node, f"expected a shape's name or fields, found {name!r}")
        return (ShapeRange(self._place(node), name, {}),)

    def _fields(self, node: yaml.Node) -> dict[str, list[Sequence[Any]]]:
        found = {}
        for name, (key, value) in self._entries(node, "fields such as m: [1..9]").items():
            try:
                found[name] = values_of(self._plain(value))
            except ValueError as error:
                raise self._fault(key, f"{name}: {error}") from None
        return found

    def _entries(self, node: yaml.Node, expected: str) -> _Entries:
        if not isinstance(node, yaml.MappingNode):
            raise self._fault(node, f"expected {expected}")
        found: _Entries = {}
        for key, value in node.value:
            name = self._plain(key)
            if not isinstance(name, str):
                raise self._fault(key, f"expected a name, found {name!r}")
            if name in found:
                raise self._fault(key, f"{name!r} is there twice")
            found[name] = (key, value)
        return found

    def _value(
        self, entries: _Entries, name: str, kind: type, expected: str, otherwise: Any = None
    ) -> Any:
        if name not in entries:
            return otherwise
        found = self._plain(entries[name][1])
        if type(found) is not kind:
            raise self._fault(entries[name][1], f"{name}: expected {expected}, found {found!r}")
        return found

    def _plain(self, node: yaml.Node) -> Any:
        return self.loader.construct_object(node, deep=True)

    def _place(self, node: yaml.Node) -> str:
        return f"{self.path}:{node.start_mark.line + 1}"

    def _fault(self, node: yaml.Node, message: str) -> UsageError:
        return UsageError(f"{self._place(node)}: {message}")


_RANGE = re.compile(r"\s*(\d+)\s*\.\.\s*(\d+)(?:\s+by\s+(\d+)(x?))?\s*")


def values_of(entry: Any) -> list[Sequence[Any]]:
    """What a field of a shape goes through, in order, as parts that are not written out.

    Args:
        entry: A value, a range in words, or a list of both. A list in that list is one value, such
            as the rows of each group.

    Raises:
        ValueError: If there is no value, or a range is malformed or empty.
    """
    entries = entry if isinstance(entry, list) else [entry]
    if not entries:
        raise ValueError("an empty list")
    return [_part(each) for each in entries]


def _part(entry: Any) -> Sequence[Any]:
    if isinstance(entry, dict) or entry is None:
        raise ValueError(f"{entry!r} is no value; expected a number, a word or 1..4096 by 2x")
    if not (isinstance(entry, str) and ".." in entry):
        return (entry,)
    match = _RANGE.fullmatch(entry)
    if match is None:
        raise ValueError(f"{entry!r} is no range; expected 1..9, 1..9 by 2 or 1..4096 by 2x")
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if first > last:
        raise ValueError(f"{entry!r} is empty: it goes from the smaller number to the larger")
    if not match[4]:
        if step < 1:
            raise ValueError(f"{entry!r} does not go on: expected a step of 1 or more")
        return range(first, last + 1, step)
    if step < 2 or first < 1:
        raise ValueError(f"{entry!r} does not grow: expected a factor from 2 and a start from 1")
    found = [first]
    while found[-1] * step <= last:
        found.append(found[-1] * step)
    return found
