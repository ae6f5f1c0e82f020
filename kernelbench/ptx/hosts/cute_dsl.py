"""CuTe DSL on the emulator: NVIDIA's Python package compiles as for a GPU, and keeps its PTX.

Its host code, compiled too, calls CUDA through a library that can be chosen
(``CUTE_DSL_LIBS``): the CUDA runtime that stands in takes its place. What Python asks of the driver
and of the runtime (``cuda.bindings``) is answered here.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.abc
import importlib.util
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kernelbench.ptx.hosts.cuda_host import CudaHost

_Functions = dict[str, Callable[..., Any]]

_VERSION = 13000
_DRIVER, _RUNTIME = "cuda.bindings.driver", "cuda.bindings.runtime"


def cute_dsl_is_installed() -> bool:
    """Whether a script can import it."""
    return importlib.util.find_spec("nvidia_cutlass_dsl") is not None


@contextlib.contextmanager
def before_import(package: str, action: Callable[[], None]) -> Iterator[None]:
    """While it lasts, ``action`` comes before a package is first imported."""
    finder = _Before(package, action)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Before(importlib.abc.MetaPathFinder):
    """Finds nothing: the import goes on with the finders behind it."""

    def __init__(self, package: str, action: Callable[[], None]) -> None:
        self._package = package
        self._action: Callable[[], None] | None = action

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        """Called for each module that is imported for the first time."""
        if fullname == self._package and self._action is not None:
            action, self._action = self._action, None
            action()


@contextlib.contextmanager
def cute_dsl_driven_by(host: CudaHost, arch: int, library: Path) -> Iterator[None]:
    """While it lasts, what CuTe DSL compiles and launches is the emulator's.

    Args:
        arch: What it compiles for: 90 for ``sm_90a``.
        library: The CUDA runtime that stands in.
    """
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="kernelbench-cute-"))
        stack.enter_context(_environment(arch, library, folder))
        host.kept_ptx = Path(folder)
        stack.callback(setattr, host, "kept_ptx", None)
        # It keeps the PTX, and says that it does.
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", message="Cache is disabled")
        driver, runtime = _answers(host)
        for module, functions in ((_DRIVER, driver), (_RUNTIME, runtime)):
            stack.enter_context(_replaced(importlib.import_module(module), functions))
        yield


@contextlib.contextmanager
def _environment(arch: int, library: Path, folder: str) -> Iterator[None]:
    """What CuTe DSL reads when it is imported."""
    asked = {
        "CUTE_DSL_ARCH": f"sm_{arch}a",
        "CUTE_DSL_LIBS": str(library),
        "CUTE_DSL_KEEP": "ptx",
        "CUTE_DSL_DUMP_DIR": folder,
        "CUTE_DSL_LINEINFO": "1",
        # A kernel that comes from its cache has no PTX.
        "CUTE_DSL_DISABLE_FILE_CACHING": "1",
    }
    before = {name: os.environ.get(name) for name in asked}
    os.environ.update(asked)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _replaced(module: Any, functions: _Functions) -> Iterator[None]:
    before = {name: getattr(module, name) for name in functions if hasattr(module, name)}
    for name in before:
        setattr(module, name, functions[name])
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(module, name, function)


def _answers(host: CudaHost) -> tuple[_Functions, _Functions]:
    """Functions of the driver and of the runtime by name, as ``cuda.bindings`` has them."""
    driver, runtime = (importlib.import_module(name) for name in (_DRIVER, _RUNTIME))

    def of_driver(*values: Any, status: int = 0) -> tuple[Any, ...]:
        return driver.CUresult(status), *values

    def of_runtime(*values: Any, status: int = 0) -> tuple[Any, ...]:
        return runtime.cudaError_t(status), *values

    def attribute(asked: Any, _device: Any = 0) -> int:
        value = ctypes.c_int()
        host.library.cuDeviceGetAttribute(ctypes.byref(value), int(asked), 0)
        return value.value

    def finished(stream: Any = None) -> int:
        if stream is None:
            return int(host.library.cudaDeviceSynchronize())
        return int(host.library.cudaStreamSynchronize(ctypes.c_void_p(int(stream))))

    device, context = driver.CUdevice(0), driver.CUcontext(1)
    nothing = ("cuInit", "cuCtxSetCurrent", "cuDevicePrimaryCtxRelease", "cuCtxDestroy",
               "cuStreamDestroy")  # fmt: skip
    return {
        **{name: lambda *_given: of_driver() for name in nothing},
        "cuDriverGetVersion": lambda: of_driver(_VERSION),
        "cuDeviceGetCount": lambda: of_driver(1),
        "cuDeviceGet": lambda _number: of_driver(device),
        "cuCtxGetDevice": lambda: of_driver(device),
        "cuCtxGetCurrent": lambda: of_driver(context),
        "cuCtxCreate": lambda *_given: of_driver(context),
        "cuDevicePrimaryCtxRetain": lambda _device: of_driver(context),
        "cuDeviceGetAttribute": lambda *given: of_driver(attribute(*given)),
        "cuStreamCreate": lambda *_flags: of_driver(driver.CUstream(host.stream())),
        "cuStreamSynchronize": lambda stream: of_driver(status=finished(stream)),
        "cuCtxSynchronize": lambda: of_driver(status=finished()),
        **_occupancy(driver, of_driver, attribute),
    }, {
        **{
            name: lambda *_given: of_runtime()
            for name in ("cudaSetDevice", "cudaLibraryUnload", "cudaStreamDestroy",
                         "cudaGetLastError")
        },
        "cudaGetDeviceCount": lambda: of_runtime(1),
        "cudaGetDevice": lambda: of_runtime(0),
        "cudaDriverGetVersion": lambda: of_runtime(_VERSION),
        "cudaRuntimeGetVersion": lambda: of_runtime(_VERSION),
        "cudaDeviceGetAttribute": lambda *given: of_runtime(attribute(*given)),
        "cudaStreamCreate": lambda: of_runtime(runtime.cudaStream_t(host.stream())),
        "cudaStreamCreateWithFlags": lambda _flags: of_runtime(
            runtime.cudaStream_t(host.stream())
        ),
        "cudaStreamSynchronize": lambda stream: of_runtime(status=finished(stream)),
        "cudaDeviceSynchronize": lambda: of_runtime(status=finished()),
    }  # fmt: skip


def _occupancy(
    driver: Any, answer: Callable[..., tuple[Any, ...]], attribute: Callable[[Any], int]
) -> _Functions:
    """What ``cutlass.utils.HardwareInfo`` asks, of an empty kernel that it has compiled."""
    library, kernel, function = driver.CUlibrary(1), driver.CUkernel(1), driver.CUfunction(1)
    load = driver.cuLibraryLoadData

    def loaded(image: Any, *given: Any) -> Any:
        machine_code = isinstance(image, bytes) and image.startswith(b"\x7fELF")
        return answer(library) if machine_code else load(image, *given)

    def clusters(_function: Any, config: Any) -> tuple[Any, ...]:
        size = 1
        for each in config.attrs:
            if each.id == driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
                of = each.value.clusterDim
                size = of.x * of.y * of.z
        count = attribute(driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
        return answer(count // size)

    shared = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    return {
        "cuLibraryLoadData": loaded,
        "cuLibraryEnumerateKernels": lambda _count, _library: answer([kernel]),
        "cuKernelGetFunction": lambda _kernel: answer(function),
        "cuFuncSetAttribute": lambda *_given: answer(),
        "cuOccupancyAvailableDynamicSMemPerBlock": lambda *_given: answer(attribute(shared)),
        "cuOccupancyMaxActiveBlocksPerMultiprocessor": lambda *_given: answer(1),
        "cuOccupancyMaxActiveClusters": clusters,
    }
