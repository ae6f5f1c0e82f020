"""Scripts with Triton kernels on the CPU. Each is written for a GPU and knows nothing of this."""

from __future__ import annotations

import pytest
from corpus import HERE

from kernelbench import EnvironmentProblem, IncorrectError, UsageError, triton_emulation
from kernelbench.checks.api import check
from kernelbench.ptx.hosts import triton_session

SCRIPTS = HERE / "scripts"
#: The compiler's own fault; see ``test_corpus``.
FENCE = {"matmul", "matmul_rows", "grouped_fp8", "attention"}


def test_without_triton_it_says_so(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "triton", None)
    with pytest.raises(EnvironmentProblem, match=r"Triton is not there.*pip install triton"):
        triton_emulation(90).__enter__()


def test_an_arch_that_is_none():
    with pytest.raises(UsageError, match="arch 91; known: 80, 86, 89, 90, 100"):
        triton_emulation(91).__enter__()


@pytest.fixture(scope="module")
def triton():
    found = pytest.importorskip("triton", reason="no Triton: it is no dependency of CI")
    if not found.__version__.startswith("3.6."):
        pytest.skip(f"Triton {found.__version__}: what is looked for is what 3.6 compiles")
    return found


@pytest.mark.parametrize(
    ("script", "arch"),
    [
        *((each, 90) for each in ("vector_add", "softmax", "layer_norm")),
        *((each, 90) for each in ("matmul_tma", "matmul_persistent")),
        *((each, 100) for each in ("vector_add", "softmax", "layer_norm")),
    ],
)
def test_right_and_clean(triton, script, arch):
    report = check([str(SCRIPTS / f"{script}.py")], schedules=3, seed=1, arch=arch)
    assert [row.status for step in report.steps for row in step.rows] == ["clean"]


@pytest.mark.parametrize("script", sorted(FENCE))
def test_the_missing_fence_is_found(triton, script):
    report = check([str(SCRIPTS / f"{script}.py")], schedules=1, seed=1)
    kernel = report.steps[0].rows[0]
    assert {each.finding.kind for each in kernel.seen} == {"proxy-fence"}


@pytest.mark.parametrize("script", sorted(FENCE))
def test_plain_runs_are_right(triton, script):
    import runpy

    with triton_emulation(90) as session:
        runpy.run_path(str(SCRIPTS / f"{script}.py"), run_name="__main__")
    assert len(session.launches) == 1
    session.require_clean()


def test_a_race_of_ones_own_is_found(triton):
    report = check([str(SCRIPTS / "column_sums.py")], schedules=3, seed=1)
    row = report.steps[0].rows[0]
    assert row.status == "finding"
    assert {each.finding.kind for each in row.seen} == {"race"}
    assert {each.finding.access.where for each in row.seen} == {"column_sums.py:14"}


@pytest.mark.parametrize(
    ("script", "bug", "found"),
    [
        ("dependents", 0, ""),
        ("dependents", 1, "reads y that kernel scale on the default stream, ahead of it"),
        ("dependents", 2, "reads y that kernel scale on the default stream, ahead of it"),
        ("dependents", 3, ""),
        ("streams", 0, ""),
        ("streams", 1, "reads x that kernel double on stream 1 writes: nothing orders the two"),
        ("streams", 2, "reads x that kernel double on stream 1 writes: nothing orders the two"),
        ("graph", 0, ""),
        ("graph", 1, "reads x that torch's fill_ at graph.py:31 on stream 2 writes: nothing"),
    ],
)
def test_launches_are_put_into_order(triton, monkeypatch, script, bug, found):
    monkeypatch.setenv("BUG", str(bug))
    report = check([str(SCRIPTS / f"{script}.py")], schedules=2, seed=1)
    seen = [each.finding.text for row in report.steps[0].rows for each in row.seen]
    assert len(seen) == bool(found) and found in "".join(seen)


def test_launches_of_one_form_are_checked_once(triton):
    import torch
    import triton.language as tl

    @triton.jit
    def twice(x, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        tl.store(x + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

    with triton_emulation(90, check=4) as session:
        x = torch.ones(32, device="cuda")
        for _ in range(3):
            twice[(1,)](x, 20, BLOCK=32)
        twice[(1,)](x, 30, BLOCK=32)
    assert [each.schedules for each in session.reports] == [2, 1, 1, 2]
    assert x.tolist() == [16.0] * 20 + [2.0] * 10 + [1.0] * 2


def test_autotuning_takes_the_first_that_fits(triton):
    import torch
    import triton.language as tl

    tried = [triton.Config({"BLOCK": block}) for block in (64, 32)]

    @triton.autotune(tried, key=[])
    @triton.jit
    def fill(x, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + at, at)

    with triton_emulation(90) as session:
        x = torch.zeros(64, device="cuda", dtype=torch.int32)
        fill[lambda meta: (64 // meta["BLOCK"],)](x)
    grids = [each.form.partition(",")[0] for each in session.launches]
    assert grids == ["grid 1×1×1", "grid 2×1×1", "grid 1×1×1"]
    assert x.tolist() == list(range(64))


@pytest.mark.parametrize("reset", [None, ["x"]])
def test_a_tuning_run_leaves_what_is_not_reset(triton, reset):
    """Each configuration runs once more than the script asks for."""
    import torch
    import triton.language as tl

    tried = [triton.Config({"BLOCK": block}) for block in (64, 32)]

    @triton.autotune(tried, key=[], reset_to_zero=reset)
    @triton.jit
    def add(x, BLOCK: tl.constexpr):
        tl.atomic_add(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), 1)

    with triton_emulation(90) as session:
        x = torch.zeros(64, device="cuda", dtype=torch.int32)
        for _ in range(2):
            add[lambda meta: (64 // meta["BLOCK"],)](x)
    assert len(session.launches) == 4
    assert x.tolist() == [2 if reset else 4] * 64


def test_each_configuration_is_checked(triton, monkeypatch):
    """The second one stores beyond the last row; it is not run if one is all that may."""
    import torch
    import triton.language as tl

    def checked():
        @triton.autotune([triton.Config({"ROWS": rows}) for rows in (1, 2)], key=[])
        @triton.jit
        def fill(x, ROWS: tl.constexpr):
            for row in range(ROWS):
                at = (tl.program_id(0) * ROWS + row) * 32 + tl.arange(0, 32)
                tl.store(x + at, at)

        with triton_emulation(90, check=2) as session:
            x = torch.zeros(3 * 32, device="cuda", dtype=torch.int32)
            fill[lambda meta: (triton.cdiv(3, meta["ROWS"]),)](x)
        return [([e.finding.kind for e in r.errors], r.assumptions) for r in session.reports]

    assert checked() == [([], ()), (["out-of-bounds"], ()), ([], ())]
    monkeypatch.setattr(triton_session, "_MOST_TRIED", 1)
    assert checked() == [([], ()), ([], ("first-configurations",))]


def test_new_memory_holds_nan(triton):
    import torch

    with triton_emulation(90, check=1):
        assert torch.empty(8, device="cuda").isnan().all()
        assert torch.zeros(8, device="cuda").sum() == 0


LARGEST = """
import torch, triton, triton.language as tl

@triton.jit
def largest(x, found):
    tl.atomic_max(found, tl.max(tl.load(x + tl.arange(0, 64))))

found = torch.{made}(1, dtype=torch.int32, device="cuda")  # NaN's bytes are -1: less than all
largest[(1,)](torch.arange(64, dtype=torch.int32, device="cuda"), found)
print(found.item())
assert found.item() == 63
"""


@pytest.mark.parametrize("made", ["zeros", "empty"])
def test_other_values_in_new_memory(triton, tmp_path, made, capfd):
    script = tmp_path / "largest.py"
    script.write_text(LARGEST.format(made=made))
    rows = check([str(script)], schedules=2, seed=1).steps[0].rows
    assert [row.status for row in rows] == (["clean"] if made == "zeros" else ["finding", "wrong"])
    assert made == "zeros" or rows[0].seen[0].finding.kind == "unwritten"
    assert made == "zeros" or rows[1].reason.endswith("nothing has written holds other values")
    assert capfd.readouterr().err.count("63\n") == 1


READS = """
import torch, triton, triton.language as tl

@triton.jit
def read(x, y, MODE: tl.constexpr):
    at = tl.arange(0, 128)
    if MODE == 1:
        v = tl.load(x + at)
    else:
        v = tl.load(x + at, mask=at < 100)
    tl.store(y + at, v, mask=at < 100)

read[(1,)](torch.zeros(100, device="cuda"), torch.empty(100, device="cuda"), MODE=1)
"""


def test_a_finding_has_the_line_and_the_file(triton, tmp_path):
    """Also of a kernel that was compiled in a file with another name."""
    for name in ("one.py", "other.py"):
        script = tmp_path / name
        script.write_text(READS)
        found = check([str(script)], schedules=2, seed=1).steps[0].rows[0].seen[0].finding
        assert found.kind == "out-of-bounds"
        assert found.access.where == f"{name}:8"


HALVES = """
import torch, triton, triton.language as tl

@triton.jit
def fill(first, second, none):
    at = tl.arange(0, 64)
    tl.store(first + at, 1.0)
    tl.store(second + at, 2.0)

both, none = torch.zeros(128, device="cuda"), torch.empty(0, device="cuda")
for turn in range(2):
    fill[(1,)](both[:64], both[64:], none)
assert both.sum().item() == 192
"""


def test_tensors_of_one_storage_and_an_empty_one(triton, tmp_path):
    script = tmp_path / "halves.py"
    script.write_text(HALVES)
    rows = check([str(script)], schedules=2, seed=1).steps[0].rows
    assert [row.status for row in rows] == ["clean"]


SUMS = """
import torch, triton, triton.language as tl

@triton.jit
def add(x, sums):
    at = tl.arange(0, 64)
    tl.atomic_add(sums + at, tl.load(x + at))

x, sums = torch.ones(64, device="cuda"), torch.zeros(64, device="cuda")
for turn in range(2):
    {reset}
    add[(1,)](x, sums)
    print(sums[0].item())
    assert sums[0].item() == 1
"""


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("reset", ["sums.zero_()", "pass"])
def test_what_an_earlier_launch_has_left(triton, tmp_path, reset, plain, capfd):
    script = tmp_path / "sums.py"
    text = SUMS.format(reset=reset)
    added = "tl.store(sums + at, tl.load(sums + at) + tl.load(x + at))"
    script.write_text(
        text.replace("tl.atomic_add(sums + at, tl.load(x + at))", added) if plain else text
    )
    rows = check([str(script)], schedules=2, seed=1).steps[0].rows
    assert [row.status for row in rows] == (["finding", "wrong"] if reset == "pass" else ["clean"])
    assert reset != "pass" or rows[0].seen[0].finding.kind == "not-reset"
    assert capfd.readouterr().err.split() == ["1.0", "2.0" if reset == "pass" else "1.0"]


HALVED = """
import torch, triton, triton.language as tl

@triton.autotune(configs=[triton.Config({{"BLOCK": 64}})], key=[]{restore})
@triton.jit
def halve(x, BLOCK: tl.constexpr):
    at = x + tl.arange(0, BLOCK)
    tl.store(at, tl.load(at) / 2)

x = torch.ones(64, device="cuda")
halve[(1,)](x)
assert x[0].item() == 0.5
"""


@pytest.mark.parametrize("restore", ["", ", restore_value=['x']"])
def test_what_autotuning_has_changed(triton, tmp_path, restore):
    script = tmp_path / "halved.py"
    second = 'triton.Config({{"BLOCK": 64}}, num_warps=8)'
    script.write_text(HALVED.replace("configs=[", f"configs=[{second}, ").format(restore=restore))
    *_, last = check([str(script)], schedules=2, seed=1).steps[0].rows
    assert last.status == ("clean" if restore else "wrong")
    assert restore or "restore_value or reset_to_zero of @triton.autotune" in last.reason


def test_beyond_an_array_is_found(triton):
    import torch
    import triton.language as tl

    @triton.jit
    def beyond(x, BLOCK: tl.constexpr):
        tl.store(x + tl.arange(0, BLOCK), 1.0)

    with triton_emulation(90, check=1) as session:
        beyond[(1,)](torch.zeros(16, device="cuda"), BLOCK=1024)
    with pytest.raises(IncorrectError, match=r"out-of-bounds.*\.py:\d+"):
        session.require_clean()


LOCK = """
import torch, triton, triton.language as tl

@triton.jit
def add(lock, out):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out, tl.load(out) + 1)
    tl.atomic_xchg(lock, 0)

lock, out = torch.empty(1, dtype=torch.int32, device="cuda"), torch.zeros(1, device="cuda")
add[(8,)](lock, out)
"""


def test_a_lock_that_nothing_has_written(triton, tmp_path):
    """What the poison lets through are races: the cause comes first."""
    script = tmp_path / "lock.py"
    script.write_text(LOCK)
    (row,) = check([str(script)], schedules=8, seed=1).steps[0].rows
    first, *others = row.seen
    assert first.finding.kind == "unwritten" and "reads lock" in first.finding.text
    assert "race" in {each.finding.kind for each in others}
