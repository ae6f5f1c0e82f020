"""``kernelbench import``: a dataset and a problem as projects whose steps run; what is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import launch
from datasets import (
    INDEX_ADD,
    RETURNS,
    RMSNORM,
    flashinfer_trace,
    sol_problem,
    trace,
    workload,
    write_json,
    write_lines,
    write_safetensors,
)

from kernelbench.base.errors import KernelbenchError, UsageError
from kernelbench.problems.flashinfer import import_project
from kernelbench.problems.flashinfer.axes import AxisError, axis_value, names_in
from kernelbench.problems.flashinfer.models import Tolerance
from kernelbench.problems.flashinfer.safetensors_file import read_tensor
from kernelbench.problems.flashinfer.tolerance import judge_outputs


def test_a_dataset_runs_as_a_project(tmp_path: Path) -> None:
    flashinfer_trace(tmp_path / "dataset")
    project = tmp_path / "project"
    done = launch("import", tmp_path / "dataset", "-o", project)
    assert done.code == 0, done.err
    assert "rmsnorm_h64: 3 workloads as shapes, the reference and 5 solutions as steps" in done.out
    assert "skipped in_cuda: language cuda" in done.out
    assert "2 reported figures" in done.out
    assert "wrote " in done.out

    shown = launch("list", "--json", "-", root=project)
    steps = {step["name"]: step for step in json.loads(shown.out)["steps"]}
    assert steps["returns_v1"]["reported"]["values"] == {
        "rmsnorm_h64.0": 8.0,
        "rmsnorm_h64.1": 10.0,
    }
    assert steps["writes_v2"]["parent"] == "rmsnorm_h64-reference"

    names = ("rmsnorm_h64-reference", "returns_v1", "writes_v2", "reordered", "wrong")
    ran = launch("run", *names, "--check-only", "--no-save", "--json", "-", root=project)
    rows = json.loads(ran.out)["results"]
    status = {(row["step"], row["shape"][-1]): row["status"] for row in rows}
    assert {key for key, value in status.items() if value != "pass"} == {
        ("wrong", "0"), ("wrong", "1"), ("wrong", "2"),
    }  # fmt: skip
    assert ran.code == 3


def test_a_problem_folder_runs_as_a_project(tmp_path: Path) -> None:
    sol_problem(tmp_path / "problem")
    imported = import_project(tmp_path / "problem", tmp_path / "project")
    assert imported.definitions == {"index_add_h8": (2, 1)}
    done = launch(
        "run", "index_add_h8-reference", "in_place", "--no-save", "--budget", "0.2",
        "--json", "-", root=tmp_path / "project",
    )  # fmt: skip
    rows = json.loads(done.out)["results"]
    assert [(row["step"], row["status"], row["reason"]) for row in rows] == [
        ("index_add_h8-reference", "pass", ""), ("index_add_h8-reference", "pass", ""),
        ("in_place", "pass", ""), ("in_place", "pass", ""),
    ]  # fmt: skip
    assert all(row["call_us"] for row in rows)


def test_what_says_itself_what_it_is_needs_no_type(tmp_path: Path) -> None:
    root = flashinfer_trace(tmp_path / "dataset")
    edited(lambda v: [axis.pop("type") for axis in v["axes"].values()], DEFINITION)(root)
    in_workload(lambda w: [each.pop("type", None) for each in w["inputs"].values()])(root)
    imported = import_project(root, tmp_path / "project")
    assert imported.definitions == {"rmsnorm_h64": (1, 5)}


def test_outputs_that_neither_a_field_nor_a_name_tells_of(tmp_path: Path) -> None:
    root = flashinfer_trace(tmp_path / "dataset")
    for index, parameters in enumerate(("*given", "a, b, c, d")):
        content = f"def run({parameters}):\n    ...\n"
        edit = edited(
            lambda v, content=content: v["sources"][0].update(content=content),
            "solutions/somebody/writes v2.json",
        )
        edit(root)
        project = tmp_path / f"project{index}"
        import_project(root, project)
        adapter = (project / "rmsnorm_h64" / "writes_v2" / "adapter.py").read_text()
        assert "_MODULE.run(*inputs.values(), *outputs.values())" in adapter


def test_one_definition_of_a_dataset(tmp_path: Path) -> None:
    root = flashinfer_trace(tmp_path / "dataset")
    file = root / "definitions" / "rmsnorm" / "rmsnorm_h64.json"
    imported = import_project(file, tmp_path / "project")
    assert imported.definitions == {"rmsnorm_h64": (3, 5)}


def edited(change: Callable[[Any], object], path: str) -> Callable[[Path], None]:
    """Changes a JSON file of the dataset."""

    def apply(root: Path) -> None:
        value = json.loads((root / path).read_text())
        change(value)
        write_json(root / path, value)

    return apply


def cut(path: str, count: int) -> Callable[[Path], None]:
    """Leaves the first bytes of a file of the dataset."""

    def apply(root: Path) -> None:
        (root / path).write_bytes((root / path).read_bytes()[:count])

    return apply


def edited_line(change: Callable[[Any], object]) -> Callable[[Path], None]:
    """Changes the line of the first workload."""

    def apply(root: Path) -> None:
        value = workload("aaa", 4)
        change(value)
        write_lines(root / "workloads" / "rmsnorm" / "rmsnorm_h64.jsonl", [value])

    return apply


def in_workload(change: Callable[[Any], object]) -> Callable[[Path], None]:
    """Changes the first workload."""
    return edited_line(lambda line: change(line["workload"]))


DEFINITION = "definitions/rmsnorm/rmsnorm_h64.json"
WORKLOADS = "workloads/rmsnorm/rmsnorm_h64.jsonl"
SOLUTION = "solutions/somebody/returns_v1.json"
BLOB = "blob/workloads/x.safetensors"

BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated definition": (cut(DEFINITION, 200), f"{DEFINITION}:1: not valid JSON"),
    "truncated workloads": (cut(WORKLOADS, 300), f"{WORKLOADS}:2: not valid JSON"),
    "no workloads": (lambda r: (r / WORKLOADS).unlink(), "no workloads of rmsnorm_h64"),
    "not an object": (
        lambda r: (r / DEFINITION).write_text("[1]"),
        f"{DEFINITION}: /: expected an object, found a list",
    ),
    "unknown dtype": (
        edited(lambda v: v["inputs"]["x"].update(dtype="bf16"), DEFINITION),
        "/inputs/x/dtype: expected one of float64",
    ),
    "undefined axis": (
        edited(lambda v: v["outputs"]["y"].update(shape=["batch", "hidden"]), DEFINITION),
        "/outputs/y/shape: no axis 'batch': known are batch_size, hidden",
    ),
    "axis type": (
        edited(lambda v: v["axes"].update(hidden={"type": "fixed"}), DEFINITION),
        "/axes/hidden/type: expected const, var or expr, found 'fixed'",
    ),
    "const without value": (
        edited(lambda v: v["axes"].update(hidden={"type": "const"}), DEFINITION),
        "/axes/hidden/value: expected an integer of 0 or more, found nothing",
    ),
    "expression that calls": (
        edited(lambda v: v["axes"].update(z={"type": "expr", "expression": "exit()"}), DEFINITION),
        "/axes/z/expression: 'exit()': only + - * / // % **",
    ),
    "reference is not Python": (
        edited(lambda v: v.update(reference="def run(:\n"), DEFINITION),
        "/reference: line 1: not valid Python",
    ),
    "reference without run": (
        edited(lambda v: v.update(reference="def go(x):\n    return x\n"), DEFINITION),
        "/reference: defines no function 'run'",
    ),
    "reference of other inputs": (
        edited(lambda v: v["inputs"].pop("eps"), DEFINITION),
        "/reference: run cannot be called with the 2 inputs",
    ),
    "an input as an output": (
        edited(lambda v: v["outputs"].update(x=v["outputs"]["y"]), DEFINITION),
        "/outputs: 'x' is an input, too",
    ),
    "constraint": (
        edited(lambda v: v.update(constraints=["batch_size <"]), DEFINITION),
        "/constraints: 'batch_size <' is no expression",
    ),
    "no name": (
        edited(lambda v: v.pop("name"), DEFINITION),
        "/name: expected a non-empty string, found nothing",
    ),
    "another definition's workload": (
        edited_line(lambda v: v.update(definition="rmsnorm_h65")),
        f"{WORKLOADS}:1: /definition: expected 'rmsnorm_h64', whose file this is",
    ),
    "a result among the workloads": (
        edited_line(lambda v: v.update(solution="returns_v1")),
        f"{WORKLOADS}:1: /solution: expected null: this is a workload, not a result",
    ),
    "missing input": (
        in_workload(lambda w: w["inputs"].pop("x")),
        f"{WORKLOADS}:1: /workload/inputs: nothing for the input 'x'",
    ),
    "missing axis": (
        in_workload(lambda w: w.update(axes={})),
        "/workload/axes: the variable axis 'batch_size' has no value",
    ),
    "constant axis": (
        in_workload(lambda w: w["axes"].update(hidden=3)),
        "/workload/axes: 'hidden' is no variable axis",
    ),
    "scalar for a tensor": (
        in_workload(lambda w: w["inputs"].update(x={"type": "scalar", "value": 1})),
        "/workload/inputs/x: a scalar, but the definition has a tensor",
    ),
    "unknown source": (
        in_workload(lambda w: w["inputs"].update(x={"type": "url"})),
        "/workload/inputs/x/type: expected one of random, scalar, safetensors, custom",
    ),
    "no such file": (lambda r: (r / BLOB).unlink(), "cannot be read: No such file"),
    "truncated safetensors": (cut(BLOB, 20), "not a whole safetensors file"),
    "cut data": (cut(BLOB, 300), "do not fit the file or its shape"),
    "no such tensor": (
        lambda r: write_safetensors(r / BLOB, {"z": torch.zeros(2)}),
        "x.safetensors has no 'x'",
    ),
    "entry point": (
        edited(lambda v: v["spec"].update(entry_point="src/main.py"), SOLUTION),
        "/spec/entry_point: expected FILE::FUNCTION",
    ),
    "two entry points": (
        edited(lambda v: v["spec"].update(entry_point="src/main.py::run::go"), SOLUTION),
        "/spec/entry_point: expected FILE::FUNCTION",
    ),
    "no hardware": (
        edited(lambda v: v["spec"].update(target_hardware=[]), SOLUTION),
        "/spec/target_hardware: expected at least one string",
    ),
    "no language": (
        edited(lambda v: v["spec"].pop("language"), SOLUTION),
        "/spec/language: expected a non-empty string, found nothing",
    ),
    "no author": (
        edited(lambda v: v.pop("author"), SOLUTION),
        "/author: expected a non-empty string, found nothing",
    ),
    "entry file": (
        edited(lambda v: v["spec"].update(entry_point="main.py::run"), SOLUTION),
        "/spec/entry_point: no source 'main.py'",
    ),
    "path outside": (
        edited(lambda v: v["sources"][0].update(path="../main.py"), SOLUTION),
        "/sources/0/path: expected a relative path without '..'",
    ),
    "tolerance": (
        in_workload(lambda w: w.update(tolerance={"max_atol": -1})),
        "/workload/tolerance/max_atol: expected a number of 0 or more, found -1",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_malformed_is_one_line_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    root = flashinfer_trace(tmp_path / "dataset")
    spoil, expected = BAD[name]
    spoil(root)
    with pytest.raises(UsageError) as caught:
        import_project(root, tmp_path / "project")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["dataset"]


def test_the_command_refuses_with_one_line(tmp_path: Path) -> None:
    assert "no such file" in launch("import", tmp_path / "nothing").error
    (tmp_path / "empty").mkdir()
    done = launch("import", tmp_path / "empty")
    assert done.code == 2
    assert "no definition.json and no definitions folder" in done.error
    flashinfer_trace(tmp_path / "dataset")
    (tmp_path / "there").mkdir()
    done = launch("import", tmp_path / "dataset", "-o", tmp_path / "there")
    assert done.code == 2
    assert "exists; give another folder with -o" in done.error


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    root = flashinfer_trace(tmp_path / "dataset")
    (tmp_path / "file").write_text("")
    with pytest.raises(KernelbenchError) as caught:
        import_project(root, tmp_path / "file" / "project")
    assert "cannot write" in str(caught.value)


def test_sampling_is_skipped_with_the_reason(tmp_path: Path) -> None:
    root = flashinfer_trace(tmp_path / "dataset")
    sampling = {**copy.deepcopy(RMSNORM), "name": "sampling_v8", "op_type": "sampling"}
    write_json(root / "definitions" / "sampling" / "sampling_v8.json", sampling)
    imported = import_project(root, tmp_path / "project")
    assert [each.name for each in imported.skipped] == ["sampling_v8", "in_cuda"]


def test_expressions() -> None:
    assert axis_value("a // 2 + b ** 2 - -1", {"a": 7, "b": 3}) == 13
    assert names_in("a * (b + 2)") == {"a", "b"}
    for expression in ("a.b", "f(a)", "a if b else c", "'x' * a", "a <", "a[0]"):
        with pytest.raises(AxisError):
            names_in(expression)
    for expression in ("a / 2", "a // 0", "a - 9", "2 ** 999"):
        with pytest.raises(AxisError):
            axis_value(expression, {"a": 7})


def test_safetensors_round_trip(tmp_path: Path) -> None:
    tensors = {
        "a": torch.randn(3, 4).bfloat16(), "b": torch.arange(5), "empty": torch.zeros(0, 2),
        "scalar": torch.tensor(2.5),
    }  # fmt: skip
    write_safetensors(tmp_path / "x.safetensors", tensors)
    for key, tensor in tensors.items():
        read = read_tensor(tmp_path / "x.safetensors", key)
        assert torch.equal(read, tensor)
        assert read.dtype == tensor.dtype


def test_tolerance() -> None:
    right = [torch.tensor([1.0, 2.0, 3.0, 4.0])]
    usual = Tolerance()
    assert judge_outputs(["y"], right, right, usual).exact
    near = [torch.tensor([1.0, 2.0, 3.0, 4.04])]
    assert judge_outputs(["y"], near, right, usual).ok
    far = [torch.tensor([1.0, 2.0, 3.0, 4.2])]
    verdict = judge_outputs(["y"], far, right, usual)
    assert not verdict.ok
    assert verdict.reason.startswith("y[3]: got 4.2, expected 4")
    assert judge_outputs(["y"], far, right, Tolerance(matched=0.75)).ok
    assert not judge_outputs(["y"], far, right, Tolerance(matched=0.75, cap=0.1)).ok
    for bad in (torch.nan, torch.inf):
        spoiled = [torch.tensor([1.0, 2.0, 3.0, bad])]
        assert not judge_outputs(["y"], spoiled, right, Tolerance(atol=1e9)).ok
    below = [torch.tensor([-torch.inf, 2.0])]
    assert judge_outputs(["y"], below, below, Tolerance(negative_infinity=True)).ok
    assert not judge_outputs(["y"], below, below, usual).ok


def test_the_tests_inputs_are_as_they_should_be() -> None:
    assert trace("aaa", 1)["solution"] == RETURNS["name"]
    assert INDEX_ADD["custom_inputs_entrypoint"] in str(INDEX_ADD["reference"])
