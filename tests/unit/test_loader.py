"""Loading a step's file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelbench.kinds.callables import LoadError, describe_exception, load_callable
from kernelbench.project.step_files import read_submission


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    """Loading adds modules and folders to the process, as it should in a worker."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("kernelbench_step_") or name in ("task", "utils", "beside"):
            del sys.modules[name]


def write(folder: Path, text: str, name: str = "step.py") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_files_of_one_name_stay_apart(tmp_path: Path) -> None:
    found = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = f"VALUE = {number}\ndef custom_kernel(data):\n    return VALUE + data\n"
        found.append(load_callable(write(folder, text)))
    assert [kernel(10) for kernel in found] == [11, 12]


def test_names_of_the_competition_can_be_imported(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "from task import input_t, output_t\nfrom utils import set_seed\n"
        "def custom_kernel(data: input_t) -> output_t:\n    set_seed(3)\n    return data\n",
    )
    assert load_callable(file)(5) == 5


def test_files_beside_it_can_be_imported(tmp_path: Path) -> None:
    write(tmp_path, "X = 7\n", "beside.py")
    file = write(tmp_path, "import beside\ncustom_kernel = lambda data: beside.X\n")
    assert load_callable(file)(None) == 7


def test_dataclasses_and_callable_objects_work(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass K:\n    n: int\n    def __call__(self, data):\n        return self.n\n"
        "custom_kernel = K(4)\n",
    )
    assert load_callable(file)(None) == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", "step.py defines no custom_kernel(data)"),
        ("custom_kernel = 1\n", "step.py defines no custom_kernel(data)"),
        ("import absent_module\n", "No module named 'absent_module' (step.py:1)"),
        ("\n\nraise ValueError('a\\nb')\n", "importing step.py raised ValueError: a b (step.py:3)"),
        ("def f(:\n", "SyntaxError"),
        ("1 / 0\n", "ZeroDivisionError: division by zero (step.py:1)"),
    ],
)
def test_refused_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(LoadError) as caught:
        load_callable(write(tmp_path, text))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_absent_file(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="no such file"):
        load_callable(tmp_path / "no.py")


def test_a_file_that_is_not_python(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="is not a Python file"):
        load_callable(write(tmp_path, "", "step.txt"))


def test_exceptions_are_short_and_located(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "def inner(x):\n    return {}[x]\ndef custom_kernel(data):\n    return inner(data)\n",
    )
    with pytest.raises(KeyError) as caught:
        load_callable(file)("k" * 1000)
    text = describe_exception(caught.value, file)
    assert text.startswith("KeyError: 'kkk")
    assert text.endswith("... (step.py:2)")
    assert len(text) < 340
    assert describe_exception(ValueError()) == "ValueError"


def test_two_revisions_get_modules_of_their_own(tmp_path: Path) -> None:
    """Both arms of a comparison live in one process."""
    found = []
    for revision in ("old", "new"):
        folder = tmp_path / revision
        folder.mkdir()
        (folder / "step_helper.py").write_text(f"NAME = {revision!r}\n")
        file = folder / "submission.py"
        file.write_text(
            "import step_helper\ndef custom_kernel(data):\n    return step_helper.NAME\n"
        )
        found.append(load_callable(file))
    assert [kernel(None) for kernel in found] == ["old", "new"]


@pytest.mark.parametrize(
    ("imports", "kind"),
    [
        ("import triton.language as tl", "triton"),
        ("import torch, triton", "triton"),
        ("from triton import jit", "triton"),
        ("import torch\nfrom tritonclient import x", "python"),
        ("try:\n    import triton\nexcept ImportError:\n    triton = None", "python"),
    ],
)
def test_a_file_that_imports_triton_is_a_triton_step(
    imports: str, kind: str, tmp_path: Path
) -> None:
    """Without a GPU the emulator takes it: Triton's own error would blame the file."""
    file = write(tmp_path, f"{imports}\ndef custom_kernel(data):\n    return data\n")
    assert read_submission(file).kind == kind
