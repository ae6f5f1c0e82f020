"""``k.toml`` beside ``k.ptx``: the arrays and launches that a check of the file makes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
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
    import numpy as np


FILLS = ("zeros", "random", "count")
_IN_NUMPY = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64", "complex64", "complex128",
)  # fmt: skip
_OTHER_NAMES = {
    "short": "int16", "int": "int32", "long": "int64", "half": "float16", "float": "float32",
    "double": "float64",
}  # fmt: skip

_ARRAY = re.compile(r"(?P<dtype>\w+)\s*\[(?P<extents>[\d\s,]+)\](?:\s+(?P<fill>\w+))?")
_ARRAY_FORM = f"'dtype[extents]', as 'float32[4, 256] random', with {', '.join(FILLS)} or nothing"


@dataclass(frozen=True)
class LaunchArray:
    """An array with its first values."""

    dtype: str  #: One of :data:`DTYPES`.
    extents: tuple[int, ...]
    fill: str  #: One of :data:`FILLS`.

    def made(self, seed: int) -> np.ndarray[Any, Any]:
        """It, with its first values; random ones are whole numbers from -4 to 4."""
        import numpy as np

        name = _OTHER_NAMES.get(self.dtype, self.dtype)
        if self.fill == "count":
            values = np.arange(np.prod(self.extents)).reshape(self.extents)
        elif self.fill == "random":
            low = 0 if name.startswith(("bool", "uint")) else -4
            values = np.random.default_rng(seed).integers(low, 5, self.extents)
        else:
            values = np.zeros(self.extents, np.int64)
        return _BITS_OF[name](values) if name in _BITS_OF else values.astype(name)


def _bfloat16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import numpy as np

    bits = values.astype(np.float32).view(np.uint32)
    even = (bits >> 16) & 1  # a half goes to the even neighbour
    return ((bits + 0x7FFF + even) >> 16).astype(np.uint16)


def _float8(values: np.ndarray[Any, Any], fraction_bits: int, last: int) -> Any:
    """Bytes of the nearest numbers of such a format.

    Args:
        last: The code of the largest, which stands for what is larger, too.
    """
    import numpy as np

    bias = (1 << 6 - fraction_bits) - 1
    code = np.arange(last + 1)
    fraction, exponent = code % (1 << fraction_bits), code >> fraction_bits
    whole = fraction + ((exponent > 0) << fraction_bits)
    known = np.ldexp(whole.astype(np.float64), np.maximum(exponent, 1) - bias - fraction_bits)
    size = np.abs(values.astype(np.float64))
    above = np.clip(np.searchsorted(known, size), 1, last)
    below = above - 1
    to_above, to_below = known[above] - size, size - known[below]
    up = (to_above < to_below) | ((to_above == to_below) & (above % 2 == 0))
    return (np.where(up, above, below) | np.where(values < 0, 0x80, 0)).astype(np.uint8)


#: Of dtypes that numpy lacks: the bits of whole numbers.
_BITS_OF: dict[str, Callable[[Any], Any]] = {
    "bfloat16": _bfloat16,
    "float8_e4m3fn": lambda values: _float8(values, 3, 0x7E),
    "float8_e5m2": lambda values: _float8(values, 2, 0x7C),
}
DTYPES = (*_IN_NUMPY, *_BITS_OF, *_OTHER_NAMES)


@dataclass(frozen=True)
class PlannedLaunch:
    """One ``[[launch]]``."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...] | None
    shared: int
    cluster: tuple[int, ...] | None
    cooperative: bool
    args: tuple[int | float | str, ...]  #: Numbers, and names of arrays.

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

    arrays: dict[str, LaunchArray]
    launches: tuple[PlannedLaunch, ...]


def launches_beside(ptx: Path, hint: str) -> Path:
    """The TOML file beside a PTX file that says how to launch it; UsageError if there is none."""
    file = ptx.with_suffix(".toml")
    if not file.is_file():
        raise UsageError(f"{ptx}: no {file.name} beside it says how to launch it", hint)
    return file


def read_launches(ptx: Path) -> LaunchFile:
    """The launches of a PTX file, from the TOML file beside it; UsageError if malformed."""
    file = launches_beside(ptx, "write one with [arrays] and [[launch]]: see docs/ptx.md")
    table = TomlTable.read(file)
    written = table.settings("arrays")
    arrays = {name: _array(file, name, text) for name, text in written.items()}
    launches = tuple(_launch(each, arrays) for each in table.tables("launch"))
    table.done()
    if not launches:
        raise UsageError(f"{file}: no [[launch]]", "write one with kernel, grid, block and args")
    return LaunchFile(arrays, launches)


def _array(file: Path, name: str, text: Any) -> LaunchArray:
    match = _ARRAY.fullmatch(text.strip()) if isinstance(text, str) else None
    extents = tuple(int(each) for each in re.findall(r"\d+", match["extents"])) if match else ()
    fill = (match["fill"] if match else None) or FILLS[0]
    if match is None or not extents or fill not in FILLS:
        raise UsageError(f"{file}: field 'arrays.{name}': expected {_ARRAY_FORM}, found {text!r}")
    if match["dtype"] not in DTYPES:
        raise UsageError(
            f"{file}: field 'arrays.{name}': {match['dtype']} is no dtype",
            f"those are {', '.join(DTYPES)}",
        )
    return LaunchArray(match["dtype"], extents, fill)


def _launch(table: TomlTable, arrays: dict[str, LaunchArray]) -> PlannedLaunch:
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
    module.require(*(each.kernel for each in planned.launches))
    arrays = {name: each.made(seed + at) for at, (name, each) in enumerate(planned.arrays.items())}
    found = []
    for at, each in enumerate(planned.launches):
        args = [arrays[arg].ctypes.data if isinstance(arg, str) else arg for arg in each.args]
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
