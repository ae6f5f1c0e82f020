"""The registry: reading step.toml and lineage.toml, selection, ranges, and its errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelbench.base.errors import PlannedStepError, UnknownNameError, UsageError
from kernelbench.project.building_blocks import source_sha
from kernelbench.project.problem_loading import load_problem
from kernelbench.project.project_file import Project, find_project
from kernelbench.project.registry import Lineages, load_lineages, require_runnable

STEP = """
name = "{name}"
{parent}
title = "t"
technique = "one line"
hypothesis = "faster"
arch = "any"
kind = "python"
status = "works"
"""
PROBLEM = """
class Problem:
    name = "the problem"
    input_classes = ("normal",)
    benchmark_shapes = ()
    parse_shape = make_inputs = outputs_of = reference = compare = broken_limit = work = print


PROBLEM = Problem()
"""
LINEAGE = 'name = "{name}"\ntitle = "t"\nproblem = "problem.py:PROBLEM"\n'


def add_step(folder: Path, parent: str | None = None, extra: str = "") -> Path:
    folder.mkdir(parents=True)
    line = f'parent = "{parent}"' if parent else ""
    (folder / "step.toml").write_text(STEP.format(name=folder.name, parent=line) + extra)
    (folder / "submission.py").write_text("def custom_kernel(data):\n    return data\n")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with one lineage, `own`: s1 <- s2 <- s10, and s3 off s1."""
    (tmp_path / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["own"]\n')
    own = tmp_path / "own"
    own.mkdir()
    (own / "lineage.toml").write_text(LINEAGE.format(name="own"))
    (own / "problem.py").write_text(PROBLEM)
    add_step(own / "s1")
    add_step(own / "s10", "s2")
    add_step(own / "s2", "s1")
    add_step(own / "s3", "s1")
    return tmp_path


def load(root: Path) -> Lineages:
    return load_lineages(find_project(root))


def names(lineages: Lineages, *specs: str) -> list[str]:
    return [step.name for step in lineages.select(specs)]


def test_steps_are_ordered_by_number_not_by_text(root: Path) -> None:
    assert [step.name for step in load(root).steps] == ["s1", "s2", "s3", "s10"]


def test_a_malformed_step_is_an_error_for_who_asks_for_it(root: Path) -> None:
    file = root / "own" / "s2" / "step.toml"
    file.write_text(file.read_text().replace("title", "heading"))
    lineages = load(root)
    assert names(lineages, "s1", str(root / "own" / "s3")) == ["s1", "s3"]
    for specs in (["s2"], ["own"], ["s1..s3"], [str(root / "own" / "s2")]):
        with pytest.raises(UsageError, match=r"s2/step\.toml: field 'title': missing"):
            lineages.select(specs)
    with pytest.raises(UsageError, match=r"s2/step\.toml: field 'title': missing"):
        _ = lineages.steps


def test_experiments_follow_the_main_line_and_stay_out_of_ranges(root: Path) -> None:
    add_step(root / "own" / "s2_hang", "s2")
    file = root / "own" / "s2_hang" / "step.toml"
    file.write_text(file.read_text().replace('"works"', '"failed"'))
    lineages = load(root)
    assert [step.name for step in lineages.steps] == ["s1", "s2", "s3", "s10", "s2_hang"]
    assert names(lineages, "s1..s10") == ["s1", "s2", "s3", "s10"]


def test_the_reference_comes_first(root: Path) -> None:
    with (root / "own" / "lineage.toml").open("a") as file:
        file.write('reference = "s3"\n')
    assert names(load(root), "own") == ["s3", "s1", "s2", "s10"]


def test_a_lineage_may_say_which_step_is_its_best(root: Path) -> None:
    with pytest.raises(UsageError, match="unknown step 'own-best'"):
        names(load(root), "own-best")
    with (root / "own" / "lineage.toml").open("a") as file:
        file.write('best = "s3"\n')
    assert names(load(root), "own-best", "s1") == ["s3", "s1"]
    add_step(root / "own" / "own-best", "s2")
    with pytest.raises(UsageError, match="own-best stands for a lineage's best step"):
        load(root)


def test_the_best_step_exists(root: Path) -> None:
    with (root / "own" / "lineage.toml").open("a") as file:
        file.write('best = "s4"\n')
    with pytest.raises(UsageError, match=r"unknown step 's4' \(field 'best'\)"):
        load(root)


def test_select_takes_names_ranges_and_lineages_each_step_once(root: Path) -> None:
    lineages = load(root)
    assert names(lineages, "s10", "s1") == ["s10", "s1"]
    assert names(lineages, "s2..s10") == ["s2", "s3", "s10"]
    assert names(lineages, "s2", "own") == ["s2", "s1", "s3", "s10"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("s20", "unknown step 's20'; did you mean 's2'?"),
        ("onw", "unknown step 'onw'; did you mean 'own'?"),  # codespell:ignore onw
        ("s1..s11", "unknown step 's11'; did you mean 's1'?"),
        ("s10..s1", "range 's10..s1': s1 comes before s10; write s1..s10"),
        ("", "unknown step ''; known: s1, s2, s3, s10, own"),
    ],
)
def test_select_refuses_what_it_does_not_know(root: Path, spec: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(root).select([spec])
    assert str(caught.value) == message


@pytest.mark.parametrize("spec", ["s4", "s1..s4"])
def test_a_folder_without_step_toml_is_named(root: Path, spec: str) -> None:
    folder = root / "own" / "s4"
    folder.mkdir()
    with pytest.raises(UsageError) as caught:
        load(root).select([spec])
    assert caught.value.message == f"unknown step 's4': {folder} has no step.toml"
    assert "`kernelbench new s4 --from STEP`" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["common", "beside"])
def test_a_folder_that_is_meant_for_something_else_is_no_missing_step(
    root: Path, name: str
) -> None:
    add_step(root / "own" / "beside" / "b1")
    (root / "own" / "common").mkdir()
    with pytest.raises(UnknownNameError, match=f"unknown step '{name}'; "):
        load(root).select([name])


def test_a_range_stays_in_one_lineage(root: Path) -> None:
    other = root / "other"
    add_step(other / "x1")
    (other / "lineage.toml").write_text(LINEAGE.format(name="other"))
    (root / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["own", "other"]\n')
    with pytest.raises(UsageError, match="s1 is of lineage own, x1 of other"):
        load(root).select(["s1..x1"])


def test_names_are_unique_over_lineages(root: Path) -> None:
    other = root / "other"
    add_step(other / "s1")
    (other / "lineage.toml").write_text(LINEAGE.format(name="other"))
    (root / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["own", "other"]\n')
    with pytest.raises(UsageError, match="two steps named s1"):
        load(root)


def test_a_step_cannot_be_named_like_a_lineage(root: Path) -> None:
    add_step(root / "own" / "own")
    with pytest.raises(UsageError, match="a lineage is named own too"):
        load(root)


def test_an_unknown_parent_is_refused_with_file_and_nearest(root: Path) -> None:
    folder = add_step(root / "own" / "s4", "s33")
    with pytest.raises(UnknownNameError) as caught:
        load(root)
    assert str(caught.value) == (
        f"unknown parent 's33' in {folder / 'step.toml'}; did you mean 's3'?"
    )


def test_a_cycle_of_parents_is_refused(root: Path) -> None:
    add_step(root / "own" / "s4", "s5")
    add_step(root / "own" / "s5", "s4")
    with pytest.raises(UsageError, match=r"cycle: s[45] -> s[45] -> s[45]$"):
        load(root)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "t"\n', "", "step.toml: field 'title': missing, expected a non-empty string"),
        ('title = "t"', "title = 3", "field 'title': expected a non-empty string, found 3"),
        ('"works"', '"done"', "field 'status': expected one of planned, works, failed, fixed"),
        ('"python"', '"step"', "field 'arch': expected 'sm_100a', 'sm_90a', ..."),
        ('name = "s3"', 'name = "s4"', "field 'name': expected the folder's name 's3', found 's4'"),
        ("status", "stauts", "field 'status': missing"),  # codespell:ignore stauts
        ("technique", 'tecnique = "x"\ntechnique', "unknown field 'tecnique'; did you mean"),
    ],
)
def test_a_malformed_step_is_refused_with_its_field(
    root: Path, old: str, new: str, message: str
) -> None:
    file = root / "own" / "s3" / "step.toml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(UsageError) as caught:
        _ = load(root).steps
    assert str(caught.value).startswith(str(file))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


CUDA = 'kind = "cuda"\nfunction = "mine::f"\n'


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('kind = "cpp"', "field 'kind': expected one of 'step', 'python', 'triton', 'cuda'"),
        ('kind = "torch"', "field 'kind': 'torch' is called 'python' now"),
        (
            'kind = "cuda"',
            "field 'function': missing, expected the C++ function to call; a step of",
        ),
        ('kind = "cuda"\nfunction = "f(x)"', "field 'function': found 'f(x)', expected"),
        (CUDA + 'arguments = ["data[0"]', "field 'arguments': not a Python expression: 'data[0'"),
        (CUDA + 'needs = ["gpu"]', "field 'needs': a CUDA step's arch says what it needs"),
        (CUDA + 'gpu_flags = ["-G"]', "--maxrregcount=N, -std=, -D, -I, -l, --extended-lambda"),
        (CUDA + 'arch = "sm_9x"', "field 'arch': expected 'sm_100a', 'sm_90a', ... or, but for"),
        (
            'kind = "triton"\nfunction = "f"',
            "'function': is for kind 'cuda'; this is a Triton step",
        ),
        ('kind = "triton"\ngpu_flags = ["--ftz=true"]', "a Triton step is not built by nvcc"),
    ],
)
def test_a_field_that_does_not_go_with_the_kind(root: Path, lines: str, message: str) -> None:
    file = root / "own" / "s3" / "step.toml"
    file.write_text(file.read_text().replace('arch = "any"\nkind = "python"', lines))
    with pytest.raises(UsageError) as caught:
        _ = load(root).steps
    assert message in str(caught.value)


def test_a_cuda_step(root: Path) -> None:
    file = root / "own" / "s3" / "step.toml"
    flags = 'gpu_flags = ["-I ../include", "-DN=4", "-lcublas", "-std=c++17"]\n'
    text = file.read_text().replace('arch = "any"\nkind = "python"\n', CUDA + flags)
    file.write_text(text)
    step = load(root).get("s3")
    assert (step.kind, step.arch, step.function, step.arguments) == ("cuda", "any", "mine::f", None)
    assert (step.built, step.compiled) == (True, False)
    assert step.entry == step.path / "kernel.cu"
    (step.path / "kernel.cu").write_text("// code\n")
    before = source_sha(step)
    file.write_text(text + 'arguments = ["data"]\n')
    assert load(root).get("s3").arguments == ("data",)
    assert source_sha(load(root).get("s3")) != before


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("reported = 3", "field 'reported': expected a table, found 3"),
        ('[reported]\ndevice = "d"', "field 'reported.metric': missing"),
        (
            '[reported]\ndevice = "d"\nmetric = "call"\nunit = "us"\nvalues = { A = -1 }',
            "field 'reported.values.A': expected a positive number, found -1",
        ),
        (
            '[reported]\ndevice = "d"\nmetric = "call"\nunit = "us"\nvalues = { A = nan }',
            "field 'reported.values.A': expected a positive number, found nan",
        ),
        (
            '[reported]\ndevice = "d"\nmetric = "call"\nunit = "us"',
            "field 'reported.values': expected a table of figures",
        ),
        ('repaired = ["x"]', "field 'repaired': expected an array of tables"),
        ('[[repaired]]\nname = "x"', "field 'repaired[0].reason': missing"),
        ("[config]\ntile = { m = 1 }", "field 'config.tile': expected a scalar"),
    ],
)
def test_a_malformed_table_is_refused_with_its_field(root: Path, table: str, message: str) -> None:
    file = root / "own" / "s3" / "step.toml"
    file.write_text(file.read_text() + table)
    with pytest.raises(UsageError) as caught:
        _ = load(root).steps
    assert str(caught.value).startswith(str(file))
    assert message in str(caught.value)


def test_a_syntax_error_is_refused_with_file_and_line(root: Path) -> None:
    file = root / "own" / "s3" / "step.toml"
    file.write_text('name = "s3"\ntitle = "t"\ntechnique = oops\n')
    with pytest.raises(UsageError) as caught:
        _ = load(root).steps
    assert str(caught.value).startswith(f"{file}:3: not valid TOML: ")


def test_a_file_cut_short_is_refused_with_its_last_line(root: Path) -> None:
    file = root / "own" / "s3" / "step.toml"
    file.write_text('name = "s3"\ntitle = "t')
    with pytest.raises(UsageError) as caught:
        _ = load(root).steps
    assert str(caught.value).startswith(f"{file}:2: not valid TOML: ")


def test_a_file_that_is_not_text_is_refused(root: Path) -> None:
    file = root / "own" / "s3" / "step.toml"
    file.write_bytes(b'name = "\xff"\n')
    with pytest.raises(UsageError, match=r"not UTF-8 text \(byte 8\)"):
        _ = load(root).steps


def test_a_missing_lineage_is_refused(root: Path) -> None:
    (root / "own" / "lineage.toml").unlink()
    with pytest.raises(UsageError, match=r"lineage\.toml: cannot be read: No such file"):
        load(root)


def test_a_planned_step_has_no_entry_and_cannot_run(root: Path) -> None:
    file = root / "own" / "s3" / "step.toml"
    file.write_text(file.read_text().replace('"works"', '"planned"'))
    step = load(root).get("s3")
    assert step.entry is None
    with pytest.raises(PlannedStepError, match="s3 is planned"):
        require_runnable(step)


def test_a_step_without_its_file_cannot_run(root: Path) -> None:
    step = load(root).get("s3")
    assert require_runnable(step) == root / "own" / "s3" / "submission.py"
    (root / "own" / "s3" / "submission.py").unlink()
    with pytest.raises(UsageError, match=r"submission\.py is missing"):
        require_runnable(step)


def test_load_problem_reads_a_file_beside_the_lineage(root: Path) -> None:
    assert load_problem(load(root).lineage("own")).name == "the problem"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("OTHER = 1\n", "unknown problem 'PROBLEM' in "),
        ("raise RuntimeError('two\\nlines')\n", "RuntimeError: two lines"),
        ("def (:\n", "SyntaxError"),
    ],
)
def test_a_broken_problem_is_refused_in_one_line(root: Path, source: str, message: str) -> None:
    (root / "own" / "problem.py").write_text(source)
    with pytest.raises(UsageError) as caught:
        load_problem(load(root).lineage("own"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_source_sha_follows_code_and_config_but_not_prose(root: Path) -> None:
    folder = root / "own" / "s3"
    first = source_sha(load(root).get("s3"))
    (folder / "README.md").write_text("prose")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.py").write_text("cached")
    file = folder / "step.toml"
    file.write_text(file.read_text().replace("faster", "slower"))
    assert source_sha(load(root).get("s3")) == first
    file.write_text(file.read_text() + "[config]\nstages = 5\n")
    with_config = source_sha(load(root).get("s3"))
    assert with_config != first
    (folder / "kernel.cuh").write_text("")
    with_file = source_sha(load(root).get("s3"))
    assert with_file != with_config
    (folder / "kernel.cuh").rename(folder / "other.cuh")
    assert source_sha(load(root).get("s3")) != with_file


def test_equal_code_has_equal_sha_wherever_it_is(root: Path) -> None:
    lineages = load(root)
    assert source_sha(lineages.get("s2")) == source_sha(lineages.get("s3"))


class TestPaths:
    def test_a_submission(self, root: Path) -> None:
        file = root / "fast.py"
        file.write_text("raise SystemExit('never executed')\ncustom_kernel = None\n")
        (step,) = load(root).select([str(file)])
        assert (step.name, step.lineage, step.kind, step.arch) == ("fast", "", "python", "any")
        assert step.submission
        assert require_runnable(step) == file
        before = source_sha(step)
        (root / "neighbour.py").write_text("")
        assert source_sha(step) == before
        file.write_text("custom_kernel = 1\n")
        assert source_sha(step) != before

    @pytest.mark.parametrize(
        "source",
        [
            "def custom_kernel(data): ...",
            "if True:\n    def custom_kernel(data): ...",
            "from x import custom_kernel",
            "from x import f as custom_kernel",
            "from x import *",
        ],
    )
    def test_ways_to_define_custom_kernel(self, root: Path, source: str) -> None:
        file = root / "s.py"
        file.write_text(source)
        assert load(root).select([str(file)])[0].submission

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            ("def other(data): ...\nother(custom_kernel)\n", "defines no custom_kernel"),
            ("x = 1\ndef custom_kernel(:\n", r"s\.py:2: not valid Python"),
            ("x = '\0'", r"not valid Python"),
        ],
    )
    def test_no_submission(self, root: Path, source: str, message: str) -> None:
        file = root / "s.py"
        file.write_text(source)
        with pytest.raises(UsageError, match=message):
            load(root).select([str(file)])

    def test_a_file_or_folder_of_a_step_is_that_step(self, root: Path) -> None:
        lineages = load(root)
        folder = root / "own" / "s3"
        assert names(lineages, str(folder), str(folder / "submission.py")) == ["s3"]

    def test_a_step_folder_of_another_checkout_keeps_its_lineage(
        self, root: Path, tmp_path: Path
    ) -> None:
        copy = tmp_path / "copy"
        (copy / "own").mkdir(parents=True)
        (copy / "own" / "lineage.toml").write_text(LINEAGE.format(name="own"))
        add_step(copy / "own" / "s3", "s1")
        lineages = load(root)
        (step,) = lineages.select([str(copy / "own" / "s3")])
        assert step.path == copy / "own" / "s3"
        assert step.lineage == "own"
        assert lineages.lineage_of(step) == lineages.lineage("own")

    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("nowhere/s.py", "no such file or folder"),
            ("own", "no step.toml there"),
            ("pyproject.toml", "neither a step nor a submission"),
        ],
    )
    def test_no_step(self, root: Path, path: str, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            load(root).select([str(root / path)])


class TestFindProject:
    def test_walks_up_from_a_sub_folder(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
        monkeypatch.chdir(root / "own" / "s1")
        assert find_project() == Project(
            root=root,
            lineages=(root / "own",),
            shapes_file=root / "shapes.yaml",
            results=root / "results",
        )

    def test_the_variable_wins(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KERNELBENCH_ROOT", str(root))
        assert find_project(Path("/")).root == root

    def test_the_variable_must_name_a_project(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KERNELBENCH_ROOT", str(tmp_path))
        with pytest.raises(UsageError, match=r"no pyproject\.toml with a \[tool\.kernelbench\]"):
            find_project()

    def test_elsewhere_it_is_what_ships(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("KERNELBENCH_ROOT", raising=False)
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
        project = find_project(tmp_path)
        assert project.nowhere
        assert project.root == Path(__file__).resolve().parents[2]
        assert project.results == tmp_path / "data" / "kernelbench" / "results"

    @pytest.mark.parametrize(
        ("table", "message"),
        [
            ("", "tool.kernelbench.lineages': expected a list"),
            ("lineages = 'own'", "tool.kernelbench.lineages': expected a list"),
            ("lineages = ['own']\nresult = 'x'", "unknown field 'tool.kernelbench.result'"),
            ("lineages = ['own']\nshapes = 1", "tool.kernelbench.shapes'"),
        ],
    )
    def test_a_malformed_table(self, tmp_path: Path, table: str, message: str) -> None:
        (tmp_path / "pyproject.toml").write_text(f"[tool.kernelbench]\n{table}\n")
        with pytest.raises(UsageError) as caught:
            find_project(tmp_path)
        assert message in str(caught.value)
