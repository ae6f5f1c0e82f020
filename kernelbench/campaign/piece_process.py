"""What a worker does with a piece: unpack the code once, run the command, hand back its files.

A worker need not have kernelbench: this module goes to it as code, so it imports the standard
library only, and what goes in and out are dictionaries of plain values.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_TAIL = 4000
_POLL_S = 0.2
_KEPT_S = 30 * 86400.0

#: Ends with the process that started it: a worker that is killed leaves no command behind.
_START = (
    "import ctypes, os, runpy, signal, sys\n"
    "parent = int(sys.argv[1])\n"
    "ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)\n"
    "if os.getppid() != parent: sys.exit(1)\n"
    "sys.argv[:2] = ['kernelbench']\n"
    "runpy.run_module('kernelbench', run_name='__main__')\n"
)


class PieceRunner:
    """Runs pieces with one version of the code; threads may do so at the same time.

    Args:
        data: The archive (zip); sha: its hash; root: the folder in it that commands run in.
    """

    def __init__(self, data: bytes, sha: str, root: str) -> None:
        self._data = data
        self._sha = sha
        self._root = root
        self._running: dict[int, str] = {}
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, order: dict[str, Any]) -> dict[str, Any]:
        """Run one piece.

        Args:
            order: ``key``, ``arguments``, ``limit_s``, ``gpu`` (whether it has to have one) and
                ``environment``.

        Returns:
            ``key``, ``code`` (the command's, None if it did not end), ``fault`` (why it says
            nothing of the piece, empty if it does), ``host``, ``gpu``, ``seconds``, ``tail`` of
            what it printed and ``files`` by their path below the results folder.
        """
        report: dict[str, Any] = {
            "key": order["key"], "code": None, "fault": "", "host": socket.gethostname(),
            "gpu": "", "seconds": 0.0, "tail": "", "files": {},
        }  # fmt: skip
        try:
            code = self._unpacked()
            with contextlib.ExitStack() as stack:
                environment = dict(order["environment"])
                if order["gpu"]:
                    number, name = stack.enter_context(_own_gpu(order["limit_s"]))
                    environment["CUDA_VISIBLE_DEVICES"] = number
                    report["gpu"] = name
                self._command(order, code, environment, report)
        except (OSError, _NoGpu, zipfile.BadZipFile) as error:
            report["fault"] = str(error) or type(error).__name__
        return report

    def stop(self) -> None:
        """End what runs, and run no more."""
        with self._lock:
            self._stopped = True
            running = [*self._running]
        for pid in running:
            _kill(pid)

    def _command(
        self, order: dict[str, Any], code: Path, environment: dict[str, str], report: dict[str, Any]
    ) -> None:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        root = code / self._root
        with (
            tempfile.TemporaryDirectory(
                prefix="kernelbench-piece-", ignore_cleanup_errors=True
            ) as folder,
            Path(folder, "log").open("w+b") as log,
        ):
            results = Path(folder, "results")
            if (code / "results").is_dir():
                shutil.copytree(code / "results", results)
            kept = set(_files(results))
            began = time.monotonic()
            process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-c", _START, str(os.getpid())),
                    *order["arguments"],
                    *("--results", str(results)),
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=root,
                env=inherited | environment
                | {"PYTHONPATH": str(code / "code"), "KERNELBENCH_ROOT": str(root)},
            )  # fmt: skip
            with self._lock:
                self._running[process.pid] = order["key"]
                stopped = self._stopped
            try:
                report["code"] = process.wait(0.0 if stopped else order["limit_s"])
            except subprocess.TimeoutExpired:
                limit = f"no end within {order['limit_s']:g} s"
                report["fault"] = "stopped" if stopped else limit
            finally:
                _kill(process.pid)
                process.wait()
                with self._lock:
                    del self._running[process.pid]
            report["seconds"] = time.monotonic() - began
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - _TAIL))
            report["tail"] = log.read().decode(errors="replace")
            if not report["fault"]:
                report["files"] = {
                    name: (results / name).read_bytes()
                    for name in _files(results)
                    if name not in kept or name == "ledger.jsonl"
                }

    def _unpacked(self) -> Path:
        """The folder with the code: one for all workers of a machine, made by the first."""
        place = _cache() / "campaigns" / self._sha
        if not place.is_dir():
            place.parent.mkdir(parents=True, exist_ok=True)
            _sweep_out(place.parent)
            with tempfile.TemporaryDirectory(dir=place.parent, prefix=".") as scratch:
                fresh = Path(scratch) / self._sha
                with zipfile.ZipFile(io.BytesIO(self._data)) as archive:
                    archive.extractall(fresh)
                with contextlib.suppress(OSError):
                    # Another worker may have been faster.
                    fresh.rename(place)
        os.utime(place)
        return place


class _NoGpu(Exception):
    """There is no GPU for a piece, in one line."""


def _cache() -> Path:
    named = os.environ.get("KERNELBENCH_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "kernelbench"


def _sweep_out(folder: Path) -> None:
    """Remove code that no piece has used for a month."""
    for old in folder.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > _KEPT_S:
                shutil.rmtree(old)


def _files(folder: Path) -> list[str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    names = [path.relative_to(folder).as_posix() for path in found]
    return [name for name in names if "/." not in f"/{name}"]


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


@contextlib.contextmanager
def _own_gpu(limit_s: float) -> Iterator[tuple[str, str]]:
    """A GPU that no other piece on this machine has: what CUDA calls it, and its name.

    Whatever started the workers, and however many there are: a file's lock stands for each GPU.
    """
    end = time.monotonic() + limit_s
    while True:
        gpus = _visible_gpus()
        if not gpus:
            raise _NoGpu("there is no GPU (any more), or no nvidia-smi to ask")
        for number, name, unique in gpus:
            handle = _open_lock(Path(tempfile.gettempdir()) / f"kernelbench-{unique}.lock")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(handle)
                continue
            try:
                yield number, f"{name} ({unique})"
            finally:
                os.close(handle)
            return
        if time.monotonic() > end:
            raise _NoGpu(f"every GPU has been busy for {limit_s:g} s")
        time.sleep(_POLL_S)


def _open_lock(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR)
    except FileNotFoundError:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        with contextlib.suppress(OSError):
            # Other users' pieces lock it, too.
            path.chmod(0o666)
        return handle


def _visible_gpus() -> list[tuple[str, str, str]]:
    """Number, name and unique name of the GPUs that this process may use."""
    query = ["nvidia-smi", "--query-gpu=index,name,uuid", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode:
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    found = [(row[0], row[1], row[2]) for row in rows if len(row) == 3]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return found
    named = [name.strip() for name in visible.split(",")]
    return [gpu for gpu in found if gpu[0] in named or gpu[2] in named]
