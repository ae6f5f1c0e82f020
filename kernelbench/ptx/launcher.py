"""``kernelbench.ptx.load``: a PTX file whose kernels run on the emulator."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelbench.emulator.findings import EmulatorReport, resolve_report
from kernelbench.emulator.runtime import Runtime, runtime
from kernelbench.emulator.settings import DEFAULT_EMULATION, Emulation
from kernelbench.project.shipped import shipped_blocks
from kernelbench.ptx.arguments import LaunchForm, is_array, launch_form, memory_of
from kernelbench.ptx.errors import PtxError
from kernelbench.ptx.library import Translated, library_of, load_library, translated
from kernelbench.ptx.report import PtxFinding, PtxReport, each_once, found_in
from kernelbench.ptx.sources import PtxSymbols
from kernelbench.ptx.translator import global_variables

#: Schedules of ``check=True``.
DEFAULT_SCHEDULES = 20
_MESSAGE_BYTES = 1024


def load_ptx(
    file: str | Path, *, text: str | None = None, symbols: type[PtxSymbols] = PtxSymbols
) -> PtxModule:
    """A PTX file, translated for the emulator. Nothing is compiled before the first launch.

    Args:
        file: Its path; with ``text`` only what it is called.
        text: The PTX itself, if it is in no file.
        symbols: How places are named.

    Raises:
        PtxError: If the file cannot be read, or is not PTX, with its line.
        UnsupportedPtxError: If it has instructions that are not supported, each with its line.
    """
    path = Path(file)
    if text is None:
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise PtxError(f"{path}: cannot be read: {error}") from error
    return PtxModule(translated(path.name, text), path, symbols)


class PtxModule:
    """A translated PTX file.

    Attributes:
        kernels: The names of its kernels.
    """

    def __init__(
        self, source: Translated, path: Path, symbols: type[PtxSymbols] = PtxSymbols
    ) -> None:
        self.kernels = tuple(source.translation.entries)
        self._source = source
        self._symbols = symbols(source.module, source.translation.layouts, path)
        self._libraries: dict[bool, ctypes.CDLL] = {}

    def launch(
        self,
        kernel: str,
        grid: int | Sequence[int],
        block: int | Sequence[int] | None = None,
        args: Sequence[Any] = (),
        *,
        shared: int = 0,
        cluster: int | None = None,
        cooperative: bool = False,
        check: bool | int = False,
        seed: int = 0,
        memory: Mapping[str, Any] | None = None,
        emulation: Emulation = DEFAULT_EMULATION,
        limit_s: float = 0.0,
    ) -> PtxReport:
        """Run a kernel.

        Args:
            kernel: Its name.
            grid: CTAs, along x or along each dimension.
            block: Threads of a CTA, likewise; by default the kernel's ``.reqntid``.
            args: One for each parameter: a tensor of the CPU or a numpy array (its address), an
                integer, a float, bytes, or a ctypes structure.
            shared: Bytes of dynamic shared memory.
            cluster: CTAs of a cluster along x; by default the kernel's ``.reqnctapercluster``.
            cooperative: Whether all CTAs are resident at once.
            check: Whether to look for faults, and in how many schedules. Arrays have their first
                values before each, and those that the last one gave them afterwards.
            seed: Of the first schedule.
            memory: Arrays that the kernel reaches by other ways than its arguments, by name.
            limit_s: Seconds after which a schedule is ended, as a hang; 0 for never.

        Raises:
            PtxError: For a launch that does not fit the kernel.
            EnvironmentProblem: If there is no compiler.
        """
        form = self._form(kernel, grid, block, args, shared, cluster, cooperative)
        running = runtime(shipped_blocks())
        one = self._one_launch(kernel, form, args, memory or {}, bool(check))
        run = _Schedules(running, one)
        count = DEFAULT_SCHEDULES if check is True else max(int(check), 1)
        for at in range(count):
            running.configure(emulation, check=bool(check), seed=seed + at, limit_s=limit_s)
            run.once(seed + at, self._symbols, again=at > 0)
            if run.last.waits:
                break  # a hang ends like this in most schedules, and takes long
        return run.report(kernel)

    def launch_once(
        self,
        running: Runtime,
        kernel: str,
        grid: int | Sequence[int],
        block: int | Sequence[int] | None = None,
        args: Sequence[Any] = (),
        *,
        shared: int = 0,
        cluster: int | None = None,
        cooperative: bool = False,
        check: bool = False,
        memory: Mapping[str, Any] | None = None,
    ) -> str:
        """Run a kernel once, with the options that the runtime has; it keeps what is found.

        Args:
            running: The runtime that is loaded. The others are those of :meth:`launch`.
            check: Whether the runtime checks.

        Returns:
            Why the launch ended early, in one line; empty if it did not.

        Raises:
            PtxError: For a launch that does not fit the kernel.
            EnvironmentProblem: If there is no compiler.
        """
        form = self._form(kernel, grid, block, args, shared, cluster, cooperative)
        return self._one_launch(kernel, form, args, memory or {}, check).made(running)

    def library(self, check: bool) -> ctypes.CDLL:
        """The module's library, built and loaded when first asked for.

        Args:
            check: Whether for the checker.
        """
        if check not in self._libraries:
            self._libraries[check] = load_library(self.library_path(check))
        return self._libraries[check]

    def library_path(self, check: bool) -> Path:
        """Where the library is; it is built if it is not in the cache."""
        return library_of(self._source, shipped_blocks(), check=check)

    def parameter_sizes(self, kernel: str) -> tuple[int, ...]:
        """Bytes of each parameter of a kernel.

        Raises:
            PtxError: If there is no such kernel.
        """
        if kernel not in self.kernels:
            raise PtxError(f"{self._source.module.name} has no kernel {kernel!r}")
        return tuple(each.size for each in self._source.module.functions[kernel].parameters)

    @property
    def entries(self) -> Mapping[str, str]:
        """The library's C function for each kernel."""
        return self._source.translation.entries

    @property
    def symbols(self) -> PtxSymbols:
        """What names the places of its kernels."""
        return self._symbols

    def _form(
        self, kernel: str, grid: int | Sequence[int], block: int | Sequence[int] | None,
        args: Sequence[Any], shared: int, cluster: int | None, cooperative: bool,
    ) -> LaunchForm:  # fmt: skip
        if kernel not in self.kernels:
            known = ", ".join(self.kernels) or "none"
            raise PtxError(
                f"{self._source.module.name} has no kernel {kernel!r}", f"it has {known}"
            )
        function = self._source.module.functions[kernel]
        layout = self._source.translation.layouts[kernel]
        return launch_form(function, layout, grid, block, args, shared, cluster, cooperative)

    def _one_launch(
        self, kernel: str, form: LaunchForm, args: Sequence[Any], memory: Mapping[str, Any],
        check: bool,
    ) -> _OneLaunch:  # fmt: skip
        arrays = {f"argument {at}": each for at, each in enumerate(args) if is_array(each)}
        library = self.library(check)
        return _OneLaunch(
            library, self._source.translation.entries[kernel], form, {**arrays, **memory},
            self._variables(library),
        )  # fmt: skip

    def _variables(self, library: ctypes.CDLL) -> list[tuple[int, int, str]]:
        """Address, size and name of what the module has in global memory."""
        found = []
        for at, symbol in enumerate(global_variables(self._source.module)):
            address = getattr(library, f"kb_ptx_variable_{at}")
            address.restype = ctypes.c_void_p
            found.append((address(), symbol.size, symbol.name))
        return found


@dataclass(frozen=True)
class _OneLaunch:
    """A launch in form, with all memory that it may touch.

    Attributes:
        variables: Address, size and name of what the module has in global memory.
    """

    library: ctypes.CDLL
    entry: str
    form: LaunchForm
    arrays: Mapping[str, Any]
    variables: Sequence[tuple[int, int, str]]

    def made(self, running: Runtime) -> str:
        """Make it; why it ended early, or nothing."""
        for name, array in self.arrays.items():
            address, size = memory_of(array)
            running.register(address, size, name, writable=True)
        for address, size, name in self.variables:
            running.register(address, size, name, writable=True)
        try:
            return self._call()
        finally:
            if not running.queueing:
                running.unregister_all()

    def _call(self) -> str:
        form, message = self.form, ctypes.create_string_buffer(_MESSAGE_BYTES)
        failed = self.library.kb_ptx_launch(
            getattr(self.library, self.entry),
            (ctypes.c_uint32 * 3)(*form.grid),
            (ctypes.c_uint32 * 3)(*form.block),
            ctypes.c_uint32(form.cluster),
            ctypes.c_uint32(form.shared_bytes),
            ctypes.c_int(form.cooperative),
            form.parameters,
            ctypes.c_size_t(len(form.parameters)),
            message,
            ctypes.c_size_t(_MESSAGE_BYTES),
        )
        return " ".join(message.value.decode(errors="replace").split()) if failed else ""


class _Schedules:
    """Launches of one form, one after another."""

    def __init__(self, running: Runtime, launch: _OneLaunch) -> None:
        self.last = EmulatorReport()
        self._running = running
        self._launch = launch
        self._first = {name: _bytes_in(each) for name, each in launch.arrays.items()}
        self._found: list[PtxFinding] = []
        self._made, self._seconds, self._error = 0, 0.0, ""
        self._assumptions: dict[str, None] = {}

    def once(self, seed: int, symbols: PtxSymbols, *, again: bool) -> None:
        """One launch; ``again``: from the arrays' first values."""
        for name, array in self._launch.arrays.items() if again else ():
            address, size = memory_of(array)
            ctypes.memmove(address, self._first[name], size)
        self._error = self._launch.made(self._running) or self._error
        raw = self._running.report()
        self.last = resolve_report(raw, symbols)
        self._found += found_in(raw, symbols, seed)
        self._made += 1
        self._seconds += self.last.seconds
        self._assumptions |= dict.fromkeys(self.last.assumptions)

    def report(self, kernel: str) -> PtxReport:
        """All of them."""
        found = each_once(self._found)
        return PtxReport(
            kernel, found, self.last.waits, self._made, self._seconds, self._error,
            tuple(self._assumptions),
        )  # fmt: skip


def _bytes_in(array: Any) -> bytes:
    return ctypes.string_at(*memory_of(array))
