"""The rules of GPU MODE's server: each is broken once, and real steps keep them all."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelbench.base.errors import PlannedStepError, UsageError
from kernelbench.lineages import submission
from kernelbench.problems.group_gemm import PROBLEM
from kernelbench.project.model import Step

GOOD = """#!POPCORN leaderboard nvfp4_group_gemm
#!POPCORN gpu B200
# A comment.
import os
import torch
import torch.nn.functional as F
from triton import language as tl
from task import input_t, output_t
from utils import set_seed


def custom_kernel(data: input_t) -> output_t:
    return data
"""


def make_step(tmp_path, text=GOOD, **changes):
    entry = tmp_path / "submission.py"
    if text is not None:
        entry.write_bytes(text if isinstance(text, bytes) else text.encode())
    step = Step(
        name="mine",
        lineage="",
        problem="",
        parent=None,
        title="",
        technique="",
        hypothesis="",
        arch="any",
        status="works",
        kind="python",
        path=tmp_path,
        entry=entry,
    )
    return dataclasses.replace(step, **changes)


def test_a_good_file_is_accepted_unchanged(tmp_path):
    assert submission.violations(GOOD) == []
    exported = submission.export(make_step(tmp_path))
    assert exported == submission.Exported(GOOD, "nvfp4_group_gemm", ("B200",))


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("# A comment.", "# torch.cuda.Stream", 3, "letters 'stream'"),
        ("# A comment.", "#!POPCORN leaderboard other", 3, "a second leaderboard"),
        ("# A comment.", "#!POPCORN gpus H200", 3, "a second gpu"),
        ("# A comment.", "#!POPCORN mode test", 3, "unknown directive"),
        ("#!POPCORN gpu B200", "#!POPCORN gpu", 2, "lacks its value"),
        ("import os", "import numpy", 4, "imports 'numpy'"),
        ("import os", "from kernelbench.executors import callables", 4, "imports 'kernelbench'"),
        ("import os", "from . import sibling", 4, "relative import"),
        ("import os", "def late():\n    import pandas", 5, "imports 'pandas'"),
        ("import os", "HERE = __file__", 4, "__file__"),
        ("def custom_kernel(data", "def kernel(data", 0, "defines no custom_kernel"),
        ("(data: input_t)", "(data, out)", 12, "one argument"),
        ("(data: input_t)", "()", 12, "one argument"),
        ("(data: input_t)", "(data, *, out)", 12, "one argument"),
        ("def custom_kernel", "async def custom_kernel", 12, "coroutine"),
        ("    return data", "    return (data", 13, "not valid Python"),
        ("    return data", "    return data\n" + "#" * 1_000_000, 0, "bytes"),
    ],
)
def test_each_rule(tmp_path, old, new, line, said):
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    found = submission.violations(text)
    assert [v.line for v in found] == [line]
    assert said in str(found[0])
    with pytest.raises(UsageError, match="cannot be submitted") as caught:
        submission.export(make_step(tmp_path, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "definition",
    [
        "custom_kernel = lambda data: data",
        "custom_kernel: object = print",
        "from task import kernel as custom_kernel",
        "def custom_kernel(data, scale=1.0): return data",
        "def custom_kernel(*args): return args[0]",
        "first, custom_kernel = print, print",
    ],
)
def test_other_ways_to_define_the_kernel(definition):
    assert submission.violations(definition + "\n") == []


@pytest.mark.parametrize(
    "definition",
    [
        "if True:\n    pass",
        "custom_kernel: object",
        "def outer():\n    def custom_kernel(data): return data",
    ],
)
def test_not_a_definition(definition):
    assert "defines no custom_kernel" in str(submission.violations(definition + "\n")[0])


def test_several_violations_are_counted(tmp_path):
    text = GOOD.replace("import os", "import numpy\nimport pandas")
    with pytest.raises(UsageError, match=r"line 4: imports 'numpy'.*\(and 1 more\)"):
        submission.export(make_step(tmp_path, text))


def test_directives_end_with_the_first_comment_block(tmp_path):
    text = GOOD.replace("#!POPCORN leaderboard nvfp4_group_gemm\n", "")
    text = text.replace("import os", "import os\n#!POPCORN leaderboard too_late")
    with pytest.raises(UsageError, match="names no leaderboard"):
        submission.export(make_step(tmp_path, text))


def test_header_options_replace_and_add(tmp_path):
    exported = submission.export(make_step(tmp_path), "other_board", ("H200", "B200"))
    lines = exported.text.splitlines()
    assert lines[:3] == [
        "#!POPCORN leaderboard other_board",
        "#!POPCORN gpu H200 B200",
        "# A comment.",
    ]
    assert (exported.leaderboard, exported.gpus) == ("other_board", ("H200", "B200"))
    bare = GOOD.split("\n", 2)[2]
    assert submission.export(make_step(tmp_path, bare), "board").text.splitlines()[0] == (
        "#!POPCORN leaderboard board"
    )


def test_what_cannot_be_exported(tmp_path):
    with pytest.raises(PlannedStepError):
        submission.export(make_step(tmp_path, status="planned", entry=None))
    compiled = make_step(tmp_path, kind="step", arch="sm_100a")
    with pytest.raises(UsageError, match="is of no problem here"):
        submission.export(compiled)
    with pytest.raises(UsageError, match="has no host_path"):
        submission.export(compiled, problem=SimpleNamespace(name="mine"))
    with pytest.raises(UsageError, match=r"no common/backend|for which there is no backend"):
        submission.export(dataclasses.replace(compiled, arch="sm_80"), problem=PROBLEM)
    with pytest.raises(UsageError, match="not UTF-8"):
        submission.export(make_step(tmp_path, GOOD.encode() + b"# \xff\n"))


def test_v00_keeps_the_rules():
    path = Path(__file__).parents[2] / "kernels" / "v00" / "submission.py"
    text = path.read_text(encoding="utf-8")
    assert submission.violations(text) == []
    assert submission.directives(text)["leaderboard"] == ["nvfp4_group_gemm"]
    assert ast.parse(text)
