"""The engine: what is done, given to another worker, given up and gone on with."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stand_ins import ObedientPool, Sweep, piece, report_of, run_files

from kernelbench.base.errors import KernelbenchError
from kernelbench.campaign.engine import MOST_FAULTS, MOST_MOVES, Engine
from kernelbench.campaign.worker_pool import Order

FINE = [piece(f"{i}") for i in range(7)]


def keys(sweep: Sweep) -> set[str]:
    return {path.name.removesuffix(".json.gz") for path in sweep.outcomes.folder.glob("*.gz")}


def test_every_piece_is_done_once_and_never_again(tmp_path: Path) -> None:
    pool = ObedientPool(["a", "b"], lambda _, order: report_of(order))
    sweep = Sweep(tmp_path, pool)
    engine = sweep.run([*FINE, FINE[3]])
    assert engine.done == len(FINE)
    assert keys(sweep) == {each.key for each in FINE}
    assert pool.most == 2, "no more at a time than there are workers"
    assert Counter(key for _, key in pool.given) == Counter(each.key for each in FINE)
    again = ObedientPool(["a"], lambda _, order: report_of(order))
    assert Sweep(tmp_path, again).run(FINE).done == 0
    assert again.given == []


def test_pieces_are_made_as_they_are_needed(tmp_path: Path) -> None:
    made = 0

    def endless() -> Any:
        nonlocal made
        while True:
            made += 1
            yield piece(f"{made}")

    def answer(_name: str, order: Order) -> dict[str, Any]:
        if made > 20:
            raise KeyboardInterrupt
        return report_of(order)

    sweep = Sweep(tmp_path, ObedientPool(["a", "b"], answer))
    with pytest.raises(KeyboardInterrupt):
        sweep.engine.run(endless())
    assert made <= 23
    assert sweep.engine.done >= 18, "what came back before Ctrl-C is kept"


def test_a_lost_workers_piece_goes_to_another(tmp_path: Path) -> None:
    def answer(name: str, order: Order) -> dict[str, Any] | None:
        if name == "a":
            pool.here = [each for each in pool.here if each.address != "a"]
            return None
        return report_of(order)

    pool = ObedientPool(["a", "b"], answer)
    sweep = Sweep(tmp_path, pool)
    engine = sweep.run(FINE)
    assert engine.done == len(FINE)
    (fault,) = sweep.faults
    assert (fault.worker, fault.host, fault.why) == ("a", "host of a", "the worker has gone")
    assert engine.missing == []


def test_a_report_that_comes_late_is_of_its_own_turn(tmp_path: Path) -> None:
    """A worker is lost, its piece is given to another, and then its report comes."""
    late: list[dict[str, Any]] = []

    def answer(name: str, order: Order) -> dict[str, Any] | None:
        if name == "b":
            return report_of(order)
        late.append(report_of(order, fault="the worker has gone"))
        pool.here = [each for each in pool.here if each.address != "a"]
        return None

    class Late(ObedientPool):
        def reports(self, timeout_s: float) -> list[dict[str, Any]]:
            came = [*late] if len(self.given) > 1 else []
            return [*came, *super().reports(timeout_s)]

    pool = Late(["a", "b"], answer)
    sweep = Sweep(tmp_path, pool)
    sweep.run(FINE[:1])
    assert [(fault.worker, fault.why) for fault in sweep.faults] == [("a", "the worker has gone")]


def test_a_piece_goes_elsewhere_at_most_twice(tmp_path: Path) -> None:
    def answer(_name: str, order: Order) -> dict[str, Any]:
        bad = order["arguments"][1] == "3"
        return report_of(order, code=-9) if bad else report_of(order)

    pool = ObedientPool(["a", "b", "c", "d"], answer)
    engine = Sweep(tmp_path, pool).run(FINE)
    tried = [name for name, key in pool.given if key == FINE[3].key]
    assert len(tried) == 1 + MOST_MOVES
    assert len(set(tried)) == len(tried), "never to one that has failed with it"
    (missing,) = engine.missing
    assert missing.piece == "kernelbench fine 3"
    assert "signal 9" in missing.why
    assert engine.done == len(FINE) - 1


def test_a_worker_that_lacks_something_gets_no_more(tmp_path: Path) -> None:
    def answer(name: str, order: Order) -> dict[str, Any]:
        if name == "a":
            return report_of(order, code=5, tail="kernelbench: there is no g++\n")
        return report_of(order)

    pool = ObedientPool(["a", "b"], answer)
    sweep = Sweep(tmp_path, pool)
    engine = sweep.run([piece(f"{i}") for i in range(30)])
    assert engine.done == 30
    assert len([name for name, _ in pool.given if name == "a"]) == MOST_FAULTS
    assert {fault.why for fault in sweep.faults} == {"exit code 5: there is no g++"}


def test_a_worker_that_does_not_answer_gets_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is there, and neither its piece nor the end of that within the limit ever comes back."""
    monkeypatch.setattr("kernelbench.campaign.engine._GRACE_S", 0.0)
    pool = ObedientPool(["a", "b"], lambda name, order: report_of(order) if name == "b" else None)
    sweep = Sweep(tmp_path, pool)
    sweep.engine.settings = replace(sweep.engine.settings, limit_s=0.05)
    engine = sweep.run(FINE)
    assert engine.done == len(FINE)
    assert [(each.worker, each.why) for each in sweep.faults] == [("a", "it does not answer")]
    assert [name for name, _ in pool.given].count("a") == 1


def test_nobody_is_left(tmp_path: Path) -> None:
    pool = ObedientPool(["a"], lambda _, order: report_of(order, fault="No space left on device"))
    engine = Sweep(tmp_path, pool).run(FINE)
    assert engine.done == 0
    assert len(engine.missing) == MOST_FAULTS
    assert engine.not_run == len(FINE) - MOST_FAULTS
    assert {each.why for each in engine.missing} == {"a: No space left on device"}


def test_what_is_wrong_everywhere_is_tried_once(tmp_path: Path) -> None:
    said = "kernelbench: no step 'x'"
    pool = ObedientPool(["a", "b"], lambda _, order: report_of(order, code=2, tail=said))
    engine = Sweep(tmp_path, pool).run(FINE)
    assert len(pool.given) == len(FINE)
    assert len(engine.missing) == len(FINE)


def test_a_wrong_step_is_an_answer(tmp_path: Path) -> None:
    pool = ObedientPool(["a"], lambda _, order: report_of(order, code=3))
    assert Sweep(tmp_path, pool).run(FINE[:2]).answers.wrong == [
        "kernelbench fine 0",
        "kernelbench fine 1",
    ]
    again = Sweep(tmp_path, pool).run(FINE[:2])
    assert (again.done, len(again.answers.wrong)) == (0, 2), "of earlier sweeps, too"


@pytest.mark.parametrize(
    ("code", "status", "kind", "fault"),
    [
        (0, "pass", "cuda", ""),
        (0, "pass", "cpu", "it ran without a GPU"),
        (5, "skipped", "cpu", ""),
        (5, "machine", "cuda", "exit code 5: the device is gone"),
        (6, "harness", "cuda", "exit code 6: the device is gone"),
        (1, "pass", "cuda", "exit code 1: the device is gone"),
    ],
)
def test_a_run_that_shall_be_on_a_gpu(
    tmp_path: Path, code: int, status: str, kind: str, fault: str
) -> None:
    from conftest import ENVIRONMENT

    environment = replace(ENVIRONMENT, kind=kind)
    files = run_files("20300101T000000Z-00000001", status=status)
    if kind == "cpu":
        name = next(name for name in files if ".samples" not in name)
        record = json.loads(gzip.decompress(files[name]))
        record["environment"]["kind"] = environment.kind
        files[name] = gzip.compress(json.dumps(record).encode())
    tail = "x\nkernelbench: the device is gone\n"
    pool = ObedientPool(["a"], lambda _, order: report_of(order, code=code, files=files, tail=tail))
    sweep = Sweep(tmp_path, pool, gpu=True)
    engine = sweep.run([piece("1", on_gpu=True)])
    assert [each.why for each in sweep.faults] == ([fault] if fault else [])
    assert engine.done == (0 if fault else 1)
    saved = [*tmp_path.glob("*/runs/*")]
    assert bool(saved) == (not fault), "a piece that is not done leaves no record"


def test_progress_has_an_estimate(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, ObedientPool(["a", "b"], lambda _, order: report_of(order)))
    sweep.run([piece(f"{i}") for i in range(41)])
    assert any("of 41 pieces" in text and "s left" in text for text in sweep.told)
    assert sweep.eta.seconds_left(1) == 0


def test_an_outcome_that_cannot_be_written_ends_it(tmp_path: Path) -> None:
    pool = ObedientPool(["a"], lambda _, order: report_of(order))
    sweep = Sweep(tmp_path, pool)
    (tmp_path / "campaigns").write_text("a file")
    engine: Engine = sweep.engine
    with pytest.raises(KernelbenchError, match="cannot write"):
        engine.run(iter(FINE))


def test_mutants_are_to_be_found(tmp_path: Path) -> None:
    """The answers are of earlier sweeps, too, each once; what was never built is no answer."""

    def files_of(order: Order, built: bool) -> dict[str, bytes]:
        document = {"steps": [{"binary_sha": "ab" if built else None, "rows": [{"status": "x"}]}]}
        return {f"cpu/checks/{order['key']}.json.gz": gzip.compress(json.dumps(document).encode())}

    def report(_worker: str, order: Order) -> dict[str, Any]:
        word = order["arguments"][0]
        code = {"found": 3, "missed": 0, "broken": 3}[word]
        return report_of(order, code=code, files=files_of(order, word != "broken"))

    pieces = [
        replace(piece(name, word), mutant=True)
        for name, word in (("1", "found"), ("2", "missed"), ("3", "broken"), ("4", "found"))
    ]
    for _ in range(2):
        engine = Sweep(tmp_path, ObedientPool(["a", "b"], report)).run(pieces)
        assert engine.answers.wrong == []
        assert [*dict.fromkeys(engine.answers.found)] == [
            "kernelbench found 1", "kernelbench found 4"
        ]  # fmt: skip
        assert engine.answers.missed == ["kernelbench missed 2"]
        assert [each.why for each in engine.missing] == ["node: the mutant cannot be built"]
