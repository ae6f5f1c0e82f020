"""``kernelbench cache``: shows what is there, clears only what was asked for."""

from __future__ import annotations

import json
import os
import time

import pytest

from kernelbench.base.errors import ExitCode
from kernelbench.build import cache_listing
from kernelbench.build import compiler as build
from kernelbench.cli import invoke as run

pytestmark = pytest.mark.skipif(build.host_compiler() is None, reason="no C++ compiler")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache with one fresh and one old artefact."""
    monkeypatch.setenv(build.CACHE_VARIABLE, str(tmp_path / "cache"))
    source = tmp_path / "one.cpp"
    source.write_text('extern "C" int one() { return 1; }\n')
    compiler = build.host_compiler()
    paths = [
        build.compile_shared(name, [source], [f"-DX={i}"], compiler=compiler)
        for i, name in enumerate(("fresh", "old"))
    ]
    long_ago = time.time() - 40 * 86400
    os.utime(paths[1].parent / "meta.json", (long_ago, long_ago))
    return tmp_path / "cache"


def names():
    return [entry.name for entry in cache_listing.cache_entries()]


def test_show(cache, capsys):
    assert run(["cache"]) == ExitCode.PASS
    out = capsys.readouterr().out
    assert out.startswith(f"{cache}: 2 artefact(s)")
    assert out.index("fresh") < out.index("old")
    assert run(["cache", "--json", "-"]) == ExitCode.PASS
    record = json.loads(capsys.readouterr().out)
    assert record["schema"] == "kernelbench.cache/1"
    assert [entry["name"] for entry in record["entries"]] == ["fresh", "old"]
    assert record["bytes"] == sum(entry["bytes"] for entry in record["entries"]) > 0


def test_empty_cache(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(build.CACHE_VARIABLE, str(tmp_path / "none"))
    assert run(["cache"]) == ExitCode.PASS
    assert "0 artefact(s), 0.0 MB" in capsys.readouterr().out
    assert run(["cache", "clear", "--yes"]) == ExitCode.PASS
    assert capsys.readouterr().out == "removed 0 artefact(s), 0.0 MB\n"


def test_clear_old_ones(cache, capsys):
    assert run(["cache", "clear", "--older-than", "30", "--yes"]) == ExitCode.PASS
    assert names() == ["fresh"]
    assert capsys.readouterr().out.startswith("removed 1 artefact(s)")


def test_clear_all(cache):
    assert run(["cache", "clear", "--all", "--yes"]) == ExitCode.PASS
    assert names() == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["clear"], "give --yes"),
        (["clear", "--all", "--older-than", "3", "--yes"], "exclude each other"),
        (["clear", "--older-than", "-1", "--yes"], "-1"),
        (["--json", "-", "clear", "--yes"], "has no JSON"),
    ],
)
def test_refusals_remove_nothing(cache, capsys, arguments, said):
    assert run(["cache", *arguments]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
    assert names() == ["fresh", "old"]
