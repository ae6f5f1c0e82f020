"""A judge and a submission's process: what goes over, what comes back, and whose clock it is."""

from __future__ import annotations

import json
import os
import socket
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelbench.base.child_process import queued_s
from kernelbench.base.errors import ProblemError
from kernelbench.isolation.isolated_kernel import IsolatedKernel
from kernelbench.isolation.requests import Closed, PeerMismatch, close, receive_frame, send_frame
from kernelbench.isolation.returned_data import BadAnswer, Returned
from kernelbench.isolation.sandbox_child import Results
from kernelbench.isolation.shared_data import Mapped, SharedData
from kernelbench.measure.correctness import Checker
from kernelbench.measure.timing import InputSet, TimingFault, time_on_cpu
from kernelbench.problems.returned import check_tensors
from kernelbench.project.arena import GuardedOutputs
from kernelbench.project.problem import Case, Inputs, OutputVerdict


def handed_over(shared: SharedData, mapped: Mapped, data: Any) -> tuple[Any, tuple[int, ...]]:
    """Data as the other process sees them, and the storages that they use."""
    message = shared.message(data)
    twin = mapped.data(message, message.descriptors)
    shared.copy_in(message.used)
    return twin, message.used


def test_data_go_over_with_their_strides_types_and_views() -> None:
    whole = torch.arange(24, dtype=torch.float32)
    data = {
        "view": whole.view(4, 6).t()[1:], "whole": whole, "half": torch.ones(3).half(),
        "n": 3, "none": torch.empty(0, 5), "parameter": torch.nn.Parameter(torch.ones(2)),
    }  # fmt: skip
    shared, mapped = SharedData(), Mapped()
    twin, used = handed_over(shared, mapped, data)
    assert torch.equal(twin["view"], data["view"])
    assert twin["view"].stride() == data["view"].stride()
    assert twin["half"].dtype is torch.float16
    assert type(twin["parameter"]) is torch.nn.Parameter
    assert twin["none"].shape == (0, 5)
    assert twin["n"] == 3
    twin["view"][0, 0] = -1.0
    assert twin["whole"][1] == -1.0, "views of one storage are views of one"
    assert whole[1] == 1.0, "the judge's tensors are its own"
    shared.copy_out(used)
    assert whole[1] == -1.0


def test_a_storage_keeps_its_place_and_loses_it_with_its_tensor() -> None:
    shared, mapped = SharedData(), Mapped()
    kept, lost = torch.ones(4), torch.ones(4)
    first, _ = handed_over(shared, mapped, [kept, lost])
    kept.fill_(2.0)
    again, _ = handed_over(shared, mapped, [kept])
    assert again[0].data_ptr() == first[0].data_ptr()
    assert again[0].tolist() == [2.0] * 4
    del lost
    assert len(shared.message([kept]).dropped) == 1


def test_what_is_not_memory_cannot_be_handed_over() -> None:
    with pytest.raises(Exception, match="pickle"):
        SharedData().message([torch.ones(1), lambda: None])


def round_trip(value: Any) -> Any:
    """A result as the judge gets it."""
    results = Results(Mapped())
    text = json.loads(json.dumps(results.described(value)))
    own, descriptors = results.handed_over()
    returned = Returned(SharedData())
    returned.take(json.loads(json.dumps(own)), descriptors)
    close(descriptors)
    return returned.rebuilt(text)


def test_results_come_back_as_what_they_were() -> None:
    wide = torch.arange(12.0).view(3, 4)
    found = round_trip({"a": [wide.t(), (wide[1], 2, None, "x", True)], 7: torch.empty(0)})
    assert torch.equal(found["a"][0], wide.t())
    assert found["a"][0].stride() == wide.t().stride()
    assert found["a"][1][1:] == (2, None, "x", True)
    shared = found["a"][0].untyped_storage().data_ptr()
    assert found["a"][1][0].untyped_storage().data_ptr() == shared
    assert round_trip(torch.ones(2, device="meta")).device.type == "meta"
    assert type(round_trip(torch.sort(torch.ones(2)))) is tuple


class Lazy(list[Any]):
    """A list that could compute."""


class LazyTensor(torch.Tensor):
    """A tensor that could compute."""


@pytest.mark.parametrize("value", [Lazy([torch.ones(1)]), [LazyTensor([1.0])], object()])
def test_only_exact_types_are_results(value: Any) -> None:
    for found in (value, round_trip(value)):
        with pytest.raises(ValueError, match=r"Lazy|LazyTensor|object"):
            check_tensors(found, [torch.ones(1)])


TENSOR = {
    "dtype": "float32", "size": [2], "stride": [1], "offset": 0, "in": "shared", "storage": 1,
    "before": 0, "parameter": False,
}  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"offset": 3}, {"offset": -1}, {"size": [5]}, {"stride": [4]}, {"size": [1 << 61]},
        {"before": 2}, {"before": 12}, {"dtype": "nn"}, {"dtype": "no_such"}, {"storage": 2},
        {"stride": []}, {"in": "nothing"}, {"in": "own"}, {"size": "2"}, {"offset": True},
    ],
)  # fmt: skip
def test_a_tensor_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    shared = SharedData()
    data = torch.arange(4.0)
    shared.message(data)
    returned = Returned(shared)
    assert returned.rebuilt({"tensor": TENSOR}).tolist() == [0.0, 1.0]
    with pytest.raises(BadAnswer):
        returned.rebuilt({"tensor": TENSOR | wrong})


@pytest.mark.parametrize("text", [[], {"list": 3}, {"value": [1]}, {"value": {}}, 5, {"dict": [1]}])
def test_what_describes_nothing_is_refused(text: Any) -> None:
    with pytest.raises(BadAnswer):
        Returned(SharedData()).rebuilt(text)


def test_memory_shorter_than_it_said_is_refused() -> None:
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, 8)
    try:
        with pytest.raises(BadAnswer, match="beyond"):
            Returned(SharedData()).take({"host": [[1, 0, 16]]}, [descriptor])
    finally:
        os.close(descriptor)


def test_an_answer_is_from_the_process_that_was_asked_and_of_a_size() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        send_frame(theirs, b"mine")
        assert receive_frame(ours, 10, os.getpid()) == (b"mine", [])
        send_frame(theirs, b"another's")
        with pytest.raises(PeerMismatch, match=r"answered in place of 1$"):
            receive_frame(ours, 10, 1)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        send_frame(theirs, b"x" * 11)
        with pytest.raises(PeerMismatch, match="11 bytes"):
            receive_frame(ours, 10)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours:
        theirs.close()
        with pytest.raises(Closed):
            receive_frame(ours)


def clock_of(calls: list[tuple[float, float]], ping: float = 50e-6) -> str:
    """What is said of calls that took so long there and here, in seconds."""
    kernel = IsolatedKernel.__new__(IsolatedKernel)
    kernel._said = [said for said, _ in calls]
    kernel._passed = [passed for _, passed in calls]
    kernel._excess = [passed - said for said, passed in calls]
    kernel._pings = [ping] * len(calls)
    return kernel.clock_fault()


def test_a_clock_that_says_less_than_has_passed_is_found() -> None:
    honest = [(1e-3, 1.2e-3)] * 10
    assert clock_of(honest) == ""
    assert clock_of([*honest, (1e-3, 0.5)]) == "", "one call that had to wait"
    assert "says 16 µs a call, the judge has waited 218000 µs" in clock_of([(16e-6, 0.218)] * 10)
    assert "the judge has waited" in clock_of([(16e-6, 0.1)] * 6 + [(0.1, 0.1002)] * 4)
    assert "for which the judge has waited" in clock_of([*honest, (1.3e-3, 1.2e-3)])
    assert clock_of([]) == ""


class Doubling:
    """A problem whose steps give twice what they get."""

    name = "doubling"

    def make_inputs(self, shape: Any, input_class: str, seed: int, device: str) -> Inputs:
        """Eight random integers."""
        values = torch.randint(0, 1 << 40, (8,), generator=torch.Generator().manual_seed(seed))
        return Inputs(values, [values], [], GuardedOutputs([], torch.int64, device))

    def outputs_of(self, result: Any, inputs: Inputs) -> list[torch.Tensor]:
        """The tensor."""
        return [result]

    def reference(self, inputs: Inputs, shape: Any, input_class: str) -> torch.Tensor:
        """Twice the values."""
        return inputs.operands[0] * 2

    def compare(self, outputs: Any, reference: Any, shape: Any, input_class: str) -> OutputVerdict:
        """Every bit."""
        ok = torch.equal(outputs[0], reference)
        return OutputVerdict(ok, ok, None, "" if ok else "differs")


class Elsewhere:
    """A callable that is timed by itself, and remembers what it was called with."""

    def __init__(self, kernel: Any, fault: str = "") -> None:
        self.kernel, self.fault = kernel, fault
        self.seen: list[tuple[int, ...]] = []

    def __call__(self, data: torch.Tensor) -> Any:
        """A call that is not timed."""
        return self.timed(data)[0]

    def timed(self, data: torch.Tensor) -> tuple[Any, float]:
        """A call, and how long it has taken."""
        self.seen.append(tuple(data.tolist()))
        return self.kernel(data), 42e-6

    def clock_fault(self) -> str:
        """What the judge finds."""
        return self.fault


def timed(kernel: Any) -> list[float]:
    """Microseconds of thirty calls."""
    problem: Any = Doubling()
    sets = []
    for seed in (1, 2):
        inputs = problem.make_inputs(None, "", seed, "cpu")
        poison = torch.empty(inputs.arena.flat.shape, dtype=torch.int64)
        sets.append(InputSet(inputs, problem.reference(inputs, None, ""), [poison, poison]))
    return time_on_cpu(
        [kernel], [[0]] * 30, sets, Case(problem, None, ""), seed=3, budget_s=60.0, warmups=5,
        announce=lambda *given: None, call_limit_s=1.0,
    ).of(0)  # fmt: skip


def test_no_two_calls_of_a_submission_see_the_same_values() -> None:
    kernel = Elsewhere(lambda data: data * 2)
    assert timed(kernel) == [42.0] * 30
    assert len(set(kernel.seen)) == len(kernel.seen) == 35


def test_a_step_of_the_project_sees_two_sets_of_values() -> None:
    kernel = Elsewhere(lambda data: data * 2)
    timed(lambda data: kernel(data))
    assert len(set(kernel.seen)) == 2


def test_kept_results_and_false_clocks_end_the_timing() -> None:
    kept = torch.zeros(8, dtype=torch.int64)
    with pytest.raises(TimingFault, match="differs"):
        timed(Elsewhere(lambda data: kept))
    with pytest.raises(TimingFault, match="its clock"):
        timed(Elsewhere(lambda data: data * 2, "its clock is wrong"))


def test_waiting_for_a_core_is_counted_by_the_kernel() -> None:
    assert queued_s("self") >= 0.0
    assert queued_s("0") == 0.0


def test_data_that_cannot_be_handed_over_are_the_problems_fault() -> None:
    def kernel(data: Any) -> Any:
        raise ProblemError("the data cannot be handed to a submission's process: a file")

    problem: Any = Doubling()
    where: Any = SimpleNamespace(poison_free_memory=lambda like, seed: None)
    checker = Checker(
        kernel, problem, None, "cpu", 1, lambda *given: None, 5.0, elsewhere=where
    )  # fmt: skip
    found = checker.check("")
    assert (found.status, found.reason.split(":")[0]) == (
        "problem", "the data cannot be handed to a submission's process",
    )  # fmt: skip
