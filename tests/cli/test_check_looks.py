"""What ``check`` makes of a finding beside its report: a trace, the state, SARIF, gdb."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conftest import ROOT, Outcome, environment_of, launch
from test_cli_check import SOURCE, add_step

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.checks.debugger import command_for
from kernelbench.checks.replay import read_schedule
from kernelbench.machine.toolchain import emulator_compiler

pytestmark = pytest.mark.skipif(emulator_compiler() is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A project after one check with everything that can be asked of it."""
    root = tmp_path_factory.mktemp("looks")
    (root / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["tiny"]\n')
    (root / "shapes.yaml").write_text("group_gemm:\n  u1: {m: [3, 1], n: 8, k: 64}\n")
    (root / "kernels").symlink_to(ROOT / "kernels")
    (root / "tiny").mkdir()
    (root / "tiny" / "lineage.toml").write_text(
        'name = "tiny"\ntitle = "t"\nproblem = "kernelbench.problems.group_gemm:PROBLEM"\n'
    )
    for name, fault in {"hangs": "kHang", "races": "kRace", "wrong_values": "kWrong"}.items():
        add_step(root, name, SOURCE.replace("FAULT;", f"{fault};"))
    outcome = launch(
        "check", "hangs", "races", "wrong_values", "--schedules", 1, "--sms", 1, "--seed", 5,
        "--no-sequence", "--no-save", "--trace", root / "t.json", "--at", "--sarif",
        root / "s.sarif", "--minimize", root / "m", root=root,
    )  # fmt: skip
    assert outcome.code == 3, outcome.err
    return root, outcome


_NUMBER = {"type": "integer", "minimum": 0}
_PLACE = {"pid": _NUMBER, "tid": _NUMBER, "ts": _NUMBER, "name": {"type": "string"}}
#: Of the Chrome trace-event format what is used: by phase, the fields that it asks for.
_PHASES = {
    "M": {"name": {"enum": ["process_name", "thread_name"]}, "args": {"required": ["name"]}},
    "X": {**_PLACE, "dur": {"type": "integer", "minimum": 1}},
    "b": {**_PLACE, "id": _NUMBER, "cat": {"type": "string"}},
    "e": {**_PLACE, "id": _NUMBER, "cat": {"type": "string"}},
    "C": {**_PLACE, "args": {"additionalProperties": {"type": "number"}, "minProperties": 1}},
    "i": {**_PLACE, "s": {"enum": ["g", "p", "t"]}},
}
TRACE_SCHEMA = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {
        "traceEvents": {
            "type": "array",
            "items": {
                "oneOf": [
                    {
                        "properties": {"ph": {"const": phase}, **fields},
                        "required": sorted({"ph", "pid", *fields}),
                    }
                    for phase, fields in _PHASES.items()
                ]
            },
        }
    },
}


def test_the_trace_is_one(looked: tuple[Path, Outcome]) -> None:
    document = json.loads((looked[0] / "t.json").read_text())
    jsonschema.validate(document, TRACE_SCHEMA)
    events = document["traceEvents"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"traceEvents": [events[-1] | {"ph": "Q"}]}, TRACE_SCHEMA)
    tracks: dict[tuple[int, int], int] = {}
    for each in sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"]):
        track = each["pid"], each["tid"]
        assert each["ts"] >= tracks.get(track, 0), "slices of a warp do not overlap"
        tracks[track] = each["ts"] + each["dur"]
    assert {warp for _, warp in tracks} == {0, 1}
    begun = sorted(each["id"] for each in events if each["ph"] == "b")
    assert begun == sorted(each["id"] for each in events if each["ph"] == "e")


def test_the_trace_shows_the_hang(looked: tuple[Path, Outcome]) -> None:
    events = json.loads((looked[0] / "t.json").read_text())["traceEvents"]
    (finding,) = (each for each in events if each["ph"] == "i")
    assert finding["name"].startswith("hang: ")
    waits = [
        each for each in events if each.get("cat") == "wait" and "announced[1]" in each["name"]
    ]
    assert max(each["ts"] + each["dur"] for each in waits) >= finding["ts"]
    counters = [each for each in events if each["ph"] == "C" and each["name"] == "announced[1]"]
    assert counters[-1]["args"] == {"phases completed": 0, "arrivals pending": 1}


def test_the_state_is_what_a_debugger_would_say(looked: tuple[Path, Outcome]) -> None:
    out = looked[1].out
    said = out[out.index("hangs u1: at hang-") :]
    assert "announced[1]  0 completed, phase parity 0, 1 pending" in said
    line = SOURCE[: SOURCE.index("if (kFault != kRace)")].count("\n") + 1
    assert f"hangs/launch.cu:{line}: waits for announced[1] (parity 0)" in said
    assert "last of warp 1 (cluster 0, CTA 0 of it), newest first" in said


_TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
_LOCATION = {
    "type": "object",
    "required": ["physicalLocation"],
    "properties": {
        "message": _TEXT,
        "physicalLocation": {
            "required": ["artifactLocation"],
            "properties": {
                "artifactLocation": {
                    "required": ["uri"],
                    "properties": {"uri": {"type": "string", "pattern": "^[^/]"}},
                },
                "region": {
                    "required": ["startLine"],
                    "properties": {"startLine": {"type": "integer", "minimum": 1}},
                },
            },
        },
    },
}
#: Of SARIF 2.1.0 what is used, and what code scanning asks for.
SARIF_SCHEMA = {
    "type": "object",
    "required": ["version", "runs", "$schema"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "minItems": 1,
            "items": {
                "required": ["tool", "results"],
                "properties": {
                    "tool": {
                        "required": ["driver"],
                        "properties": {
                            "driver": {
                                "required": ["name", "rules"],
                                "properties": {
                                    "rules": {"items": {"required": ["id", "shortDescription"]}}
                                },
                            }
                        },
                    },
                    "results": {
                        "items": {
                            "required": ["ruleId", "message", "locations", "partialFingerprints"],
                            "additionalProperties": False,
                            "properties": {
                                "ruleId": {"type": "string"},
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": _TEXT,
                                "locations": {"minItems": 1, "items": _LOCATION},
                                "relatedLocations": {"items": _LOCATION},
                                "partialFingerprints": {"additionalProperties": {"type": "string"}},
                                "suppressions": {
                                    "items": {
                                        "required": ["kind"],
                                        "properties": {"kind": {"enum": ["inSource", "external"]}},
                                    }
                                },
                            },
                        }
                    },
                },
            },
        },
    },
}


def test_the_sarif_is_one_and_names_lines_of_the_repository(looked: tuple[Path, Outcome]) -> None:
    root, _ = looked
    document = json.loads((root / "s.sarif").read_text())
    jsonschema.validate(document, SARIF_SCHEMA)
    (run,) = document["runs"]
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    results: dict[str, Any] = {each["ruleId"]: each for each in run["results"]}
    assert set(results) <= rules
    assert set(results) >= {"hang", "race", "row-wrong"}
    for each in run["results"]:
        for place in (*each["locations"], *each.get("relatedLocations", ())):
            uri = place["physicalLocation"]["artifactLocation"]["uri"]
            assert (root / uri).is_file(), uri
    race = results["race"]
    found = next((root / "m").glob("races-u1-race-*.json"))
    assert race["partialFingerprints"] == {"kernelbench/v1": read_schedule(found).identity}
    places = {
        (region["startLine"], region["startColumn"])
        for place in (*race["locations"], *race["relatedLocations"])
        for region in [place["physicalLocation"]["region"]]
    }
    source = SOURCE.splitlines()
    assert [source[line - 1][column - 1 :].split(" =")[0] for line, column in sorted(places)] == [
        "shared.row", "const uint32_t row",
    ]  # fmt: skip


def test_gdb_stops_at_the_finding(
    looked: tuple[Path, Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that gdb would hold, and its command line; gdb itself where it is."""
    root, _ = looked
    monkeypatch.setenv("KERNELBENCH_ROOT", str(root))
    file = next((root / "m").glob("races-u1-race-*.json"))
    with monkeypatch.context() as path:
        path.setattr("kernelbench.checks.debugger.shutil.which", lambda _name: "/bin/gdb")
        command = command_for(file)
        path.setattr("kernelbench.checks.debugger.shutil.which", lambda _name: None)
        with pytest.raises(EnvironmentProblem, match="gdb is not installed"):
            command_for(file)
    assert command[0] == "/bin/gdb"
    assert "break kb::emu::trace_finding" in command
    assert command[command.index("--args") + 1 :] == [
        sys.executable, "-m", "kernelbench.checks.debugger", str(file),
    ]  # fmt: skip
    if shutil.which("gdb") is None or "CI" in os.environ:
        pytest.skip("no gdb")
    done = subprocess.run(
        [sys.executable, "-m", "kernelbench", "replay", file, "--gdb"],
        input="bt 12\nquit\n", capture_output=True, text=True, timeout=140, check=False,
        env=environment_of(root),
    )  # fmt: skip
    if "ptrace" in done.stdout + done.stderr:
        pytest.skip("gdb may not trace here")
    assert "kb::emu::trace_finding" in done.stdout
    assert "launch.cu:" in done.stdout
