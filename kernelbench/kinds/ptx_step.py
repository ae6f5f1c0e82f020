"""PTX steps: a file of PTX, launched as the TOML file beside it says, or by a host path of ours."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelbench.base.errors import UsageError
from kernelbench.base.toml_file import TomlTable
from kernelbench.emulator.runtime import Runtime
from kernelbench.emulator.symbols import Symbols
from kernelbench.kinds.callables import LoadError, describe_exception
from kernelbench.kinds.cuda_function import data_leaves
from kernelbench.kinds.loaded_step import KernelFault, LoadedStep
from kernelbench.project import overlay
from kernelbench.project.model import Step
from kernelbench.project.problem import Kernel
from kernelbench.ptx.errors import PtxError
from kernelbench.ptx.launch_file import launches_beside
from kernelbench.ptx.launcher import PtxModule, load_ptx
from kernelbench.ptx.module_symbols import ModuleSymbols
from kernelbench.ptx.step_kernels import kernels_replaced

#: A number, or a Python expression of ``data``, ``torch`` and the arrays.
Value = int | float | str


@dataclass(frozen=True)
class StepLaunch:
    """One ``[[launch]]``; see ``docs/own-steps.md``."""

    kernel: str
    grid: tuple[Value, ...]
    block: tuple[Value, ...]
    args: tuple[Value, ...]
    shared: Value
    cluster: tuple[Value, ...]
    cooperative: bool


@dataclass(frozen=True)
class StepLaunches:
    """How a PTX step is launched."""

    file: Path
    arrays: Mapping[str, str]  #: Expressions by name, in order; each sees those before it.
    launches: tuple[StepLaunch, ...]
    returns: str  #: What a call returns.


def read_step_launches(ptx: Path) -> StepLaunches:
    """The launches of a PTX step, from the TOML file beside it; UsageError if malformed."""
    file = launches_beside(
        ptx, "docs: own-steps, PTX steps; or `base` in step.toml names a step with a host path"
    )
    table = TomlTable.read(file)
    arrays = table.settings("arrays")
    for name, text in arrays.items():
        if not isinstance(text, str):
            raise table.fail(f"arrays.{name}", f"expected an expression of data, found {text!r}")
        _expression(table, f"arrays.{name}", text)
    returns = table.string("returns")
    _expression(table, "returns", returns)
    launches = tuple(_launch(each) for each in table.tables("launch"))
    table.done()
    if not launches:
        raise UsageError(f"{file}: no [[launch]]", "write one with kernel, grid, block and args")
    return StepLaunches(file, arrays, launches, returns)


def _launch(table: TomlTable) -> StepLaunch:
    kernel = table.string("kernel")
    grid, block, args = (_values(table, name) for name in ("grid", "block", "args"))
    if not grid:
        raise table.fail("grid", "missing, expected up to three numbers or expressions")
    (shared,), cluster = _values(table, "shared") or (0,), _values(table, "cluster")
    cooperative = bool(table.take("cooperative", "true or false"))
    table.done()
    return StepLaunch(kernel, grid, block, args, shared, cluster, cooperative)


def _values(table: TomlTable, name: str) -> tuple[Value, ...]:
    given = table.take(name, "numbers or expressions")
    values = given if isinstance(given, list) else [] if given is None else [given]
    if name in ("grid", "block") and len(values) > 3:
        raise table.fail(name, f"expected up to three, found {given!r}")
    for each in values:
        if not isinstance(each, (int, float, str)):
            raise table.fail(name, f"expected numbers or expressions, found {each!r}")
        if isinstance(each, str):
            _expression(table, name, each)
    return tuple(values)


def _expression(table: TomlTable, name: str, text: str) -> None:
    try:
        ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise table.fail(name, f"not a Python expression: {text!r}") from error


def ptx_library(step: Step, *, check: bool) -> Path:
    """The library of a PTX step's file, cached or built now; UsageError for PTX it cannot be."""
    return load_ptx(overlay.entry_of(step), whole=True).library_path(check)


class PtxStepKernel:
    """A callable that makes a PTX step's launches on its problem's data.

    Raises:
        UsageError: For a file that cannot be read, is not PTX or is not supported.
    """

    def __init__(self, step: Step, running: Runtime, *, check: bool) -> None:
        entry = overlay.entry_of(step)
        self._plan = read_step_launches(entry)
        self._module = load_ptx(entry, whole=True)
        self._module.require(*(each.kernel for each in self._plan.launches))
        self._running, self._check = running, check
        self.symbols = ModuleSymbols()  #: What names places in it.

    def __call__(self, data: Any) -> Any:
        """Make them in order on arrays of the CPU; KernelFault if an expression or launch fails."""
        import torch

        names: dict[str, Any] = {"data": data, "torch": torch}
        for name, text in self._plan.arrays.items():
            names[name] = self._value(text, names)
        memory = {
            name: each for name, each in names.items() if isinstance(each, torch.Tensor)
        } | _others(data, names)
        for launch in self._plan.launches:
            self._launch(launch, names, memory)
        return self._value(self._plan.returns, names)

    def _launch(
        self, launch: StepLaunch, names: Mapping[str, Any], memory: Mapping[str, Any]
    ) -> None:
        def valued(values: tuple[Value, ...]) -> list[Any]:
            return [self._value(each, names) for each in values]

        args = [getattr(each, "data_ptr", lambda each=each: each)() for each in valued(launch.args)]
        try:
            failed = self._module.launch_once(
                self._running, launch.kernel, valued(launch.grid), valued(launch.block) or None,
                args, shared=self._value(launch.shared, names),
                cluster=valued(launch.cluster) or None,
                cooperative=launch.cooperative, check=self._check, memory=memory,
            )  # fmt: skip
        except PtxError as error:
            raise KernelFault(error.message) from error
        if failed:
            raise KernelFault(failed)

    def _value(self, given: Value, names: Mapping[str, Any]) -> Any:
        if not isinstance(given, str):
            return given
        try:
            # Not a user's input, but code of the step like its PTX.
            return eval(given, dict(names))
        except Exception as error:
            where = f"{self._plan.file.name}: {given}"
            raise KernelFault(f"{where}: {describe_exception(error)}") from error


def _others(data: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    """The data's tensors that have no name of their own: kernels may find their addresses."""
    import torch

    known = {each.data_ptr() for each in names.values() if isinstance(each, torch.Tensor)}
    return {
        f"data {at}": each
        for at, each in enumerate(data_leaves(data))
        if isinstance(each, torch.Tensor) and each.data_ptr() not in known and each.is_contiguous()
    }


class HostedPtx:
    """A compiled step's callable whose kernels are those of a PTX step.

    Args:
        entry: The compiled step's library, kernel: its callable on the problem's data.
        host: What names places in the library.

    Raises:
        LoadError: If the library lacks a kernel of the PTX.
        UsageError: For a file that cannot be read, is not PTX or is not supported.
    """

    def __init__(
        self, step: Step, entry: LoadedStep, kernel: Kernel, host: Symbols, *, check: bool
    ) -> None:
        file = overlay.entry_of(step)
        self._module: PtxModule = load_ptx(file, whole=True)
        self._module.require(*self._module.kernels)  # any may be launched
        self._entry, self._kernel = entry, kernel
        self._library = self._module.library(check)
        self.symbols = ModuleSymbols(host)  #: What names places in both.
        try:
            with self._replaced():
                pass
        except PtxError as error:
            raise LoadError(f"{file.name}: {error.message}") from error

    def __call__(self, data: Any) -> Any:
        """Call the step's host path."""
        with self._replaced():
            return self._kernel(data)

    @contextlib.contextmanager
    def _replaced(self) -> Iterator[None]:
        with kernels_replaced(
            self._entry.library, self._entry.path, self._library, self._module.entries
        ):
            yield
