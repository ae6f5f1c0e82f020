"""What an exported step does on its own: it is built by nvcc on import, loaded, and called.

Exported files hold a copy of what they need of this
(:mod:`kernelbench.lineages.compiled_export`), so that only the standard library and torch are used
here. Errors are RuntimeErrors of one line.

GPU MODE's server refuses files with the letters ``stream``: the copies say ``queue`` where names
have them (``queue_on``), and torch's own names are put together below.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import importlib.machinery
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

_LIMIT_S = 900
_MESSAGE_BYTES = 1024
_ERROR_LINE = re.compile(r"\b(error|fatal|undefined reference)\b|not found", re.IGNORECASE)
_WORD = "".join(("str", "eam"))
_READ = f"_cuda_getCurrentRaw{_WORD.capitalize()}"


class StandaloneStep:
    """A built step's entry points, as a problem binds them.

    Args:
        name: The step's, for messages.
        arch: ``sm_100a``, say; no other GPU runs its code.
        library: What :func:`build_standalone` returns.
        extension: Name of the Python module that the library is, too; empty if it is none.
    """

    def __init__(self, name: str, arch: str, library: Path, extension: str = "") -> None:
        self._name, self._arch, self._path, self._extension = name, arch, library, extension
        try:
            self._library = ctypes.CDLL(str(library))
        except OSError as error:
            raise RuntimeError(f"{name} cannot be loaded: {_one_line(error)}") from None
        self._library.kb_run.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        self._library.kb_run.restype = ctypes.c_int
        self._message = ctypes.create_string_buffer(_MESSAGE_BYTES)

    @functools.cached_property
    def device(self) -> str:
        """The current GPU.

        Raises:
            RuntimeError: If there is none, or it does not run the step's code.
        """
        if not torch.cuda.is_available():
            raise RuntimeError(f"{self._name} needs a GPU ({self._arch}), and torch finds none")
        number = int(self._arch.strip("sm_af"))
        found = torch.cuda.get_device_capability()
        if found != divmod(number, 10):
            raise RuntimeError(
                f"{self._name} is built for {self._arch}, which "
                f"{torch.cuda.get_device_name()} (sm_{found[0]}{found[1]}) does not run"
            )
        return f"cuda:{torch.cuda.current_device()}"

    def call(self, call: ctypes.Structure, memory: Iterable[Any] = ()) -> None:
        """Run one call; ``memory`` is for a kernel that is emulated.

        Raises:
            NotImplementedError: If the call breaks a limit of the step.
            RuntimeError: If the launch fails.
        """
        status = self._library.kb_run(ctypes.byref(call), self._message, _MESSAGE_BYTES)
        if status:
            self.check(status, self._message.value.decode(errors="replace"))

    def check(self, status: int, message: str) -> None:
        """Raise what a status of ``kb_run`` means; see :meth:`call`."""
        if status == 0:
            return
        text = _one_line(message)
        if status == 1:
            raise NotImplementedError(text or "the step does not take this call")
        raise RuntimeError(text or f"{self._name}: kb_run failed with status {status}")

    def address_of(self, function: str) -> int:
        """Address of a function of the library."""
        return ctypes.cast(getattr(self._library, function), ctypes.c_void_p).value or 0

    def stream_on(self, device: torch.device) -> Callable[[], int]:
        """What reads the one that torch has current there: a call is put on no other."""
        index = device.index or 0
        # torch.cuda's own function builds an object around it, which a call takes 10 us longer for.
        read = getattr(torch._C, _READ)
        return lambda: int(read(index))

    def extension(self) -> Any:
        """The library as a Python module."""
        loader = importlib.machinery.ExtensionFileLoader(self._extension, str(self._path))
        spec = importlib.util.spec_from_loader(self._extension, loader, origin=str(self._path))
        try:
            if spec is None:
                raise ImportError("no loader")
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
        except ImportError as error:
            raise RuntimeError(f"{self._name} cannot be loaded: {_one_line(error)}") from None
        return module


def build_standalone(
    name: str, sources: Mapping[str, str], flags: Sequence[str], *, extension: bool = False
) -> Path:
    """The library that nvcc makes of ``sources``, from the cache or built now.

    The cache is ``exported-steps`` in ``$XDG_CACHE_HOME`` or ``~/.cache``; its key is the hash of
    sources, flags and compiler.

    Args:
        sources: Text by file name.
        extension: Whether they include the headers of pybind11 and Python.

    Raises:
        RuntimeError: If there is no nvcc, it refuses the sources, or nothing can be written.
    """
    nvcc = find_nvcc()
    if nvcc is None:
        raise RuntimeError(
            f"{name} cannot be built: no nvcc on PATH, in CUDA_HOME, in /usr/local/cuda or in this "
            "Python; install the CUDA toolkit"
        )
    flags = [*flags, *(_header_flags(name) if extension else ())]
    try:
        version = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
        facts = (sorted(sources.items()), flags, version, platform.machine(), sys.version)
        key = hashlib.sha256(repr(facts).encode()).hexdigest()[:32]
        library = _cache_folder() / key / "step.so"
        if library.is_file():
            return library
        library.parent.mkdir(exist_ok=True)
        with _alone(library.parent / "lock"):
            if not library.is_file():
                _compile(name, nvcc, sources, flags, library)
    except OSError as error:
        raise RuntimeError(f"{name} cannot be built: {_one_line(error)}") from None
    return library


def find_nvcc() -> str | None:
    """The CUDA compiler, as torch's extensions find it, or that of PyPI's packages."""
    places = [Path(found)] if (found := shutil.which("nvcc")) else []
    toolkits = filter(None, map(os.environ.get, ("CUDA_HOME", "CUDA_PATH")))
    places += [Path(folder, "bin", "nvcc") for folder in (*toolkits, "/usr/local/cuda")]
    packages = Path(sysconfig.get_path("purelib"))
    places += sorted(packages.glob("nvidia/*/bin/nvcc"), reverse=True)
    return next((str(place) for place in places if os.access(place, os.X_OK)), None)


def _header_flags(name: str) -> list[str]:
    """Where pybind11's headers are, which come with torch, and Python's."""
    torch_headers = Path(torch.__file__).parent / "include"
    folders = [torch_headers, Path(sysconfig.get_path("include"))]
    for header in ("pybind11/pybind11.h", "Python.h"):
        if not any((folder / header).is_file() for folder in folders):
            raise RuntimeError(f"{name} cannot be built: {header} is not in {folders[0]} or beside")
    return [part for folder in folders for part in ("-isystem", str(folder))]


def _cache_folder() -> Path:
    """Where libraries are kept; a folder of this process's own where that cannot be written."""
    with contextlib.suppress(OSError, RuntimeError):
        home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        folder = Path(home).expanduser() / "exported-steps"
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    return Path(tempfile.mkdtemp(prefix="exported-steps-"))


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """While no other process holds the lock: eight of them may import the file at once."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(
    name: str, nvcc: str, sources: Mapping[str, str], flags: Sequence[str], library: Path
) -> None:
    """Compile in a folder beside, so that nobody meets half a library."""
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        for file, text in sources.items():
            Path(folder, file).write_text(text, encoding="utf-8")
        command = [nvcc, "-shared", "-Xcompiler", "-fPIC", *flags, *sources, "-o", "step.so"]
        try:
            run = subprocess.run(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors="replace", timeout=_LIMIT_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{name} cannot be built: nvcc took over {_LIMIT_S} s") from None
        if run.returncode != 0:
            lines = [line for line in run.stdout.splitlines() if line.strip()]
            first = next(filter(_ERROR_LINE.search, lines), "".join(lines[-1:]))
            log = library.parent / "log"
            log.write_text(" ".join(command) + "\n" + run.stdout)
            raise RuntimeError(
                f"{name} cannot be built by {nvcc}: {_one_line(first)}; the log is {log}"
            )
        Path(folder, "step.so").replace(library)


def _one_line(value: object) -> str:
    return " ".join(str(value).split())
