"""The CUDA runtime that stands in, as loaded into this process: host code of CUDA calls it.

A library that nvcc has built registers its kernels when it is loaded; their PTX is translated
then. Launches are handed to a :class:`~kernelbench.ptx.hosts.cuda_launch.CudaRunner`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelbench.base.demangle import source_name
from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.emulator.runtime import runtime
from kernelbench.machine.arch import ARCHES
from kernelbench.project.shipped import shipped_blocks
from kernelbench.ptx.arguments import memory_at
from kernelbench.ptx.errors import PtxError
from kernelbench.ptx.hosts.cuda_build import (
    LACKING_HINT,
    cuda_runtime_library,
    torch_allocator_library,
)
from kernelbench.ptx.hosts.cuda_launch import FAILED, CudaLaunch, CudaRunner, WorkOrder
from kernelbench.ptx.hosts.fatbin import best_for, ptx_at, ptx_kept_of
from kernelbench.ptx.hosts.library_calls import ptx_of_text, transform
from kernelbench.ptx.hosts.linking import linked_ptx
from kernelbench.ptx.launcher import PtxModule, load_ptx
from kernelbench.ptx.residency import Ctas
from kernelbench.ptx.script_symbols import ScriptSymbols, host_place

_NON_BLOCKING = 1  # cudaStreamNonBlocking
_COOPERATIVE, _PROGRAMMATIC, _IN_DEFAULT = 1, 2, 4  # of a launch
_DEPENDENT, _NO_KERNEL = 2, 3  # beside a launch
_Triple = ctypes.POINTER(ctypes.c_uint)
_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.c_char_p, _Triple, _Triple, _Triple, ctypes.c_uint64,
    ctypes.c_int, ctypes.POINTER(ctypes.c_void_p),
)  # fmt: skip
_MISSING = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_LOAD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)
_IMAGE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
_RESIDENT = ctypes.CFUNCTYPE(
    ctypes.c_uint, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint64, ctypes.c_uint
)
_COMPILE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)
_NUMBERS = ctypes.POINTER(ctypes.c_double)
_TRANSFORM = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_int),
    _NUMBERS, _NUMBERS,
)  # fmt: skip
_AGAIN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
_ALL = 2**32 - 1
_SIZED = ("cudaMemcpy at", "cudaMemcpyAsync at", "cudaMemset at", "cudaMemsetAsync at")


@functools.cache
def cuda_host() -> CudaHost:
    """The one of this process.

    Raises:
        EnvironmentProblem: Without nvcc or a host compiler.
    """
    return CudaHost(cuda_runtime_library())


@contextlib.contextmanager
def linked_first() -> Iterator[None]:
    """While it lasts, extensions are loaded so that what they are linked with comes first.

    Their CUDA functions are those of the runtime that stands in, also where the process has loaded
    others of these names for everybody.
    """
    before = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_DEEPBIND)
    try:
        yield
    finally:
        sys.setdlopenflags(before)


class CudaHost:
    """The runtime's side of Python; see :func:`cuda_host`.

    Attributes:
        library: The runtime itself, with the functions of CUDA.
        kept_ptx: Where a compiler has left the PTX of images that have none; None if none does.
        of_other_gpus: A folder for libraries of modules, of which each GPU has the variables.
    """

    kept_ptx: Path | None = None
    of_other_gpus: Path | None = None

    def __init__(self, path: Path) -> None:
        runtime(shipped_blocks())  # translated kernels find what they call in it
        self.library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        for name in (
            "kb_cudart_unnoticed",
            "kb_cudart_failed",
            "kb_cudart_dropped",
            "cudaGetErrorName",
        ):
            getattr(self.library, name).restype = ctypes.c_char_p
        self.library.kb_cudart_heap.restype = ctypes.c_uint64
        self.library.kb_cudart_memory.restype = ctypes.c_uint64
        self.library.kb_cudart_site.restype = ctypes.c_char_p
        self._runner: CudaRunner | None = None
        self._name = Path()
        self._apart: Path | None = None
        self._error: Exception | None = None
        self._modules: list[PtxModule] = []
        self._has_heap = False
        # Kept, since the library has their addresses only.
        self._callbacks = (
            _LAUNCH(self._launched), _MISSING(self._missing),
            _MISSING(self._machine_code_only), _LOAD(self._loaded),
            _IMAGE(self._image_loaded), _RESIDENT(self._resident), _COMPILE(self._compiled),
            _TRANSFORM(self._transformed), _AGAIN(self._loaded_again),
        )  # fmt: skip
        self.library.kb_cudart_start(*self._callbacks)

    @contextlib.contextmanager
    def driven_by(
        self, runner: CudaRunner, name: Path, *, apart: Path | None = None
    ) -> Iterator[None]:
        """While it lasts, ``runner`` runs what is launched.

        Args:
            name: What PTX that is loaded meanwhile is called by, a file's path.
            apart: A folder for copies of its libraries, with variables of their own; None if those
                of the same PTX are shared.

        Raises:
            Exception: What the runner or the loading of PTX has raised, behind the body.
        """
        before = self._runner, self._name, self._apart, self._error
        self._runner, self._name, self._apart, self._error = runner, name, apart, None
        self.library.kb_cudart_device(
            runner.sms, runner.arch, ARCHES[runner.arch].cta_shared_bytes,
            getattr(runner, "gpus", 1), ctypes.c_double(getattr(runner, "limit_s", 0.0)),
        )  # fmt: skip
        try:
            yield
        except Exception as error:
            self.raise_first(error)
            raise
        else:
            self.raise_first()
        finally:
            self._runner, self._name, self._apart, self._error = before

    def raise_first(self, later: Exception | None = None) -> None:
        """Raise what went wrong where nothing could be raised, and may have led to ``later``."""
        if self._error is not None:
            raise self._error from later

    def load(self, path: Path) -> ctypes.CDLL:
        """Load a library that nvcc has built; to be called while :meth:`driven_by` lasts.

        Raises:
            EnvironmentProblem: If it cannot be loaded.
        """
        try:
            with linked_first():
                return ctypes.CDLL(str(path), mode=sys.getdlopenflags())
        except OSError as error:
            text = " ".join(str(error).split())
            raise EnvironmentProblem(f"{path.name} cannot be loaded: {text}") from error

    def run_main(self, main: Any, words: list[bytes]) -> int:
        """Call a ``main``, given as a pointer; its status, once all work on streams is done."""
        vector = (ctypes.c_char_p * (len(words) + 1))(*words, None)
        return int(self.library.kb_cudart_run(main, len(words), vector))

    @contextlib.contextmanager
    def ordered(self) -> Iterator[None]:
        """While it lasts, what is asked for is a program's, whose operations are put into order."""
        self.library.kb_cudart_program(1)
        try:
            yield
        finally:
            self.library.kb_cudart_program(0)

    def stream(self) -> int:
        """A new stream, in no order with the default one."""
        made = ctypes.c_void_p()
        self.library.cudaStreamCreateWithFlags(ctypes.byref(made), _NON_BLOCKING)
        return made.value or 0

    def switch_stream(self, stream: int) -> None:
        """Another one is torch's current stream from now on."""
        self.library.kb_cudart_set_current_stream(ctypes.c_void_p(stream))

    @contextlib.contextmanager
    def current_stream(self, stream: int, *, at_once: bool) -> Iterator[None]:
        """While it lasts, a stream is what torch's callers mean by the current one.

        Args:
            at_once: Whether what is given to it is done by then.
        """
        self.library.kb_cudart_current(ctypes.c_void_p(stream), int(at_once))
        try:
            yield
        finally:
            self.library.kb_cudart_current(None, 0)

    @contextlib.contextmanager
    def tensors_on_gpu(self) -> Iterator[None]:
        """While it lasts, what torch allocates is known here as ``cudaMalloc``'s memory is.

        Raises:
            EnvironmentProblem: Without torch.
        """
        import torch  # noqa: F401  what the library is linked with

        library = ctypes.CDLL(str(torch_allocator_library()))
        library.kb_torch_tensors_on_gpu(1)
        try:
            yield
        finally:
            library.kb_torch_tensors_on_gpu(0)

    def synchronize(self, stream: int) -> str:
        """Wait for a stream; the error's name, or nothing."""
        status = self.library.cudaStreamSynchronize(ctypes.c_void_p(stream))
        return self.library.cudaGetErrorName(status).decode() if status else ""

    def synchronize_all(self) -> None:
        """Do all that is pending on any stream."""
        self.library.cudaDeviceSynchronize()

    def unwaited(self) -> list[str]:
        """The kernels and copies that are pending; they are dropped."""
        names = self.library.kb_cudart_dropped().decode().splitlines()
        return [*dict.fromkeys(map(source_name, names))]

    def failed_calls(self) -> str:
        """Calls of the program that failed, and how: the first two, launches before others."""
        failed = (self.library.kb_cudart_failed(ctypes.c_size_t(at)) for at in itertools.count())
        texts = (self._with_place(each.decode()) for each in itertools.takewhile(bool, failed))
        return "; ".join(itertools.islice(texts, 2))

    def _with_place(self, words: str) -> str:
        """With the place of the site that was kept last."""
        place = host_place(self.allocated_at(0))
        return words if place is None else f"{words} at {place}"

    def allocated_at(self, number: int) -> dict[str, Any] | None:
        """Library and offset of the call that asked for an allocation; None if nobody knows."""
        offset = ctypes.c_uint64()
        module = self.library.kb_cudart_site(ctypes.c_uint64(number), ctypes.byref(offset))
        return module and {"module": module.decode(), "offset": offset.value}

    @property
    def asked_for_gpus(self) -> bool:
        """Whether the program has asked how many GPUs there are."""
        return bool(self.library.kb_cudart_counted(0))

    def at_once(self, count: int) -> None:
        """Have the first operations that the program asks for be done before their calls return."""
        self.library.kb_cudart_at_once(ctypes.c_size_t(count))

    def done_in(self, order: WorkOrder) -> None:
        """Have work that nothing orders be done so."""
        self.library.kb_cudart_order(order.value)

    def asked(self, at: int) -> tuple[int, str]:
        """How many operations the program has asked for, and which call or kernel the ``at``-th
        was, with its place; empty beyond."""
        name = ctypes.c_char_p()
        self.library.kb_cudart_asked.restype = ctypes.c_size_t
        count = self.library.kb_cudart_asked(ctypes.c_size_t(at), ctypes.byref(name))
        if name.value is None:
            return count, ""
        return count, self._with_place(source_name(name.value.decode()))

    def sized_sites(self) -> dict[int, str]:
        """Where the program has asked for copies and fills of so many bytes: the call, by its
        address."""
        asked_from, first = self.library.kb_cudart_asked_from, dict[int, int]()
        asked_from.restype = ctypes.c_void_p
        for at in range(self.asked(0)[0]):
            first.setdefault(asked_from(ctypes.c_size_t(at)) or 0, at)
        found = {site: self.asked(at)[1] for site, at in first.items() if site}
        return {site: words for site, words in found.items() if words.startswith(_SIZED)}

    def scale(self, site: int, by: int) -> None:
        """Have copies and fills that are asked for there have so many times their bytes."""
        self.library.kb_cudart_scale(ctypes.c_void_p(site), ctypes.c_size_t(by))

    def fill(self, byte: int) -> None:
        """Have memory that the program allocates from now on hold that."""
        self.library.kb_cudart_fill(byte)

    @property
    def asked_for_sms(self) -> bool:
        """Whether the program has asked how many SMs a GPU has."""
        return bool(self.library.kb_cudart_counted(1))

    @property
    def left_at(self) -> str:
        """What main has done when it was left because the process was told to end, or nothing."""
        if not self.library.kb_cudart_told_to_end():
            return ""
        count, _ = self.asked(0)
        last = f", last {self.asked(count - 1)[1]}" if count else ""
        return f"{count:,} launches, copies and fills{last}"

    @property
    def has_kernels(self) -> bool:
        """Whether anything that was loaded has a kernel."""
        return any(each.kernels for each in self._modules)

    def unnoticed(self) -> str:
        """Which launch was refused without the program asking for errors, or nothing."""
        words = self.library.kb_cudart_unnoticed().decode()
        return re.sub(r"^[^ ,]+", lambda name: source_name(name[0]), words)

    def _missing(self, what: bytes) -> None:
        self._error = self._error or PtxError(
            f"{self._name}: asks for {what.decode()}, which the CUDA runtime here does not have",
            LACKING_HINT,
        )

    def _machine_code_only(self, kernel: bytes) -> None:
        arch = self._runner.arch if self._runner is not None else 90
        self._error = self._error or UsageError(
            f"{self._name}: of kernel {source_name(kernel.decode())} there is machine code only, "
            "and what is checked is PTX",
            f"build it with -gencode arch=compute_{arch},code=compute_{arch}, or have --build do "
            "so",
        )

    def _loaded(self, text: bytes) -> int:
        """The number of a module that the program loads, or -1."""
        return self._guarded(-1, lambda: self._add(text.decode()))

    def _image_loaded(self, address: int, parts: Any) -> int:
        """The number of the module that an image has, or of what its parts are linked to; or -1."""
        if not parts:
            return self._guarded(-1, lambda: self._add_image(address))
        images = itertools.takewhile(bool, (parts[at] for at in itertools.count()))
        return self._guarded(-1, lambda: self._add_linked([*images]))

    def _loaded_again(self, number: int) -> int:
        """The number of such a module with variables of its own, or -1."""
        return self._guarded(-1, lambda: self._add(self._modules[number].text, self.of_other_gpus))

    def _compiled(self, folder: bytes, words: bytes) -> int:
        """0 if nvcc has compiled what a program has given to NVRTC."""
        assert self._runner is not None
        arch = self._runner.arch
        return self._guarded(1, lambda: ptx_of_text(Path(os.fsdecode(folder)), words, arch))

    def _transformed(
        self, way: int, batch: int, rank: int, extents: Any, given: Any, made: Any
    ) -> int:
        """A Fourier transform of cuFFT's; 0 if it was made."""
        shape = (batch, *extents[:rank])
        return self._guarded(1, lambda: transform(way, shape, given, made))

    def _add_linked(self, images: Sequence[int]) -> int:
        assert self._runner is not None
        # NVIDIA's own parts have no PTX for most GPUs.
        found = [best_for(self._runner.arch, ptx_at(each)) for each in images]
        texts = [each.text for each in found if each is not None]
        return self._add(linked_ptx(texts)) if texts else -1

    def _add_image(self, address: int) -> int:
        assert self._runner is not None
        texts = ptx_at(address)
        found = best_for(self._runner.arch, texts)
        if found is not None:
            return self._add(found.text)
        if texts:
            others = ", ".join(f"sm_{each.arch}" for each in texts)
            raise UsageError(
                f"{self._name}: its PTX is for {others}, and the emulated GPU is "
                f"sm_{self._runner.arch}",
                f"--arch {texts[0].arch}",
            )
        text = None if self.kept_ptx is None else ptx_kept_of(self.kept_ptx, address)
        return -1 if text is None else self._add(text)

    def _add(self, text: str, apart: Path | None = None) -> int:
        assert self._runner is not None
        number, check = len(self._modules), self._runner.check
        module = load_ptx(
            self._name.with_suffix(".ptx"), text=text, symbols=ScriptSymbols,
            apart=apart or self._apart,
        )  # fmt: skip
        if module.takes_from_heap and not self._has_heap:
            self._has_heap = True
            size = ctypes.c_uint64()
            address = self.library.kb_cudart_heap(ctypes.byref(size))
            runtime(shipped_blocks()).give_heap(address, size.value)
        variables = module.variables(check)
        self._modules.append(module)
        for kernel in module.kernels:
            shape = module.shape(kernel)
            count = len(shape.sizes)
            self.library.kb_cudart_kernel(
                number, kernel.encode(), count, (ctypes.c_uint32 * count)(*shape.offsets),
                (ctypes.c_uint32 * count)(*shape.sizes), shape.static_shared, shape.most_threads,
            )  # fmt: skip
        for name, bytes_of in variables.items():
            address = ctypes.c_void_p(bytes_of.ctypes.data)
            size = ctypes.c_uint64(bytes_of.nbytes)
            self.library.kb_cudart_variable(number, name.encode(), address, size)
        return number

    def _launched(
        self, module: int, name: bytes, grid: Any, block: Any, cluster: Any, shared: int,
        how: int, arguments: Any,
    ) -> int:  # fmt: skip
        """A status of CUDA."""
        asked = self._modules[module]
        sizes = asked.shape(name.decode()).sizes
        launch = CudaLaunch(
            asked, name.decode(), tuple(grid[:3]), tuple(block[:3]), tuple(cluster[:3]), shared,
            bool(how & _COOPERATIVE),
            tuple(ctypes.string_at(arguments[at], size) for at, size in enumerate(sizes)),
            bool(how & _PROGRAMMATIC), bool(how & _IN_DEFAULT), self._others, self._neighbours,
        )  # fmt: skip
        return self._guarded(FAILED, lambda: self._run(launch))

    def _others(self, perform: int) -> int:
        """How many pending operations nothing orders behind the one that is done now; the first so
        many are done."""
        return int(self.library.kb_cudart_others(ctypes.c_size_t(perform)))

    def _neighbours(self) -> list[Ctas]:
        """What may be beside the one that is done now."""
        found: list[Ctas] = []
        module, name, form = ctypes.c_int(), ctypes.c_char_p(), (ctypes.c_uint64 * 3)()
        given = ctypes.byref(module), ctypes.byref(name), form
        asked_for = self.library.kb_cudart_neighbour
        while what := asked_for(ctypes.c_size_t(len(found)), *given):
            if what == _NO_KERNEL:
                found.append(Ctas("", 0, None))
                continue
            asked, kernel = self._modules[module.value], (name.value or b"").decode()
            shared = asked.shape(kernel).static_shared + form[2]
            taken = asked.taken(kernel, form[0], form[1], shared)
            waits = asked.waits_for_ahead(kernel)  # else it comes to its end
            found.append(replace(taken, dependent=what == _DEPENDENT, waits=waits))
        return found

    def _resident(self, module: int, name: bytes, threads: int, dynamic: int, cluster: int) -> int:
        """How many CTAs of a kernel the GPU holds at once; an SM, for clusters of 0."""
        asked, kernel = self._modules[module], name.decode()

        def ctas() -> int:
            shared = asked.shape(kernel).static_shared + dynamic
            sms = getattr(self._runner, "gpu_sms", 0)
            room = asked.residency(kernel, threads, shared, cluster or 1, sms)
            if room is None:
                return _ALL if cluster else 1
            return room.ctas if cluster else room.per_sm

        return self._guarded(_ALL, ctas)

    def _run(self, launch: CudaLaunch) -> int:
        if self._runner is None:
            raise UsageError(f"{launch.kernel} is launched where nothing runs kernels")
        return self._runner.run_cuda(launch, self._allocations(launch))

    def _allocations(self, launch: CudaLaunch) -> dict[str, Any]:
        """What is allocated, as bytes by a name that says which argument points there."""
        count = int(self.library.kb_cudart_memory(None, None, None, ctypes.c_uint64(0)))
        addresses, sizes, numbers = ((ctypes.c_uint64 * count)() for _ in range(3))
        self.library.kb_cudart_memory(addresses, sizes, numbers, ctypes.c_uint64(count))
        named = {}
        for at, address, size in zip(numbers, addresses, sizes, strict=True):
            named[launch.named(f"allocation {at}", address, size)] = memory_at(address, size)
        return named

    def _guarded(self, otherwise: int, action: Callable[[], int]) -> int:
        """Nothing may be raised through the program; after the first error nothing is done."""
        if self._error is not None:
            return otherwise
        try:
            return action()
        except Exception as error:
            self._error = error
            return otherwise
