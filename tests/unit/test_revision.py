"""Another revision: a folder, or a git reference unpacked for a while."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest
from conftest import write_project, write_step

from kernelbench.base.errors import RecordError, UsageError
from kernelbench.project.project_file import Project, project_at
from kernelbench.project.revision import commit_of, lineages_at

OLD = "def custom_kernel(data):\n    return 'old'\n"
NEW = "def custom_kernel(data):\n    return 'new'\n"


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *arguments],
        cwd=folder, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.fixture(params=[".", "deep/inside"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    """A project in a repository, at its top or below: OLD is committed as v1, NEW is not."""
    top = tmp_path / "repository"
    root = write_project(top / request.param, {"s0": OLD})
    git(top, "init", "-q")
    git(top, "add", ".")
    git(top, "commit", "-qm", "first")
    git(top, "tag", "v1")
    write_step(root / "tiny", "s0", NEW)
    write_step(root / "tiny", "s1", NEW)
    return project_at(root)


def test_a_reference_has_what_was_committed_and_goes_away(project: Project) -> None:
    with lineages_at("v1", project) as lineages:
        (step,) = lineages.steps
        assert step.entry is not None
        assert step.entry.read_text() == OLD
        assert project.root not in step.path.parents
        unpacked = step.path
    assert not unpacked.exists()
    assert (project.root / "tiny" / "s0" / "submission.py").read_text() == NEW


def test_a_folder_is_taken_as_it_is(project: Project, tmp_path: Path) -> None:
    copy = write_project(tmp_path / "copy", {"s7": OLD})
    with lineages_at(str(copy), project) as lineages:
        assert [step.name for step in lineages.steps] == ["s7"]
    assert copy.exists()


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ('kind = "torch"', "python"),
        ('arch = "sm_90a"\nkind = "cuda"', "step"),
        ('arch = "any"\nkind = "cuda"\nfunction = "f"', "cuda"),
    ],
)
def test_kinds_by_their_former_names(tmp_path: Path, lines: str, kind: str) -> None:
    copy = write_project(tmp_path / "copy", {"s7": OLD})
    file = copy / "tiny" / "s7" / "step.toml"
    arch = "" if "arch" in lines else 'arch = "any"\n'
    file.write_text(file.read_text().replace('arch = "any"\nkind = "python"', arch + lines))
    with lineages_at(str(copy), project_at(copy)) as lineages:
        assert lineages.get("s7").kind == kind


def test_commits(project: Project) -> None:
    head = git(project.root, "rev-parse", "HEAD")
    assert commit_of("v1", project) == head
    assert commit_of("HEAD", project) == head
    assert commit_of("nothing", project) is None
    assert commit_of(str(project.root), project) is None


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("v9", "'v9' is neither a folder nor a commit of this repository"),
        ("--output=/tmp/x", "neither a folder nor a git reference"),
    ],
)
def test_what_is_not_there(where: str, said: str, project: Project) -> None:
    with pytest.raises(RecordError, match=said), lineages_at(where, project):
        pass


def test_outside_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    project = project_at(write_project(tmp_path / "p", {"s0": OLD}))
    with (
        pytest.raises(RecordError, match=r"rev-parse failed.*; `git init`"),
        lineages_at("HEAD", project),
    ):
        pass


def test_without_git(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RecordError, match="git is not installed"), lineages_at("v1", project):
        pass
    assert commit_of("HEAD", project) is None


def test_a_folder_without_a_project(project: Project, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with (
        pytest.raises(UsageError, match=r"no pyproject\.toml"),
        lineages_at(str(tmp_path / "empty"), project),
    ):
        pass


@pytest.mark.parametrize("target", ["/nowhere/at/all", "../../../outside"])
def test_links_are_kept_whatever_they_point_at(project: Project, target: str) -> None:
    link = project.root / "tiny" / "s0" / "data"
    link.symlink_to(target)
    git(project.root, "add", ".")
    git(project.root, "commit", "-qm", "a link")
    with lineages_at("HEAD", project) as lineages:
        unpacked = lineages.get("s0").path / "data"
        assert str(unpacked.readlink()) == target


def test_an_archive_that_cannot_be_unpacked(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "extractall", full)
    with pytest.raises(RecordError, match="cannot unpack 'v1'"), lineages_at("v1", project):
        pass
