"""A script on the emulator: Triton's kernels and those of torch extensions that it builds."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import json
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from typing import Any

from kernelbench.base.errors import UsageError
from kernelbench.emulator.settings import require_arch
from kernelbench.ptx.arguments import memory_of
from kernelbench.ptx.hosts.cuda_build import cuda_runtime_library
from kernelbench.ptx.hosts.cuda_host import CudaHost, cuda_host
from kernelbench.ptx.hosts.cuda_launch import CudaLaunch, cuda_status
from kernelbench.ptx.hosts.cuda_on_cpu import LiveTensors, cuda_on_cpu
from kernelbench.ptx.hosts.cute_dsl import before_import, cute_dsl_driven_by, cute_dsl_is_installed
from kernelbench.ptx.hosts.inline_extension import Extension, file_extension, inline_extension
from kernelbench.ptx.hosts.triton_driver import triton_driven_by
from kernelbench.ptx.hosts.triton_session import TritonSession

_WORTH_SAYING_S = 2.0


class _Built(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and loads modules of some names, in place of what is built of them."""

    def __init__(self, load: Callable[[str], Any], names: Collection[str]) -> None:
        self._load, self._names = load, names

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """Called for each module that is imported for the first time."""
        return spec_from_loader(fullname, self) if fullname in self._names else None

    def create_module(self, spec: ModuleSpec) -> Any:
        """Built now; nothing is left to be executed."""
        return self._load(spec.name)

    def exec_module(self, module: Any) -> None:
        """As :meth:`create_module` says."""


class ScriptSession(TritonSession):
    """What happens while :func:`script_emulation` lasts; see :class:`ptx.cuda_launch.CudaRunner`.

    Attributes:
        unnoticed: In the end, which launch of an extension was refused without anybody asking for
            errors; empty if none was.
    """

    def __init__(
        self, arch: int, check: int, seed: int, sms: int, limit_s: float, live: LiveTensors,
        stack: contextlib.ExitStack,
    ) -> None:  # fmt: skip
        super().__init__(arch, check, seed, sms, limit_s, live)
        self.check = check > 0
        self.unnoticed = ""
        self._stack = stack
        self._host: CudaHost | None = None
        self._built: dict[Path, Any] = {}

    def load_inline(self, *args: Any, **options: Any) -> Any:
        """Stands in for torch's function of this name."""
        return self._loaded(inline_extension(_calling_script(), *args, **options))

    def load(self, *args: Any, **options: Any) -> Any:
        """Stands in for torch's function of this name."""
        return self._loaded(file_extension(_calling_script(), *args, **options))

    def expect_streams(self, sources: Iterable[Path]) -> None:
        """If a source of the script opens streams, all is put into order from its beginning."""
        self._live.order.opens_streams = any(b"Stream(" in each.read_bytes() for each in sources)

    def import_built(self, extensions: Sequence[str]) -> None:
        """Have imports of extensions that a ``setup.py`` builds be built for the emulator.

        Args:
            extensions: What ``load`` is to be called with, as JSON.
        """
        known = {each.pop("module"): each for each in map(json.loads, extensions)}
        finder = _Built(lambda name: self._loaded(file_extension(None, **known[name])), known)
        sys.meta_path.insert(0, finder)
        self._stack.callback(sys.meta_path.remove, finder)

    def _loaded(self, extension: Extension) -> Any:
        words = f"compiling {extension.name}, with torch's headers\n"
        told = threading.Timer(_WORTH_SAYING_S, sys.stderr.write, [words])
        told.start()
        try:
            library = extension.library(self.arch)
        finally:
            told.cancel()
        if library not in self._built:
            host = self.driven(extension.script or Path(extension.name))
            self._built[library] = extension.imported(library)
            host.raise_first()
        return self._built[library]

    def driven(self, name: Path) -> CudaHost:
        """The CUDA runtime that stands in, with this session running what is launched there.

        Args:
            name: What its kernels are called by, a file's path.
        """
        if self._host is None:
            self._host = cuda_host()
            self._host.fill(self._live.order.new_bytes)
            self._stack.enter_context(self._driving(self._host, name))
        return self._host

    @contextlib.contextmanager
    def _driving(self, host: CudaHost, name: Path) -> Iterator[None]:
        """From the first extension to the script's end."""
        order = self._live.order
        with (
            host.driven_by(self, name),
            host.current_stream(order.current.handle, at_once=True),
            host.tensors_on_gpu(),
        ):
            order.switched = host.switch_stream
            yield
            order.switched = None
            host.synchronize_all()
            self.unnoticed = host.unnoticed()

    def start_cute_dsl(self) -> None:
        """Before CuTe DSL is imported: what it compiles and launches from now on is run here."""
        host = self.driven(Path("cute-dsl.py"))
        library = cuda_runtime_library()
        self._stack.enter_context(cute_dsl_driven_by(host, self.arch, library))

    def run_cuda(self, launch: CudaLaunch, memory: Mapping[str, Any]) -> int:
        """A launch: of a form not seen before in all schedules, else in one."""
        order = self._live.order
        if order.records is not None:
            raise UsageError(
                "kernels of extensions and CuTe DSL in a graph of torch's are not emulated",
                "check the calls without a graph",
            )
        with (
            order.on(order.default if launch.in_default else order.current),
            order.operation("launch", launch.kernel, programmatic=launch.programmatic),
        ):
            tensors = self._live.storages({}).items()
            named = {launch.named(name, *memory_of(each)): each for name, each in tensors}
            report = self._launches.make_cuda(launch, {**named, **memory})
        if not self.check:
            report.require_clean()
        return cuda_status(report)


def _calling_script() -> Path | None:
    """The file from which an extension is asked for."""
    file = Path(sys._getframe(2).f_code.co_filename)
    return file.resolve() if file.is_file() else None


@contextlib.contextmanager
def script_emulation(
    arch: int, *, check: int, seed: int, sms: int, limit_s: float, new_bytes: int | None = None
) -> Iterator[ScriptSession]:
    """As :func:`~kernelbench.ptx.hosts.triton_session.triton_emulation`, and torch's
    ``load_inline`` and ``load`` build for the emulator. What CuTe DSL compiles, if it is imported
    meanwhile, is run there too. Neither it nor Triton need be installed.

    Args:
        new_bytes: What new memory holds; None for NaN.

    Raises:
        UsageError: For an arch that is not known; behind the body, for what an extension has
            asked of the CUDA runtime that is not there.
    """
    require_arch(arch)
    with contextlib.ExitStack() as stack:
        live = stack.enter_context(cuda_on_cpu(arch, sms))
        live.order.new_bytes = live.order.new_bytes if new_bytes is None else new_bytes
        session = ScriptSession(arch, check, seed, sms, limit_s, live, stack)
        if importlib.util.find_spec("triton") is not None:
            stack.enter_context(triton_driven_by(session))
        stack.enter_context(_extensions_built_by(session))
        if cute_dsl_is_installed():
            stack.enter_context(before_import("cutlass", session.start_cute_dsl))
        if check:
            stack.enter_context(live.order.checked())
        yield session


@contextlib.contextmanager
def _extensions_built_by(session: ScriptSession) -> Iterator[None]:
    try:
        from torch.utils import cpp_extension
    except ImportError:  # without setuptools: a script that asks for it says so
        yield
        return
    stand_ins: dict[str, Callable[..., Any]] = {
        "load_inline": session.load_inline, "load": session.load,
    }  # fmt: skip
    before = {name: getattr(cpp_extension, name) for name in stand_ins}
    try:
        for name, function in stand_ins.items():
            setattr(cpp_extension, name, function)
        yield
    finally:
        for name, function in before.items():
            setattr(cpp_extension, name, function)
