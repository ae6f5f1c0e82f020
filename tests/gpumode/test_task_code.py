"""A task's functions in one process: what they allocate, and what is said of what they raise."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from test_tasks import TASKS

from kernelbench.base.errors import FaultyReferenceError
from kernelbench.problems import pytree
from kernelbench.problems.gpumode import task_code
from kernelbench.problems.gpumode.task_code import TaskCode
from kernelbench.problems.gpumode.task_file import read_task


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the ``prefixsum`` task, the first of this process."""
    monkeypatch.setattr(task_code, "_task_here", [])
    shutil.copytree(TASKS / "prefixsum", tmp_path / "prefixsum")
    shutil.copy(TASKS / "utils.py", tmp_path)
    return tmp_path / "prefixsum"


def test_memory_that_nobody_wrote_is_the_same_in_every_draw(folder: Path) -> None:
    task = read_task(folder)
    code = TaskCode(task, "cpu")
    first = code.generate(task.tests[0], 5, fresh=True)
    for value in range(8):  # what is freed here is what torch.empty gives next
        freed = torch.full_like(first[1], float(value))
        del freed
        assert pytree.equal_tensors(first, code.generate(task.tests[0], 5, fresh=True))


@pytest.mark.parametrize(
    "made",
    [
        "torch.empty(7, dtype=torch.float8_e4m3fn)", "torch.empty(7, dtype=torch.bool)",
        "torch.empty(7, dtype=torch.complex64)", "torch.empty(0)", "torch.empty(4, 6).t()",
        "torch.empty_strided((3, 2), (1, 3), dtype=torch.int64)", "torch.ones(3).new_empty(5)",
        "torch.empty(2, 3, device='meta')", "torch.empty(4, 4, layout=torch.sparse_coo)",
    ],
)  # fmt: skip
def test_memory_of_any_kind(made: str, folder: Path) -> None:
    reference = folder / "reference.py"
    text = reference.read_text().replace("torch.empty_like(data)", made)
    reference.write_text(text)
    task = read_task(folder)
    second = TaskCode(task, "cpu").generate(task.tests[0], 5, fresh=True)[1]
    if pytree.is_strided(second) and second.device.type == "cpu" and second.dtype.itemsize > 1:
        assert (torch.view_as_real(second) if second.is_complex() else second).unique().numel() <= 1


@pytest.mark.parametrize(
    ("raised", "hint"),
    [
        ("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling", True),
        ("no kernel image is available for execution on the device", True),
        ("mat1 and mat2 shapes cannot be multiplied", False),
    ],
)
def test_what_the_gpu_at_hand_lacks(
    raised: str, hint: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    reference = folder / "reference.py"
    old = "    data, _ = data\n"
    assert old in reference.read_text()
    reference.write_text(
        reference.read_text().replace(old, f"    raise RuntimeError({raised!r})\n")
    )
    code = TaskCode(read_task(folder), "cuda:0")
    with pytest.raises(FaultyReferenceError) as caught:
        code.refer(None)
    assert str(caught.value).endswith("; the task may need another GPU than this sm_90") == hint
