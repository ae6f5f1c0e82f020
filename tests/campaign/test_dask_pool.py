"""A real cluster of two processes: pieces reach both, and one is killed in the middle."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from stand_ins import Sweep, archive_of, piece

pytest.importorskip("distributed", reason="the extra 'campaign' is not installed")

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.campaign.dask_pool import DaskPool, local_cluster


def test_a_worker_is_killed_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that was done is lost or done again; the lost piece is named, and done."""
    log = tmp_path / "log"
    monkeypatch.setenv("KERNELBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("STAND_IN_LOG", str(log))
    pieces = [piece(f"{i}", "wait", "0.1") for i in range(16)]
    killed: list[int] = []
    with local_cluster(2, []) as address:
        pool = DaskPool(address, archive_of())
        try:
            sweep = Sweep(tmp_path / "results", pool, patience_s=20)

            def kill_one(_text: str) -> None:
                if sweep.engine.done >= 3 and not killed:
                    (first, *_) = pool._client.run(os.getpid).values()
                    killed.append(first)
                    os.kill(first, signal.SIGKILL)

            sweep.engine.on_progress = kill_one
            engine = sweep.run(pieces)
        finally:
            pool.close()
    assert engine.done == len(pieces)
    assert engine.missing == []
    assert engine.most_workers == 2
    assert len(list((tmp_path / "results").glob("cpu/checks/*"))) == len(pieces)
    assert killed
    # None if it was killed between two pieces.
    assert [fault.why for fault in sweep.faults] in ([], ["the worker has gone"])
    began = Counter(line.split()[1] for line in log.read_text().splitlines())
    lost = {fault.piece.split()[2] for fault in sweep.faults}
    assert {name for name, times in began.items() if times != 2} <= lost


def test_no_scheduler_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelbench.campaign.dask_pool._CONNECT_S", 0.5)
    with pytest.raises(EnvironmentProblem, match="no Dask scheduler answers at tcp://127"):
        DaskPool("tcp://127.0.0.1:9", archive_of())


def test_a_worker_with_another_python_and_a_scheduler_that_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not used, and named; one line, and no wait for workers that cannot come any more."""
    monkeypatch.setattr("kernelbench.campaign.dask_pool._CONNECT_S", 1.0)
    with local_cluster(1, []) as address:
        pool = DaskPool(address, archive_of())
        (worker,) = pool.workers()
        pool._versions, pool._seen = {worker.address: "3.1"}, -1e9
        assert pool.workers() == [], "another Python cannot run this one's code"
        assert "it has Python 3.1" in pool.unfit()[worker.address]
        pool._seen = -1e9
    try:
        with pytest.raises(EnvironmentProblem, match=r"scheduler at tcp://127.* has gone"):
            pool.workers()
    finally:
        pool.close()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What docs/clusters.md says: an authority, and a key that it has signed."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make certificates with")
    folder = tmp_path_factory.mktemp("tls")
    new = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    for line in (
        f"req -x509 {new} -days 2 -keyout ca.key -out ca.pem -subj /CN=bench",
        f"req {new} -keyout me.key -out me.csr -subj /CN=me",
        "x509 -req -in me.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out me.pem",
    ):
        words = ["openssl", *line.split()]
        subprocess.run(words, cwd=folder, check=True, capture_output=True)
    return folder


def test_a_cluster_with_tls(certificates: Path, tmp_path: Path) -> None:
    """Who shows a certificate of the authority gets in, and pieces are done; nobody else does."""
    import dask
    from distributed import Nanny, Scheduler
    from distributed.deploy.spec import SpecCluster
    from distributed.security import Security

    cert, key = str(certificates / "me.pem"), str(certificates / "me.key")
    roles = {f"tls_{role}_{what}": file
             for role in ("scheduler", "worker", "client")
             for what, file in (("cert", cert), ("key", key))}  # fmt: skip
    security = Security(tls_ca_file=str(certificates / "ca.pem"), require_encryption=True, **roles)
    here = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "security": security}
    settings = {
        "distributed.comm.tls.ca-file": str(certificates / "ca.pem"),
        "distributed.comm.tls.client.cert": cert,
        "distributed.comm.tls.client.key": key,
        "distributed.comm.require-encryption": True,
    }
    worker = {"cls": Nanny, "options": here | {"nthreads": 1, "memory_limit": 0}}
    scheduler = {"cls": Scheduler, "options": here | {"protocol": "tls://", "port": 0}}
    with SpecCluster(workers={"0": worker}, scheduler=scheduler, security=security) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        with pytest.raises(EnvironmentProblem, match=r"no certificate is named.*TLS__CA_FILE"):
            DaskPool(address, archive_of())
        with dask.config.set(settings):
            pool = DaskPool(address, archive_of())
            try:
                assert Sweep(tmp_path / "results", pool).run([piece("0"), piece("1")]).done == 2
            finally:
                pool.close()
        with dask.config.set({"distributed.comm.timeouts.connect": "0.5s"}):
            plain = address.replace("tls://", "tcp://")
            with pytest.raises(EnvironmentProblem, match="no Dask scheduler answers"):
                DaskPool(plain, archive_of())
