"""Workers of a Dask cluster: one of this machine's own, or one that is there already.

Dask starts processes, reaches hosts, carries code and results, and says who is there. Which piece
a worker gets is the engine's choice: a worker has to be known by its pieces, so that it can be
named when it fails, and so that one GPU does one thing at a time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.campaign.code_archive import CodeArchive
from kernelbench.campaign.worker_pool import Order, PoolWorker, ReportQueue, all_reports

#: How old may be what is known of who is there.
_FRESH_S = 0.5
_CONNECT_S = 30.0
_CLOSE_S = 20.0
_GPU = "GPU"


def require_dask() -> None:
    """Refuse a cluster without Dask: EnvironmentProblem, with how to install it."""
    import importlib.util

    if importlib.util.find_spec("distributed") is None:
        raise EnvironmentProblem(
            "workers are a Dask cluster's, and the package distributed is not installed",
            "`pip install distributed`, or give --workers 0",
        )


@contextlib.contextmanager
def local_cluster(workers: int, gpus: Sequence[str]) -> Iterator[str]:
    """A cluster of this machine, which nobody else can reach; its scheduler's address.

    Args:
        workers: How many processes; gpus: what CUDA calls the GPUs, one for each worker, or none.
    """
    import dask
    from distributed import Nanny, Scheduler
    from distributed.deploy.spec import SpecCluster

    _quiet()
    settings = {
        # A lost worker's piece is the engine's to give away; nobody's piece is run unasked.
        "distributed.scheduler.allowed-failures": 0,
        "distributed.scheduler.work-stealing": False,
        "distributed.worker.profile.enabled": False,
        "distributed.admin.system-monitor.gil.enabled": False,
    }
    # Its pages would be open to the network.
    nowhere = {"dashboard_address": "127.0.0.1:0"}
    options: dict[str, Any] = {
        **nowhere, "host": "127.0.0.1", "nthreads": 1, "memory_limit": 0, "dashboard": False,
        "silence_logs": logging.CRITICAL,
    }  # fmt: skip
    specs = {}
    for number in range(workers):
        own = {**options, "name": str(number)}
        if gpus:
            own |= {"resources": {_GPU: 1}, "env": {"CUDA_VISIBLE_DEVICES": gpus[number]}}
        specs[str(number)] = {"cls": Nanny, "options": own}
    scheduler = {
        "cls": Scheduler,
        "options": {"host": "127.0.0.1", "port": 0, "dashboard": False, **nowhere},
    }
    with (
        dask.config.set(settings),
        SpecCluster(workers=specs, scheduler=scheduler, silence_logs=logging.CRITICAL) as cluster,
    ):
        yield cluster.scheduler_address


class DaskPool:
    """The workers of a cluster.

    Args:
        address: The scheduler's, such as ``tcp://host:8786``.
        archive: The code that they run.

    Attributes:
        task: What a worker does with an order.

    Raises:
        EnvironmentProblem: If there is no scheduler, or it has another Python, or asks for TLS and
            there is no certificate here.
    """

    def __init__(self, address: str, archive: CodeArchive) -> None:
        import cloudpickle
        from distributed import Client

        from kernelbench.campaign import piece_plugin, piece_process

        _quiet()
        _require_certificate(address)
        self._address = address
        try:
            self._client = Client(address, timeout=_CONNECT_S, set_as_default=False)
        except (OSError, ValueError) as error:
            raise EnvironmentProblem(
                f"no Dask scheduler answers at {address}: {error}",
                "start one with `dask scheduler`, and name its address with --scheduler",
            ) from error
        try:
            self._versions: dict[str, str] = {}
            if (found := self._ask_versions()) != _python():
                raise EnvironmentProblem(
                    f"the scheduler has Python {found}, this process {_python()}",
                    "code goes there as it is in memory: use one Python for the cluster",
                )
            for module in (piece_process, piece_plugin):
                cloudpickle.register_pickle_by_value(module)
            self._plugin = f"kernelbench-{archive.sha[:16]}-{os.getpid()}"
            plugin = piece_plugin.CodePlugin(archive.data, archive.sha, archive.root)
            self._client.register_plugin(plugin, name=self._plugin)
            self.task = piece_plugin.runner_of(self._plugin)
        except BaseException:
            self._client.close(timeout=_CLOSE_S)
            raise
        self._reports: ReportQueue = queue.SimpleQueue()
        self._futures: dict[str, Any] = {}
        self._here: list[PoolWorker] = []
        self._gone: set[str] = set()
        self._seen = 0.0
        self._number = 0

    def workers(self) -> Sequence[PoolWorker]:
        """Who is there, with this Python: as many pieces at a time as GPUs, or else threads.

        Raises:
            EnvironmentProblem: If the scheduler has gone and does not come back.
        """
        if time.monotonic() - self._seen < _FRESH_S:
            return [each for each in self._here if each.address not in self._gone]
        # Asked directly: `scheduler_info` may return what its own refresh has, which is no worker.
        try:
            found = self._client.sync(self._client.scheduler.identity, n_workers=-1)["workers"]
        except (OSError, RuntimeError) as error:
            raise EnvironmentProblem(
                f"the Dask scheduler at {self._address} has gone: {error}",
                "what is done is kept; start one, and call the sweep again",
            ) from error
        if found.keys() - self._versions.keys():
            self._ask_versions()
        self._here = [
            PoolWorker(address, str(info.get("host") or address), _slots(info))
            for address, info in found.items()
            if self._versions.get(address) == _python() and info.get("status") == "running"
        ]
        self._gone &= found.keys()
        self._seen = time.monotonic()
        return [each for each in self._here if each.address not in self._gone]

    def unfit(self) -> dict[str, str]:
        """Workers with another Python than this process, which code in memory cannot go to."""
        return {
            address: f"it has Python {version or '?'}, this process {_python()}"
            for address, version in self._versions.items()
            if version != _python()
        }

    def start(self, worker: PoolWorker, order: Order) -> None:
        """Send a piece to one worker."""
        key = order["key"]
        self._number += 1
        future = self._client.submit(
            self.task,
            order,
            key=f"kernelbench-{key}-{self._number}-{os.getpid()}",
            workers=[worker.address],
            allow_other_workers=False,
            pure=False,
            retries=0,
        )
        self._futures[key] = future

        def came(done: Any) -> None:
            if self._futures.get(key) is done:
                self._reports.put(_report_of(done, key, worker))

        future.add_done_callback(came)

    def give_up(self, key: str) -> None:
        """Forget a piece; a worker that comes back does not run it."""
        future = self._futures.pop(key, None)
        if future is not None:
            future.cancel(force=True)

    def reports(self, timeout_s: float) -> list[dict[str, Any]]:
        """What came back; the scheduler may forget it then."""
        found = all_reports(self._reports, timeout_s)
        for report in found:
            self._futures.pop(report["key"], None)
            # What is known of who is there may be older than that.
            self._gone |= {*report.pop("gone", ())}
        return found

    def close(self) -> None:
        """End what runs at the workers, which stay; of a cluster that is gone nothing is left."""
        with contextlib.suppress(Exception):
            self._client.unregister_worker_plugin(self._plugin)
        with contextlib.suppress(Exception):
            self._client.close(timeout=_CLOSE_S)

    def _ask_versions(self) -> str:
        """The scheduler's Python; the workers' are kept."""
        found = self._client.get_versions()
        self._versions |= {address: _short(of) for address, of in found["workers"].items()}
        return _short(found["scheduler"])


def _quiet() -> None:
    """Faults are named by the engine, each in one line."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)


def _require_certificate(address: str) -> None:
    """Refuse ``tls://`` without a certificate to show; the client would never end."""
    from distributed.security import Security

    try:
        lacking = Security().get_connection_args("client")["ssl_context"] is None
    except OSError as error:
        raise EnvironmentProblem(
            f"a certificate or key for TLS cannot be read: {error}",
            "see the variables DASK_DISTRIBUTED__COMM__TLS__…",
        ) from error
    if lacking and address.startswith("tls://"):
        raise EnvironmentProblem(
            f"{address} takes TLS, and no certificate is named",
            "set DASK_DISTRIBUTED__COMM__TLS__CA_FILE, …__TLS__CLIENT__CERT and …__CLIENT__KEY",
        )


def _report_of(future: Any, key: str, worker: PoolWorker) -> dict[str, Any]:
    """A report, or one of a piece that the worker has not ended."""
    gone = False
    try:
        if future.status == "finished":
            found: dict[str, Any] = future.result(timeout=_CONNECT_S)
            return found
        error = future.exception(timeout=_CONNECT_S) if future.status == "error" else None
        name = type(error).__name__ if error is not None else future.status
        gone = name == "KilledWorker"
        if gone:
            fault = "the worker has gone"
        elif error is None:
            # After a connection that broke; the worker may still be at it.
            fault = f"the cluster has lost the piece ({name})"
        else:
            fault = f"{name}: {' '.join(str(error).split())}"
    except Exception as error:
        fault = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return {
        "key": key, "code": None, "fault": fault[:300], "host": worker.host, "gpu": "",
        "seconds": 0.0, "tail": "", "files": {}, "gone": [worker.address] if gone else [],
    }  # fmt: skip


def _short(versions: Any) -> str:
    """``3.11`` of what Dask says of a process."""
    return ".".join(str((versions or {}).get("host", {}).get("python", "")).split(".")[:2])


def _python() -> str:
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def _slots(info: dict[str, Any]) -> int:
    gpus = int(info.get("resources", {}).get(_GPU, 0))
    return min(gpus, int(info["nthreads"])) if gpus else int(info["nthreads"])
