"""``tools/bench.py``: what it measures, interleaved, and what it makes of it; nothing is timed."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT

from kernelbench.build.compiler import host_compiler
from kernelbench.emulator.runtime import runtime_library
from kernelbench.executors.emulated import EMULATOR
from kernelbench.kinds.compiled import common_folder
from kernelbench.project.project_file import project_at
from kernelbench.project.registry import load_lineages


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """The tool as a module."""
    sys.path.insert(0, str(ROOT / "tools"))
    return load("bench")


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def measured(bench: ModuleType, ratio: float, pairs: int = 20) -> tuple[list[str], dict]:
    """The order of the trees and the row of a figure that takes ``ratio`` as long in the second."""
    trees = [bench.Tree(Path("base"), Path("a")), bench.Tree(Path("here"), Path("b"))]
    order: list[str] = []

    def measure(tree: object) -> float:
        order.append(tree.root.name)
        drift = 1 + len(order) / 50
        return drift * (ratio if order[-1] == "here" else 1.0) * (1 + len(order) % 7 / 500)

    figure = bench.Figure("what", measure)
    bench.measure([figure], trees, pairs, seed=3)
    return order, bench._row(figure)


@pytest.mark.parametrize("ratio", [1.0, 1.2])
def test_the_ratio_is_of_interleaved_pairs(bench: ModuleType, ratio: float) -> None:
    order, row = measured(bench, ratio)
    pairs = [tuple(order[i : i + 2]) for i in range(0, len(order), 2)]
    assert len(pairs) == 21, "a warm-up and twenty"
    assert set(pairs) == {("base", "here"), ("here", "base")}
    low, high = row["ratio_ci"]
    assert low < ratio < high
    assert high - low < 0.05
    assert len(row["samples"]) == len(row["base_samples"]) == 20


def test_a_new_program_is_never_in_the_cache(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = []

    def timed(command: list[str], folder: Path, env: dict[str, str], right: set[int]) -> float:
        assert command[-2] == "check" and right == {3}
        assert env["KERNELBENCH_CACHE"] == "cache"
        texts.append((folder / command[-1]).read_text())
        return 1.0

    monkeypatch.setattr(bench, "_timed", timed)
    tree = bench.Tree(ROOT, Path("cache"))
    assert [tree.new_program(), tree.new_program()] == [1.0, 1.0]
    assert texts[0] != texts[1] and all(each.startswith("// A block's sum") for each in texts)


def test_what_fails_is_said_and_the_rest_goes_on(bench: ModuleType) -> None:
    def fails(tree: object) -> float:
        raise bench.BenchError("kernelbench show: no such record")

    figures = [bench.Figure("bad", fails), bench.Figure("good", lambda tree: 1.5)]
    bench.measure(figures, [bench.Tree(Path("here"), Path("c"))], 3, seed=1)
    rows = [bench._row(figure) for figure in figures]
    assert rows[0] == {"name": "bad", "failed": "kernelbench show: no such record"}
    assert rows[1]["seconds"] == 1.5


def test_ctrl_c_keeps_whole_repetitions(bench: ModuleType) -> None:
    calls = 0

    def measure(_tree: object) -> float:
        nonlocal calls
        calls += 1
        if calls == 12:
            raise KeyboardInterrupt
        return 1.0

    first, second = bench.Figure("a", measure), bench.Figure("b", measure)
    trees = [bench.Tree(Path("here"), Path("a"))]
    assert bench.measure([first, second], trees, 20, seed=3) == 4
    assert first.seconds == second.seconds == [[1.0] * 4]
    calls = 10
    with pytest.raises(KeyboardInterrupt):
        bench.measure([first, second], trees, 20, seed=3)


@pytest.mark.parametrize("against", [None, "HEAD"])
def test_the_table(bench: ModuleType, against: str | None) -> None:
    _, row = measured(bench, 1.5)
    if against is None:
        row = {name: row[name] for name in ("name", "seconds", "samples")}
    record = bench.document([], 20, None) | {"figures": [row, {"name": "bad", "failed": "no"}]}
    record |= {"against": "0" * 40 if against else None}
    text = bench.markdown([json.loads(json.dumps(record))])
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1
    assert ("| 1.4" in text) == bool(against)


def test_figures_of_other_calls_stay(bench: ModuleType, tmp_path: Path) -> None:
    """In a file as the tool writes it, and in one as it was at first."""

    def record(command: str, *names: str) -> dict:
        rows = [{"name": name, "seconds": 1.0, "samples": [1.0]} for name in names]
        return bench.document([], 1, None) | {"command": command, "figures": rows}

    first = record("first", "list", "show")
    file = tmp_path / "bench.json"
    assert bench.merged(file, first) == [first]
    for text in ({"schema": bench.SCHEMA, "measured": [first]},
                 {"schema": "kernelbench.bench/1", **first}):  # fmt: skip
        file.write_text(json.dumps(text))
        second = record("second", "show", "run")
        measured = bench.merged(file, second)
        found = [(each["command"], [row["name"] for row in each["figures"]]) for each in measured]
        assert found == [("second", ["show", "run"]), ("first", ["list"])]
        assert bench.markdown(measured).count("medians of 1:") == 2
        file.write_text(json.dumps({"schema": bench.SCHEMA, "measured": measured}))
        assert bench.merged(file, record("third", "list", "show", "run"))[1:] == []


@pytest.mark.skipif(host_compiler() is None, reason="no C++ compiler")
def test_a_call_is_emulated_as_asked(bench: ModuleType, tmp_path: Path) -> None:
    """With the libraries of a cache, plain and for the checker; the answer is one of seconds."""
    step = load_lineages(project_at(ROOT)).get("v07")
    found = {
        "v07 (emulator)": EMULATOR.library(step, check=False),
        "v07 (emulator, checked)": EMULATOR.library(step, check=True),
        "emulator runtime": runtime_library(common_folder(step)),
    }
    # The machine's cache may have other checkouts' by these names, and these by a copy's name.
    cache = tmp_path / "cache"
    for name, library in found.items():
        folder = cache / "builds" / library.parent.name
        folder.mkdir(parents=True)
        (folder / "lib.so").symlink_to(library)
        (folder / "meta.json").write_text(json.dumps({"name": name}))
    tree, empty = bench.Tree(ROOT, cache), bench.Tree(ROOT, tmp_path)
    try:
        assert all(tree.call("v07", "u0", check) > 0 for check in (False, True, False))
        with pytest.raises(bench.BenchError, match=r"emulating v07 on u99: .*u99"):
            tree.call("v07", "u99", False)
        with pytest.raises(bench.BenchError, match="nothing called"):
            empty.call("v07", "u0", False)
        assert empty.emulation is not None
        empty.emulation.kill()
        empty.emulation.wait()
        with pytest.raises(bench.BenchError, match="the process is gone"):
            empty.call("v07", "u0", False)
    finally:
        tree.close()
        empty.close()


def test_arguments(bench: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in ((["--only", "speed"], "speed: expected"), (["--pairs", "0"], "least")):
        with pytest.raises(SystemExit):
            bench.main(arguments)
        assert said in capsys.readouterr().err


def test_a_revision_that_is_not_there(
    bench: ModuleType, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert bench.main(["--only", "list", "--against", "no-such", "--out", str(tmp_path)]) == 5
    assert "bench: git worktree" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
