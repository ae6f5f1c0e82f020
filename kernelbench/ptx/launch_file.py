"""``k.toml`` beside ``k.ptx``: the arrays and launches that a check of the file makes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelbench.base.errors import UsageError
from kernelbench.base.toml_file import TomlTable
from kernelbench.emulator.settings import Emulation
from kernelbench.ptx.errors import PtxError
from kernelbench.ptx.launcher import load_ptx
from kernelbench.ptx.report import Launched

if TYPE_CHECKING:
    import torch

_ARRAY = re.compile(r"(?P<dtype>\w+)\s*\[(?P<extents>[\d\s,]+)\](?:\s+(?P<fill>\w+))?")
_FILLS = ("zeros", "random", "count")
_ARRAY_FORM = f"'dtype[extents]', as 'float32[4, 256] random', with {', '.join(_FILLS)} or nothing"


@dataclass(frozen=True)
class _Array:
    dtype: str
    extents: tuple[int, ...]
    fill: str


@dataclass(frozen=True)
class PlannedLaunch:
    """One ``[[launch]]``.

    Attributes:
        args: Numbers, and names of arrays.
    """

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...] | None
    shared: int
    cluster: tuple[int, ...] | None
    cooperative: bool
    args: tuple[int | float | str, ...]

    def words(self) -> str:
        """Its extents."""
        block = f", block {_triple(self.block)}" if self.block else ""
        shared = f", {self.shared} bytes shared" if self.shared else ""
        cluster = f", clusters of {_triple(self.cluster)}" if self.cluster else ""
        return f"grid {_triple(self.grid)}{block}{shared}{cluster}"


def _triple(extents: Sequence[int]) -> str:
    return "×".join(map(str, extents))


@dataclass(frozen=True)
class LaunchFile:
    """What ``k.toml`` says."""

    arrays: dict[str, _Array]
    launches: tuple[PlannedLaunch, ...]


def launches_beside(ptx: Path, hint: str) -> Path:
    """The TOML file beside a PTX file that says how to launch it.

    Raises:
        UsageError: If there is none, with the hint.
    """
    file = ptx.with_suffix(".toml")
    if not file.is_file():
        raise UsageError(f"{ptx}: no {file.name} beside it says how to launch it", hint)
    return file


def read_launches(ptx: Path) -> LaunchFile:
    """The launches of a PTX file, from the TOML file beside it.

    Raises:
        UsageError: If that is absent or malformed, with file and field.
    """
    file = launches_beside(ptx, "write one with [arrays] and [[launch]]: see docs/ptx.md")
    table = TomlTable.read(file)
    written = table.settings("arrays")
    arrays = {name: _array(file, name, text) for name, text in written.items()}
    launches = tuple(_launch(each, arrays) for each in table.tables("launch"))
    table.done()
    if not launches:
        raise UsageError(f"{file}: no [[launch]]", "write one with kernel, grid, block and args")
    return LaunchFile(arrays, launches)


def _array(file: Path, name: str, text: Any) -> _Array:
    import torch

    match = _ARRAY.fullmatch(text.strip()) if isinstance(text, str) else None
    extents = tuple(int(each) for each in re.findall(r"\d+", match["extents"])) if match else ()
    fill = (match["fill"] if match else None) or _FILLS[0]
    if match is None or not extents or fill not in _FILLS:
        raise UsageError(f"{file}: field 'arrays.{name}': expected {_ARRAY_FORM}, found {text!r}")
    if not isinstance(getattr(torch, match["dtype"], None), torch.dtype):
        raise UsageError(f"{file}: field 'arrays.{name}': {match['dtype']} is no dtype of torch")
    return _Array(match["dtype"], extents, fill)


def _launch(table: TomlTable, arrays: dict[str, _Array]) -> PlannedLaunch:
    kernel = table.string("kernel")
    grid = _extents(table, "grid")
    if grid is None:
        raise table.fail("grid", "missing, expected a number or up to three of them")
    args = table.take("args", "a list of numbers and names of arrays") or []
    for at, each in enumerate(args):
        known = each in arrays if isinstance(each, str) else isinstance(each, (int, float))
        if not known:
            raise table.fail(f"args[{at}]", f"expected a number or an array, found {each!r}")
    found = PlannedLaunch(
        kernel, grid, _extents(table, "block"),
        _number(table, "shared", 0), _extents(table, "cluster"),
        bool(table.take("cooperative", "true or false")), tuple(args),
    )  # fmt: skip
    table.done()
    return found


def _extents(table: TomlTable, name: str) -> tuple[int, ...] | None:
    value = table.take(name, "a number or up to three of them")
    if value is None:
        return None
    values = value if isinstance(value, list) else [value]
    if not 1 <= len(values) <= 3 or any(type(each) is not int or each < 1 for each in values):
        raise table.fail(name, f"expected one to three positive numbers, found {value!r}")
    return tuple(values)


def _number(table: TomlTable, name: str, default: int) -> int:
    value = table.take(name, "a number")
    if value is None:
        return default
    if type(value) is not int or value < 0:
        raise table.fail(name, f"expected a number, found {value!r}")
    return value


def made(array: _Array, seed: int) -> torch.Tensor:
    """An array with its first values; random ones are whole numbers from -4 to 4."""
    import torch

    dtype = getattr(torch, array.dtype)
    if array.fill == "count":
        values = torch.arange(torch.Size(array.extents).numel()).reshape(array.extents)
    elif array.fill == "random":
        low = 0 if dtype in (torch.bool, torch.uint8, torch.uint16, torch.uint32) else -4
        generator = torch.Generator().manual_seed(seed)
        values = torch.randint(low, 5, array.extents, generator=generator)
    else:
        values = torch.zeros(array.extents)
    return values.to(dtype)


def run_launches(
    ptx: Path, planned: LaunchFile, *, check: int, seed: int, sms: int, limit_s: float
) -> list[Launched]:
    """Make the launches, one after another, on arrays that they share.

    Args:
        check: Schedules of each.

    Raises:
        PtxError: For a kernel or a launch that does not fit the file, with the launch's number.
        UnsupportedPtxError: For instructions that are not supported.
    """
    module = load_ptx(ptx)
    arrays = {name: made(each, seed + at) for at, (name, each) in enumerate(planned.arrays.items())}
    found = []
    for at, each in enumerate(planned.launches):
        args = [arrays[arg].data_ptr() if isinstance(arg, str) else arg for arg in each.args]
        try:
            report = module.launch(
                each.kernel, each.grid, each.block, args, shared=each.shared,
                cluster=each.cluster, cooperative=each.cooperative, check=check, seed=seed,
                memory=arrays, emulation=Emulation(sms=sms), limit_s=limit_s,
            )  # fmt: skip
        except PtxError as error:
            where = f"{ptx.with_suffix('.toml')}: launch[{at}]"
            raise PtxError(f"{where}: {error.message}", error.hint) from error
        found.append(Launched(each.words(), seed, report))
        if not report.clean:
            break
        seed += report.schedules
    return found
