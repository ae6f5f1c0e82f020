"""``kernelbench check`` and ``run`` on the emulator, with small steps that have one fault each."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, environment_of, launch, read_document

from kernelbench.base.errors import RecordError
from kernelbench.build import compiler
from kernelbench.checks import replay, report
from kernelbench.cli import invoke as run_cli

pytestmark = pytest.mark.skipif(compiler.host_compiler() is None, reason="no C++ compiler")

STEP_TOML = """name = "{name}"
title = "{name}"
technique = "none"
hypothesis = "none"
arch = "sm_100a"
status = "works"
[limits]
k_multiple = 64
"""

# One CTA computes a row of C: each thread some columns, after a thread has announced the row.
SOURCE = """#include "group_gemm.cuh"
#include "ptx/cvt.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/warp.cuh"
#include "wait.cuh"

namespace kb::step {

enum Fault : int { kRight, kHang, kRace, kWrong, kCrash, kRecursion, kOutside, kLoop, kLimit };
constexpr Fault kFault = FAULT;
constexpr uint32_t kThreads = 64;

struct SharedStorage {
  uint32_t pad[3];
  uint32_t row;
  Mbarrier announced[2];
};

struct Operand {
  const uint8_t* codes;
  const uint8_t* scales;
};

KB_DEVICE float decode(const Operand& from, uint32_t row, uint32_t i, uint32_t k) {
  const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const uint8_t pair = from.codes[row * (k / 2) + i / 2];
  const uint8_t code = i % 2 == 0 ? pair & 15 : pair >> 4;
  const uint32_t block = i / 16;
  const uint8_t scale = from.scales[(row / 128 * (k / 64) + block / 4) * 512 + row % 32 * 16 +
                                    row % 128 / 32 * 4 + block % 4];
  const float unit = scale >> 3 == 0 ? 1.0f / 512 : float(1 << (scale >> 3)) / 1024;
  const float magnitude = unit * float((scale & 7) + (scale >> 3 == 0 ? 0 : 8));
  return (code & 8 ? -values[code & 7] : values[code & 7]) * magnitude;
}

__attribute__((noinline)) uint32_t deep(uint32_t n) {
  volatile uint32_t fill[64] = {n};
  return deep(n + 1) + fill[n % 64];
}

KB_DEVICE void announce_warp(SharedStorage& shared) {
  if (ptx::thread_index() != 0) return;
  shared.row = ptx::cta_index().x;
  if (kFault != kHang) {
    ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.announced[1]);
  }
}

KB_GLOBAL void rows(Operand a, Operand b, f16* c, uint32_t n, uint32_t k) {
  SharedStorage& shared = shared_storage<SharedStorage>();
  if (ptx::thread_index() == 0) ptx::mbarrier_init(&shared.announced[1], 1);
  ptx::bar_sync();
  announce_warp(shared);
  if (kFault != kRace) mbarrier_wait_parity(&shared.announced[1], 0);
  const uint32_t row = shared.row;
  if (kFault == kCrash) *reinterpret_cast<volatile int*>(uintptr_t{64}) = 1;
  if (kFault == kRecursion) c[0].bits = uint16_t(deep(n));
  if (kFault == kLoop) {
    for (volatile int forever = 1; forever != 0;) {
    }
  }
  for (uint32_t j = ptx::thread_index(); j < n; j += kThreads) {
    float sum = kFault == kWrong ? 1 : 0;
    for (uint32_t i = 0; i < k; ++i) sum += decode(a, row, i, k) * decode(b, j, i, k);
    const uint32_t past = kFault == kOutside && j == n - 1 ? 1 : 0;
    c[row * n + j + past] = ptx::cvt_rn_f16x2_f32(sum, 0).lo;
  }
  if (n == 12345) shared.pad[0] = 1;
}

}  // namespace kb::step

KB_EXPORT int kb_run(const kb::GroupGemmCall* call, char* message, size_t size) {
  using namespace kb::step;
  return kb::guarded(message, size, [&] {
    if (kFault == kLimit) throw kb::InvalidCall("takes no call");
    for (int g = 0; g < call->group_count; ++g) {
      const Operand a{reinterpret_cast<uint8_t*>(call->a[g]),
                      reinterpret_cast<uint8_t*>(call->sfa[g])};
      const Operand b{reinterpret_cast<uint8_t*>(call->b[g]),
                      reinterpret_cast<uint8_t*>(call->sfb[g])};
      const auto m = static_cast<uint32_t>(call->m[g]);
      kb::rt::launch(rows, {.grid = {m, 1, 1}, .threads = kThreads,
                            .shared_bytes = sizeof(SharedStorage), .stream = {call->stream}},
                     a, b, reinterpret_cast<kb::f16*>(call->c[g]), call->n[g], call->k[g]);
    }
  });
}

KB_EXPORT void kb_describe(kb::Description* out) {
  *out = {.threads = kb::step::kThreads};
}
"""

FAULTS = {
    "right": "kRight",
    "hangs": "kHang",
    "races": "kRace",
    "wrong_values": "kWrong",
    "crashes": "kCrash",
    "recurses": "kRecursion",
    "outside": "kOutside",
    "limited": "kLimit",
}


def add_step(root: Path, name: str, source: str) -> None:
    folder = root / "tiny" / name
    folder.mkdir()
    (folder / "step.toml").write_text(STEP_TOML.format(name=name))
    (folder / "launch.cu").write_text(source)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lineage of compiled steps that use the building blocks of this checkout."""
    root = tmp_path_factory.mktemp("compiled")
    (root / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["tiny"]\n')
    (root / "shapes.yaml").write_text(
        "group_gemm:\n  u1: {m: [3, 1], n: 8, k: 64}\n  two: {m: 2, n: 16, k: 128}\n"
    )
    (root / "kernels").symlink_to(ROOT / "kernels")
    (root / "tiny").mkdir()
    (root / "tiny" / "lineage.toml").write_text(
        'name = "tiny"\ntitle = "Compiled steps"\n'
        'problem = "kernelbench.problems.group_gemm:PROBLEM"\n'
    )
    for name, fault in FAULTS.items():
        add_step(root, name, SOURCE.replace("FAULT;", f"{fault};"))
    add_step(root, "refused", "int kb_run( {\n")
    return root


@pytest.fixture(scope="module")
def checked(project: Path) -> tuple[Any, str]:
    """The record of checking every step, and what was printed."""
    outcome = launch(
        "check", "tiny", "--schedules", 3, "--sms", "1,2", "--seed", 5, "--json", "-",
        root=project, timeout=280,
    )  # fmt: skip
    assert outcome.code == 3, outcome.err
    return read_document(outcome.out), outcome.err


def step_of(record: Any, name: str) -> Any:
    return next(step for step in record["steps"] if step["step"] == name)


def row_of(record: Any, name: str) -> Any:
    (row,) = step_of(record, name)["rows"]
    return row


def test_a_right_step_is_clean(checked: tuple[Any, str]) -> None:
    record, printed = checked
    row = row_of(record, "right")
    assert (row["status"], row["schedules"], row["asked"]) == ("clean", 6, 6)
    assert row["seen"] == []
    assert record["schema"] == "kernelbench.check/1"
    assert record["complete"] is True
    assert len(step_of(record, "right")["binary_sha"]) == 64
    assert "seed 5" in printed


@pytest.mark.parametrize(
    ("name", "status", "kind", "role"),
    [
        ("hangs", "hang", "hang", ""),
        ("races", "finding", "race", ""),
        ("crashes", "finding", "out-of-bounds", "rows"),
        ("recurses", "finding", "crash", ""),
        ("outside", "finding", "out-of-bounds", "rows"),
    ],
)
def test_a_fault_is_found(
    checked: tuple[Any, str], name: str, status: str, kind: str, role: str
) -> None:
    record, printed = checked
    row = row_of(record, name)
    assert row["status"] == status
    kinds = [seen["finding"]["kind"] for seen in row["seen"]]
    assert kind in kinds
    seen = row["seen"][kinds.index(kind)]
    assert (seen["sms"], seen["index"]) == (1, 0)
    if role:
        assert seen["finding"]["access"]["role"] == role
        assert seen["finding"]["access"]["where"].startswith(f"{name}/launch.cu:")
        assert seen["finding"]["access"]["where"] in printed


def test_a_hang_names_the_barrier_and_what_would_end_it(checked: tuple[Any, str]) -> None:
    record, printed = checked
    (seen,) = row_of(record, "hangs")["seen"]
    waits = [wait for wait in seen["waits"] if wait["what"] == "announced[1]"]
    assert waits
    assert waits[0]["warps"] == [0, 1]
    assert waits[0]["needs"] == "1 more arrival"
    line = SOURCE[: SOURCE.index("if (kFault != kRace)")].count("\n") + 1
    assert waits[0]["access"]["where"] == f"hangs/launch.cu:{line}"
    assert "waits for announced[1]" in printed


def test_both_sides_of_a_race_are_named(checked: tuple[Any, str]) -> None:
    record, _ = checked
    race = next(s["finding"] for s in row_of(record, "races")["seen"])
    lines = {race["access"]["where"], race["other"]["where"]}
    text = SOURCE.splitlines()
    written, read = (
        next(i for i, line in enumerate(text, 1) if part in line)
        for part in ("shared.row = ", "= shared.row")
    )
    assert lines == {f"races/launch.cu:{written}", f"races/launch.cu:{read}"}
    assert "announce_warp" in {race["access"]["role"], race["other"]["role"]}
    assert race["object"] == "row"


def test_wrong_values_are_wrong(checked: tuple[Any, str]) -> None:
    row = row_of(checked[0], "wrong_values")
    assert (row["status"], row["schedules"]) == ("wrong", 1)
    assert "wrong: " in row["reason"]


def test_limits_and_compile_errors(checked: tuple[Any, str]) -> None:
    record, printed = checked
    limited = row_of(record, "limited")
    assert (limited["status"], limited["reason"]) == ("skipped", "skipped: takes no call")
    refused = row_of(record, "refused")
    assert refused["status"] == "fault"
    assert "error" in refused["reason"]
    assert "launch.cu:1" in refused["reason"]
    assert "\n" not in refused["reason"]
    assert "Traceback" not in printed


def test_branches_that_no_schedule_took(checked: tuple[Any, str]) -> None:
    record, printed = checked
    step = step_of(record, "right")
    if step["coverage"] is None:
        pytest.skip(step["note"])
    missed = {line["file"]: line for line in step["coverage"]["missed"] if "12345" in line["text"]}
    (line,) = missed.values()
    assert line["file"] == "right/launch.cu"
    assert (line["taken"], line["sides"]) == (1, 2)
    assert line["executions"] > 0
    assert "if (n == 12345)" in printed
    assert not any("backend" in line["file"] for line in step["coverage"]["missed"])


def test_a_seed_repeats_a_finding(project: Path) -> None:
    seen = []
    for schedules, sms in ((2, "2"), (1, "2,1")):
        outcome = launch(
            "check", "races", "--schedules", schedules, "--sms", sms, "--seed", 3, "--json", "-",
            root=project,
        )  # fmt: skip
        (row,) = read_document(outcome.out)["steps"][0]["rows"]
        seen.append([s["finding"]["access"] for s in row["seen"] if s["sms"] == 2])
    assert seen[0]
    assert seen[0] == seen[1]


def test_a_finding_is_allowed_by_its_identity(checked: tuple[Any, str], project: Path) -> None:
    record, printed = checked
    first = [s for s in row_of(record, "races")["seen"] if (s["sms"], s["index"]) == (1, 0)]
    identities = {seen["finding"]["identity"] for seen in first}
    assert len(identities) == 2
    # What is part of another finding has its own in brackets.
    ways = [(f"= identity: {each}" in printed, f"({each})" in printed) for each in identities]
    assert all(map(any, ways)), printed
    folder = project / "tiny" / "allowed"
    if not folder.exists():
        add_step(project, "allowed", "// one more line\n" + SOURCE.replace("FAULT;", "kRace;"))
    allowances = [
        f'[[allowance]]\nwhat = "{each}"\nreason = "r1"\n' for each in sorted(identities)[1:]
    ]
    (folder / "step.toml").write_text(STEP_TOML.format(name="allowed") + "".join(allowances))
    outcome = launch(
        "check", "allowed", "--schedules", 1, "--sms", 1, "--no-sequence", "--seed", 5,
        "--allow", f"{min(identities)}=r2", "--allow", "race-0123456789=gone", root=project,
    )  # fmt: skip
    assert outcome.code == 0, outcome.out
    assert "= allowed: r2" in outcome.out
    assert "--allow race-0123456789 matched nothing" in outcome.out
    assert f"--allow {min(identities)}" not in outcome.out


def test_an_allowance_cannot_make_a_hang_right(checked: tuple[Any, str], project: Path) -> None:
    (seen,) = row_of(checked[0], "hangs")["seen"]
    outcome = launch(
        "check", "hangs", "--schedules", 1, "--sms", 1, "--allow",
        f"{seen['finding']['identity']}=why not", root=project,
    )  # fmt: skip
    assert outcome.code == 3
    assert "why not" in outcome.out


def test_a_check_is_saved_shown_and_repeated(project: Path) -> None:
    """What a budget of time had ended is repeated by what was run, whatever the time."""
    root = project.parent / f"{project.name}-saved"
    shutil.copytree(project, root, symlinks=True, ignore=shutil.ignore_patterns("results"))
    outcome = launch(
        "check", "right", "races", "--budget", "0.2", "--sms", "1,2", "--shape", "u1", root=root
    )
    (saved,) = (root / "results").glob("cpu-*/checks/*.json.gz")
    assert outcome.code == 3
    assert f"saved {saved}" in outcome.out
    record = report.read_check(saved)
    right, races = (step.rows[0] for step in record.steps)
    assert max(1, right.rounds["gpu-mode"] * 2) == right.schedules
    again = launch("replay", saved, "--json", "-", root=root)
    assert again.code == 3
    assert "repeated: every row came out as recorded" in again.err
    rows = [step["rows"][0] for step in read_document(again.out)["steps"]]
    assert [row["schedules"] for row in rows] == [right.schedules, races.schedules]
    assert len(list((root / "results").glob("cpu-*/checks/*"))) == 1

    plural = "s" if right.schedules > 1 else ""
    clean = f"right checked: clean, {right.schedules:,} schedule{plural}, 1 shape, "
    assert clean in launch("show", "right", root=root).out
    tree = launch("lineage", "tiny", root=root).out
    assert clean in tree
    assert f"races checked: finding ({races.seen[0].finding.identity}" in tree

    (root / "tiny" / "races" / "launch.cu").write_text(SOURCE.replace("FAULT;", "kRight;"))
    refused = launch("replay", saved, root=root)
    assert refused.code == 2
    assert "races has changed since that check" in refused.err


def test_a_finding_has_a_schedule_that_replays(project: Path, tmp_path: Path) -> None:
    if not (project / "tiny" / "replayed").exists():
        add_step(project, "replayed", SOURCE.replace("FAULT;", "kRace;"))
    outcome = launch(
        "check", "replayed", "--schedules", 1, "--sms", 1, "--no-sequence", "--seed", 5,
        "--shape", "u1", "--no-save", "--minimize", tmp_path / "m", root=project,
    )  # fmt: skip
    assert outcome.code == 3
    files = {file.name: replay.read_schedule(file) for file in (tmp_path / "m").iterdir()}
    (name,) = (name for name in files if name.startswith("replayed-u1-race-"))
    file = files[name]
    assert name == f"replayed-u1-{file.identity}.json"
    assert file.decisions is not None
    assert len(file.decisions) <= file.kept <= file.made
    assert f"{file.made:,} decisions, {file.kept:,} of them not usual → " in outcome.out
    path = tmp_path / "m" / name
    again = launch("replay", path, "--times", 10, root=project)
    assert again.code == 3
    assert f"→ {file.identity} in 10 of 10: race: " in again.out
    assert f"identity: {file.identity}" in again.out

    launch_file = project / "tiny" / "replayed" / "launch.cu"
    launch_file.write_text(SOURCE.replace("FAULT;", "kRight;"))
    changed = launch("replay", path, root=project)
    assert changed.code == 2
    assert "it has changed since, and its schedules with it" in changed.err
    path.write_text("{}")
    with pytest.raises(RecordError, match="is not a schedule of check --minimize"):
        replay.read_schedule(path)
    assert run_cli(["replay", str(path)]) == 5


def test_run_has_rows_but_no_times(project: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    outcome = launch(
        "run", "right", "hangs", "crashes", "limited", "wrong_values", "--executor", "emulator",
        "--shape", "u1", "--inputs", "gpu-mode", "--sms", 3, "--no-save", "--json", file,
        root=project,
    )  # fmt: skip
    assert outcome.code == 3
    record = json.loads(file.read_text())
    rows = {row["step"]: row for row in record["results"]}
    assert {name: row["status"] for name, row in rows.items()} == {
        "right": "pass", "hangs": "hang", "crashes": "fault", "limited": "skipped",
        "wrong_values": "wrong",
    }  # fmt: skip
    assert all(row["call_us"] is None and row["device_us"] is None for row in rows.values())
    assert all(row["executor"] == "emulator" for row in rows.values())
    assert rows["right"]["binary_sha"]
    assert "announced[1]" in rows["hangs"]["reason"]
    assert record["extra"]["emulation"] == {"sms": 3, "mma_rounding": "fp32"}
    assert "3 SMs emulated" in outcome.out
    assert "not timed" in outcome.out
    assert "waits for announced[1]" in outcome.err


@pytest.mark.parametrize("command", ["check", "run"])
def test_an_endless_loop_is_ended_where_it_is(project: Path, command: str) -> None:
    if not (project / "tiny" / "loops").exists():
        add_step(project, "loops", SOURCE.replace("FAULT;", "kLoop;"))
    options = ["--schedules", 1] if command == "check" else ["--executor", "emulator", "--no-save"]
    outcome = launch(
        command, "loops", *options, "--shape", "u1", "--sms", 1, "--timeout", 1, "--json", "-",
        root=project,
    )  # fmt: skip
    assert outcome.code == 3
    record = read_document(outcome.out)
    rows = record["steps"][0]["rows"] if command == "check" else record["results"]
    assert {row["status"] for row in rows} == {"hang"}
    assert "the kernel has not ended after 1 s: " in rows[0]["reason"]
    line = 1 + next(i for i, text in enumerate(SOURCE.splitlines()) if "forever" in text)
    assert f"loops/launch.cu:{line}" in rows[0]["reason"]


@pytest.mark.parametrize("jobs", [pytest.param(1, marks=pytest.mark.long), 2])
def test_ctrl_c_keeps_what_was_done(project: Path, tmp_path: Path, jobs: int) -> None:
    # Built before: what an empty cache and a busy machine take is not what is interrupted.
    assert launch("check", "right", "--schedules", 1, "--sms", 2, root=project).code == 0
    file = tmp_path / "check.json"
    process = subprocess.Popen(
        [
            sys.executable, "-m", "kernelbench", "check", "right", "--schedules", "1000000",
            "--sms", "2", "--jobs", str(jobs), "--json", str(file),
        ],
        stdout=subprocess.PIPE, text=True, env=environment_of(project),
    )  # fmt: skip
    assert process.stdout is not None
    assert "1000000 schedules each" in process.stdout.readline()
    time.sleep(5)
    process.send_signal(signal.SIGINT)
    printed = process.communicate(timeout=60)[0]
    assert process.returncode == 130
    assert "interrupted" in printed
    record = json.loads(file.read_text())
    assert record["complete"] is False
    assert row_of(record, "right")["status"] == "interrupted"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["v00"], "v00 is a Python step: check emulates compiled, PTX, Triton and CUDA steps"),
        (["v00", "--sms", "0"], "expected numbers from 1 to"),
        (["v00", "--sms", "1,x"], "expected numbers from 1 to"),
        (["a.cu", "-n", "256"], "'-n'. A program's arguments go after `--`, other flags of nvcc"),
        (["a.cu", "--std=c++20"], "'--std'. A program's arguments go after `--`, other flags"),
        (["a.cu", "-O3"], "other flags of nvcc in --nvcc='…'; see `kernelbench check --help`"),
        (["v00", "--shedules", "3"], "'--schedules'"),
    ],
)
def test_requests_that_cannot_be(
    arguments: list[str], message: str, in_checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["check", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_no_compiler_is_one_line(project: Path, bench: Callable[..., Any], tmp_path: Path) -> None:
    outcome = bench("check", "right", root=project, env={"PATH": str(tmp_path), "CXX": ""})
    assert outcome.code == 5
    assert "no g++ or clang++" in outcome.error
    outcome = bench(
        "run", "right", "--executor", "emulator", root=project,
        env={"PATH": str(tmp_path), "CXX": ""},
    )  # fmt: skip
    assert outcome.code == 5
    assert "no g++ or clang++" in outcome.error


def test_a_cache_that_cannot_be_written_is_one_line(
    project: Path, bench: Callable[..., Any], tmp_path: Path
) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    env = {compiler.CACHE_VARIABLE: str(in_the_way / "cache")}
    outcome = bench("check", "right", root=project, env=env)
    assert outcome.code == 5
    assert "cannot write the cache folder" in outcome.error
