"""``kernelbench check k.ptx``: the launches of a TOML file, and what is said of them."""

from __future__ import annotations

import json
import shutil
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, launch

from kernelbench.base.errors import UsageError
from kernelbench.checks import files
from kernelbench.checks.api import check
from kernelbench.checks.file_kinds import is_file_to_check
from kernelbench.checks.files import FileAsked, answer_to
from kernelbench.checks.rows import CheckRequest, FileOptions
from kernelbench.emulator.assumptions import HOST_IN_TURN
from kernelbench.emulator.diagnostics import cause_of, is_cause, ranks
from kernelbench.emulator.findings import Access, Finding
from kernelbench.machine.toolchain import emulator_compiler
from kernelbench.ptx.hosts.checked_launches import CheckedLaunches
from kernelbench.ptx.hosts.leftovers import Leftovers
from kernelbench.ptx.launch_file import DTYPES, LaunchArray, read_launches
from kernelbench.ptx.report import Launched, PtxFinding, PtxReport

pytestmark = pytest.mark.skipif(emulator_compiler() is None, reason="no C++ compiler")

SMALL = ROOT / "tests" / "ptx_frontend" / "small.ptx"
ADD = """\
[arrays]
a = "float32[100] random"
b = "float32[100] count"
c = "float32[100]"

[[launch]]
kernel = "add"
grid = 4
block = 32
args = ["a", "b", "c", 100]
"""
RACE = """
[[launch]]
kernel = "reverse_without_barrier"
grid = [1]
block = [64]
shared = 256
args = ["n"]
"""
FORMAL = """
[[launch]]
kernel = "all_lanes_write"
grid = 1
block = 32
args = ["n"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with small.ptx."""
    shutil.copy(SMALL, tmp_path / "k.ptx")
    return tmp_path


def write(folder: Path, text: str) -> Path:
    (folder / "k.toml").write_text(text)
    return folder / "k.ptx"


def test_a_clean_file_and_one_with_a_race(folder):
    with_n = ADD.replace("[arrays]\n", '[arrays]\nn = "int32[64] count"\n')
    write(folder, with_n + FORMAL + RACE)
    out = launch(
        "check", folder / "k.ptx", "--schedules", 2, "--seed", 5,
        "--json", folder / "c.json", "--sarif", folder / "c.sarif",
    )  # fmt: skip
    assert out.code == 3, out.err
    for part in (
        "k.ptx  executor emulator, checking", "4 SMs · up to 2 schedules of each launch · seed 5",
        "error[race]: ", "k.ptx:", "other_end (", "grid 1, block 64, 256 bytes shared, 4",
        "= allowed: formal: lanes of a warp store by one instruction, and one of the values stays",
        "→ 2 clean, 1 finding of 3 (",
    ):  # fmt: skip
        assert part in out.out
    report = json.loads((folder / "c.json").read_text())
    rows = {row["shape"]: row for step in report["steps"] for row in step["rows"]}
    assert {name: row["status"] for name, row in rows.items()} == {
        "add": "clean", "all_lanes_write": "clean", "reverse_without_barrier": "finding"
    }  # fmt: skip
    assert all(each["allowed"] for each in rows["all_lanes_write"]["seen"])
    found = [each for each in rows["reverse_without_barrier"]["seen"] if not each["allowed"]]
    sarif = json.loads((folder / "c.sarif").read_text())["runs"][0]["results"]
    uris = {
        each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for each in sarif
        if not each.get("suppressions")
    }
    assert uris == {(folder / "k.ptx").as_posix()}
    # Each by its identity, which lets it be.
    allowed = {each["finding"]["identity"]: "mine" for each in found}
    again = check([str(folder / "k.ptx")], schedules=2, seed=5, allow=allowed)
    assert not again.failures and not again.unmatched


@pytest.mark.parametrize(("layout", "key"), [("json", "steps"), ("sarif", "runs")])
def test_a_document_stands_alone_on_stdout(folder, layout, key):
    write(folder, ADD)
    out = launch("check", folder / "k.ptx", "--schedules", 1, "--output-format", layout)
    assert key in json.loads(out.out)
    assert "→ " in out.err


def test_only_one_document_goes_to_stdout(folder):
    write(folder, ADD)
    out = launch("check", folder / "k.ptx", "--output-format", "sarif", "--json", "-")
    assert out.code == 2 and "JSON and SARIF cannot both go to stdout" in out.error


def test_launches_share_arrays_and_end_at_a_fault(folder):
    file = write(folder, ADD + ADD[ADD.index("\n[[") :].replace('["a"', '["c"') + RACE)
    with pytest.raises(UsageError, match=r"args\[0\]': expected a number or an array, found 'n'"):
        read_launches(file)
    wrong = ADD.replace(", 100]\n", ", 1000]\n").replace("grid = 4", "grid = 32")
    file = write(folder, wrong + ADD[ADD.index("\n[[") :])
    answer = answer_to(FileAsked(str(file), 1, 0, 4, 60.0))
    assert (answer.end, len(answer.launches)) == ("done", 1)
    (found,) = answer.launches[0].report.errors
    assert found.finding.kind == "out-of-bounds" and found.finding.access.where == "k.ptx:54"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "k.toml: no [[launch]]"),
        ("[arrays", "k.toml:1: not valid TOML"),
        (ADD.replace("float32[100] random", "float32"), "'arrays.a': expected 'dtype[extents]'"),
        (
            ADD.replace("float32[100] random", "float31[100]"),
            "float31 is no dtype; those are",
        ),
        (ADD.replace("100] random", "100] noise"), "zeros, random, count or nothing, found"),
        (ADD.replace("grid = 4", ""), "'launch[0].grid': missing"),
        (ADD.replace("grid = 4", "grid = 0"), "expected one to three positive numbers, found 0"),
        (ADD.replace("block", "blocks"), "unknown field 'launch[0].blocks'; did you mean 'block'?"),
        (ADD.replace("block = 32", "shared = -1"), "'launch[0].shared': expected a number"),
        (ADD.replace('kernel = "add"', ""), "'launch[0].kernel': missing"),
    ],
)
def test_a_malformed_file_is_one_line(folder, text, message):
    with pytest.raises(UsageError) as error:
        read_launches(write(folder, text))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ADD.replace('"add"', '"ad"'), "launch[0]: k.ptx has no kernel 'ad'; it has add"),
        (ADD.replace(", 100]\n", "]\n"), "launch[0]: add: 3 arguments for 4 parameters"),
        (ADD.replace("block = 32\n", ""), "launch[0]: add: no block"),
    ],
)
def test_a_launch_that_does_not_fit_says_which(folder, text, message):
    answer = answer_to(FileAsked(str(write(folder, text)), 1, 0, 4, 60.0))
    assert answer.end == "usage" and message in f"{answer.reason}; {answer.hint}"


def test_what_is_unsupported_is_named_with_its_line(folder):
    text = (folder / "k.ptx").read_text().replace("bar.sync", "bar.red.popc.u32", 1)
    (folder / "k.ptx").write_text(text)
    write(folder, ADD)
    assert launch("check", folder / "k.ptx").code == 0
    write(folder, ADD + RACE.replace("_without_barrier", "").replace('"n"', '"a"'))
    out = launch("check", folder / "k.ptx")
    line = 1 + text[: text.index("bar.red")].count("\n")
    assert out.code == 2 and "clean" not in out.out
    assert f"reverse: unsupported PTX: bar.red.popc.u32 at small.cu:19, k.ptx:{line}" in out.error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["k.ptx"], "k.ptx: no k.toml beside it says how to launch it; write one with [arrays]"),
        (["none.ptx"], "none.ptx: there is no such file"),
        (["k.ptx", "--shape", "u1"], "--shape belongs to steps: "),
        (["k.ptx", "--minimize", "m"], "--minimize belongs to steps"),
        (["k.ptx", "--sms", "1,2"], "--sms: one number for a file"),
        (["k.ptx", "v07"], "v07 is a step, and others are files"),
    ],
)
def test_commands_that_cannot_be(folder, arguments, message):
    paths = [folder / each if each.endswith(".ptx") else each for each in arguments]
    out = launch("check", *paths)
    assert out.code == 2
    assert message in out.error


def test_arrays_have_their_first_values(folder):
    arrays = read_launches(write(folder, ADD)).arrays
    a, b, c = (each.made(3) for each in arrays.values())
    assert abs(a).max() == 4 and b.tolist() == list(range(100)) and not c.any()
    assert (arrays["a"].made(3) == a).all() and (arrays["a"].made(4) != a).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_have_the_bits_that_torch_gives_them(dtype):
    """Of more whole numbers than bfloat16 and eight bits have exactly."""
    import torch

    count = 449 if dtype == "float8_e4m3fn" else 2100  # above 448 versions of torch differ
    want = torch.arange(count).to(getattr(torch, dtype)).view(torch.uint8)
    assert LaunchArray(dtype, (count,), "count").made(0).tobytes() == want.numpy().tobytes()
    signed = LaunchArray(dtype, (99,), "random").made(1)
    whole = LaunchArray("int64", (99,), "random").made(1)
    if not dtype.startswith(("bool", "uint")):
        want = torch.from_numpy(whole).to(getattr(torch, dtype)).view(torch.uint8)
        assert signed.tobytes() == want.numpy().tobytes()


def test_which_files_are_checked_as_files(tmp_path):
    script, submission = tmp_path / "a.py", tmp_path / "b.py"
    script.write_text("import triton\n")
    submission.write_text("def custom_kernel(data):\n    return data\n")
    names = [str(script), str(submission), "k.ptx", "v07", str(tmp_path / "none.py")]
    assert [is_file_to_check(name) for name in names] == [True, False, True, False, False]


@pytest.mark.parametrize("end", ["done", "wrong"])
def test_a_script_that_reads_new_memory_is_run_again(monkeypatch, end):
    def answered(asked, _):
        if asked.new_bytes is None:
            return files.FileAnswer((), reads_new=True)
        return files.FileAnswer((), end)

    monkeypatch.setattr(files, "_one_answer", answered)
    answer, _ = files._answer(files.FileAsked("a.py", 1, 1, 4, 1.0), lambda: None)
    assert answer.end == end and (end == "done" or files._NEW_MEMORY in answer.reason)


@pytest.mark.parametrize(("helps", "still"), [("", False), ("y", False), ("y", True)])
def test_a_script_that_fails_is_run_again_with_words_set_back(monkeypatch, helps, still):
    left = Finding("not-reset", "finds", None, None, "y (argument 1)", (0,), 0, 0, -1)
    note = PtxFinding(left, "error", (), (), 1)
    made = Launched("grid 1", 1, PtxReport("add", (), (), 1, 0.0, notes=(note,)))

    def answered(asked, _):
        ends_well = asked.set_back == helps != ""
        launch = made.with_first([note]) if still and ends_well else made
        return files.FileAnswer((launch,), "done" if ends_well else "wrong", left=("x", "y"))

    monkeypatch.setattr(files, "_one_answer", answered)
    answer, _ = files._answer(files.FileAsked("a.py", 1, 1, 4, 1.0), lambda: None)
    assert answer.end == "wrong"
    assert answer.launches[0].report.findings == ((note,) if helps and not still else ())


def _launched(kernel, *kinds):
    found = tuple(
        PtxFinding(Finding(kind, "text", Access(), None, "", (0,), 0, 0, -1), "error", (), (), 1)
        for kind in kinds
    )
    return Launched("grid 1", 1, PtxReport(kernel, found, (), 1, 0.0))


def test_what_is_formal_in_one_launch_may_be_an_error_in_another():
    made = _launched("k", "race")
    (error,) = made.report.findings
    other = replace(error, finding=replace(error.finding, kind="other", identity="other"))
    left = replace(error.finding, identity="left")
    formal = replace(made.report, findings=(replace(error, severity="formal"),))
    wrong = replace(made.report, findings=(other, error))
    request = types.SimpleNamespace(allow={}, sms=[4], schedules=1, max_findings=2)
    noted = replace(formal, findings=(replace(error, severity="formal", finding=left),))
    for reports in ((noted, formal, wrong), (wrong, formal, noted)):
        launches = [replace(made, report=each) for each in reports]
        (row,) = files._rows("a.cu", launches, request)
        assert [each.finding.kind for each in row.seen] == ["other", "race"]
        assert not any(each.allowed for each in row.seen) and row.status == "finding"
        assert row.seen[1].schedules == 2


def test_hangs_come_behind_what_other_launches_have():
    for kinds, order in (
        ([("hang",), (), ("alignment",)], "bca"),
        ([("hang",), (), ()], "abc"),
        ([("race", "hang"), ("hang",), ()], "acb"),
    ):
        launches = CheckedLaunches(1, 1, 4, 1.0)
        launches.made += [_launched(name, *each) for name, each in zip("abc", kinds, strict=True)]
        launches.put_hangs_last()
        assert "".join(each.report.kernel for each in launches.made) == order


def test_rounds_of_a_loop_have_one_cause():
    """Each with an allocation of its own."""
    text = "a load reads allocation {} of a.cu:12 (argument {}) that kernel k writes"
    here, there = Access("", "a.cu:5"), Access("", "a.cu:4")
    one, again, other = (
        Finding("race", text.format(at, of), here, there, "", (0,), 0, 0, 1, identity=f"race-{at}")
        for at, of in ((2, 0), (3, 0), (4, 1))
    )
    assert cause_of(one, ()) == cause_of(again, ()) != cause_of(other, ())


def test_a_copy_that_overtakes_its_readers_is_the_cause_of_early_reads():
    copy, read, other = Access("fetch", "a.cu:5"), Access("", "a.cu:9"), Access("", "a.cu:11")
    early, alone, late = (
        Finding(kind, "", here, there, "", (0,), 0, 0, 1, identity=kind + here.where)
        for kind, here, there in (
            ("early-read", read, copy), ("early-read", other, copy), ("overwrite", copy, read)
        )
    )  # fmt: skip
    beside = [early, late]
    assert cause_of(early, (), beside) == cause_of(late, (), beside) == cause_of(late, ())
    assert is_cause(late, (), beside) and not is_cause(early, (), beside)
    assert is_cause(alone, (), beside) and is_cause(early, (), [early])


def test_an_overwrite_comes_before_the_counts_that_it_upsets():
    late = Finding("overwrite", "", Access("", "k.cu:1"), None, "", (), 0, 0, 0)
    count = Finding("arrival-count", "", Access("", "k.cu:2"), None, "", (), 0, 0, 0, follows=True)
    other = replace(count, follows=False)
    assert sorted((count, late, other), key=lambda each: ranks(each, (late,))) == [
        late, other, count,
    ]  # fmt: skip
    assert ranks(count, ()) == ranks(other, ())


def test_small_tensors_that_launches_leave_changed():
    left, seen, out = Leftovers(), np.zeros(8, np.uint8), np.zeros(1 << 20, np.uint8)
    tensors = {"seen": seen, "out": out}

    def launch(kernel="add"):
        found = [each.object for each in left.meet(kernel, tensors)]
        found_in_seen = int(seen[0])
        seen[0] += 1
        out[0] += 1
        left.leave(kernel, tensors)
        return found, found_in_seen

    assert launch() == ([], 0) and launch() == (["seen"], 1)
    assert launch("other") == ([], 2), "its first launch"
    assert launch() == ([], 3), "another kernel has changed it"
    seen[:] = 0
    assert launch() == ([], 0), "it was reset"
    left.set_back = "seen"
    assert launch() == (["seen"], 0)


def test_what_is_noted_once_is_not_noted_again():
    left, launches = Leftovers(), CheckedLaunches(1, 1, 4, 1.0)
    launches.made.append(Launched("grid 1", 1, PtxReport("add", (), (), 1, 0.0)))
    seen = np.zeros(8, np.uint8)
    for _ in range(2):
        launches.note_last(left.meet("add", {"seen": seen}))
        seen[0] += 1
        left.leave("add", {"seen": seen})
    launches.note_last(left.meet("add", {"seen": seen}))
    assert launches.memory_with_leftovers == ["seen"]
    assert len(launches.made[0].report.notes) == 1


def test_a_source_that_is_gone_by_the_end(monkeypatch, tmp_path):
    source = tmp_path / "a.ptx"
    source.write_text("")

    def answered(asked, _):
        source.unlink()
        return files.FileAnswer((), "fault", "it left")

    monkeypatch.setattr(files, "_one_answer", answered)
    request = CheckRequest((4,), schedules=1, seed=1, call_limit_s=1.0, max_findings=1)
    report = files.check_files([str(source)], request, FileOptions(), "check", None)
    assert [row.reason for row in report.steps[0].rows] == ["it left"]


@pytest.mark.parametrize("assumed", [(), (HOST_IN_TURN,)])
def test_what_the_host_has_answered_is_not_asked_again(assumed):
    launches = CheckedLaunches(1, 1, 4, 1.0)
    report = PtxReport("serve", (), (), 1, 0.0, assumptions=assumed)
    launches.made.append(Launched("grid 1", 1, report))
    assert launches.can_be_repeated == (not assumed)
