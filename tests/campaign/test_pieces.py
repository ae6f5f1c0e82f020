"""Pieces: which there are, what their keys depend on, and what goes to workers."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT, SUBMISSIONS, write_project

from kernelbench.base.errors import UsageError
from kernelbench.campaign.campaign_file import read_campaign
from kernelbench.campaign.code_archive import CodeArchive, pack_code
from kernelbench.campaign.pieces import Piece, PieceMaker
from kernelbench.cli.sweep import arguments_of
from kernelbench.project.context import Context
from kernelbench.project.project_file import project_at


def made(root: Path, item: str, code: str = "1") -> list[Piece]:
    file = root / "campaign.yaml"
    file.write_text(f"name: a\ncampaign:\n  - {item}\n")
    context = Context(project_at(root))
    return [*PieceMaker(context, read_campaign(file, arguments_of), code).pieces()]


def commands(pieces: list[Piece]) -> list[str]:
    return [" ".join(each.arguments) for each in pieces]


@pytest.fixture
def project(tmp_path: Path, right_source: str) -> Path:
    return write_project(tmp_path / "p", {"t0": right_source, "t1": right_source, "t2": None})


def test_a_range_over_a_named_shape() -> None:
    """A shape of the range that has a name goes by it."""
    context = Context(project_at(ROOT))
    file = ROOT / "tests" / "campaign" / "over_m.yaml"
    pieces = [*PieceMaker(context, read_campaign(file, arguments_of), "1").pieces()]
    steps = [p.arguments[1] for p in pieces]
    assert steps.count("m13") == 14
    assert len({*steps}) > 2, "the peers of moe are there, too"
    shapes = [p.arguments[3] for p in pieces if p.arguments[1] == "m13"]
    assert shapes[:3] == [
        "qwen35-m1",
        "m=2:n=512:k=2048:e=256:topk=8",
        "m=4:n=512:k=2048:e=256:topk=8",
    ]
    assert shapes[-1] == "qwen35-m8192"
    assert len({p.key for p in pieces}) == len(pieces)
    assert {p.on_gpu for p in pieces} == {True}


def test_what_each_command_makes(project: Path) -> None:
    assert commands(made(project, "run: [t0..t2]\n    shapes: [u0]\n    reps: 3")) == [
        "run t0 --shape u0 --reps 3", "run t1 --shape u0 --reps 3",
    ]  # fmt: skip
    assert commands(made(project, "ab: [t0, t1]\n    shapes: [{m: [[1, 2]], n: 128, k: 256}]")) == [
        "ab t0 t1 --shape m=1,2:n=128:k=256"
    ]
    pieces = made(project, "check: [v01]\n    sms: [1, 4]\n    shapes: [u0]\n    repeat: 2")
    assert commands(pieces) == [
        "check v01 --shape u0 --sms 1", "check v01 --shape u0 --sms 1",
        "check v01 --shape u0 --sms 4", "check v01 --shape u0 --sms 4",
    ]  # fmt: skip
    assert len({each.key for each in pieces}) == 4, "a repetition is a piece of its own"
    assert {each.on_gpu for each in pieces} == {False}
    pieces = made(project, "mutants: [v01]\n    shapes: [u0]")
    assert commands(pieces) == ["check v01 --shape u0"]
    assert pieces[0].mutant


def test_what_a_step_does_not_take_is_left_out() -> None:
    context = Context(project_at(ROOT))
    file = ROOT / "tests" / "campaign" / "over_m.yaml"
    maker = PieceMaker(context, read_campaign(file, arguments_of), "1")
    assert [*maker.pieces()]
    assert all(number > 0 for number in maker.left_out.values())


def test_a_key_is_that_of_all_its_result_depends_on(project: Path) -> None:
    def key(item: str = "run: [t0]\n    shapes: [u0]", code: str = "1") -> str:
        return made(project, item, code)[0].key

    first = key()
    assert key() == first, "the same each time"
    others = {
        key(code="2"),
        key("run: [t1]\n    shapes: [u0]"),
        key("run: [t0]\n    shapes: [{m: 2, n: 128, k: 256}]"),
        key("run: [t0]\n    shapes: [u0]\n    reps: 3"),
    }
    source = project / "tiny" / "t0" / "submission.py"
    source.write_text(source.read_text() + "# changed\n")
    changed = key()
    (project / "shapes.yaml").write_text("group_gemm:\n  u0: {m: 3, n: 128, k: 256}\n")
    (project / "tiny" / "t0" / "README.md").write_text("prose")
    assert len(others | {first, changed}) == 6
    import kernelbench.campaign.pieces as pieces

    pieces._shapes_file.cache_clear()
    assert key() not in others | {first, changed}, "a shape's values, not its name"


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("run: [nope]", r"campaign\.yaml:3: .*'nope'"),
        ("run: [t2]", r"campaign\.yaml:3: none of these"),
        ("run: [t0]\n    shapes: [u99]", r"campaign\.yaml:4: .*'u99'"),
        ("run: [t0]\n    shapes: {u99: {m: 1}}", r"campaign\.yaml:4: no shape 'u99'"),
        ("run: [t0]\n    shapes: {u0: {k: [64, 65]}}", r"campaign\.yaml:4: .*multiple of 64"),
        ("run: [t0]\n    shapes: {u0: {q: 1}}", r"campaign\.yaml:4: unknown field 'q'"),
        ("ab: [t0, tiny]", r"campaign\.yaml:3: 'tiny' is"),
        ("ab: [t0, m07]", r"campaign\.yaml:3: .*different problems"),
    ],
)
def test_errors_name_the_line(project: Path, item: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        made(project, item)


def test_a_file_of_the_project_is_a_step(project: Path) -> None:
    (project / "mine").mkdir()
    (project / "mine" / "fast.py").write_text((SUBMISSIONS / "right.py").read_text())
    (found,) = made(project, f"run: [{project}/mine/fast.py]\n    shapes: [u0]")
    assert found.arguments[:2] == ("run", "mine/fast.py")
    with pytest.raises(UsageError, match="outside the project"):
        made(project, f"run: [{SUBMISSIONS}/right.py]\n    shapes: [u0]")


def names_in(archive: CodeArchive) -> set[str]:
    return set(zipfile.ZipFile(io.BytesIO(archive.data)).namelist())


def test_what_goes_to_workers(project: Path) -> None:
    for name in (".env", ".git/config", "build/big.o", "venv/pyvenv.cfg", "venv/lib/x.py"):
        (project / name).parent.mkdir(exist_ok=True, parents=True)
        (project / name).write_text("not for others")
    results = project / "results"
    for name in ("gpu/table.csv", "gpu/calibration/1.json", "gpu/runs/1.json.gz"):
        (results / name).parent.mkdir(exist_ok=True, parents=True)
        (results / name).write_text("kept")
    archive = pack_code(project_at(project), results)
    names = names_in(archive)
    assert archive.root == "project"
    assert {"project/pyproject.toml", "project/tiny/t0/submission.py"} <= names
    assert {"code/kernelbench/build/compiler.py", "code/kernelbench/_shipped/shapes.yaml"} <= names
    assert {"results/gpu/table.csv", "results/gpu/calibration/1.json"} <= names
    assert not [name for name in names if "/runs/" in name and name.startswith("results/")]
    of_project = {name for name in names if name.startswith("project/")}
    assert not [n for n in of_project if any(w in n for w in (".env", ".git", "build", "venv"))]
    assert pack_code(project_at(project), results).sha == archive.sha


def test_the_code_of_a_checkout(project: Path) -> None:
    """The lineages that ship go once, and a README of them changes no piece."""
    archive = pack_code(project_at(ROOT), project)
    assert archive.root == "code/kernelbench/_shipped"
    assert not [name for name in names_in(archive) if name.startswith("project/")]
    mine = pack_code(project_at(project), project)
    assert mine.code_sha == archive.code_sha, "kernelbench is the same for every project"
    assert mine.sha != archive.sha
