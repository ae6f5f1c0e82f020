"""A GPU MODE task folder as a problem: its inputs, its verdict, our checks around them.

Inputs come from the task's ``generate_input``, the verdict from its ``check_implementation``. A
submission gets the data that a generator has just made; the check gets a copy that no submission
has seen, and only after the call. Classes of inputs:

``fresh-seed``
    The arguments of a test or benchmark with another ``seed``, drawn for each set of inputs, as the
    server does with its secret seed. Where a task takes no seed, torch's, numpy's and Python's
    generators are seeded with it.
``task-seed``
    The arguments as they are in the file.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelbench.base.errors import FaultyReferenceError, ProblemError
from kernelbench.problems.gpumode.task_file import Task, TaskShape, read_task, shape_of
from kernelbench.project.model import Lineage
from kernelbench.project.problem import Inputs, Kernel, OutputTensors, OutputVerdict, Work

if TYPE_CHECKING:
    import torch

    from kernelbench.problems.gpumode.buffers import Roles
    from kernelbench.problems.gpumode.task_code import TaskCode

FRESH, FIXED = "fresh-seed", "task-seed"
_REFERENCE = "reference"


class TaskProblem:
    """The problem of one task folder, see :class:`kernelbench.project.problem.Problem`.

    ``data`` is what the task's ``generate_input`` returns, but for tensors that are outputs
    (:mod:`kernelbench.problems.gpumode.buffers`): those lie between guard bands.

    Args:
        folder: With a ``task.yml``.
        name: What to call the problem; the folder's name if empty.

    Raises:
        UsageError: If the folder holds no task that can be read.
        EnvironmentProblem: If it is a task for several GPUs.
    """

    check_shapes: tuple[str, ...] = ()
    repeatable: bool = True
    shares_references: bool = False
    #: Lengths and numbers of a task's data may be drawn, too.
    forms_vary: bool = True
    #: The server checks a result before the next call, which may overwrite it.
    may_reuse_memory: bool = True

    def __init__(self, folder: str | Path, name: str = "") -> None:
        self.task: Task = read_task(folder)
        self.name = name or self.task.name
        self.input_classes: tuple[str, ...] = (FRESH, FIXED) if self.task.seeded else (FRESH,)
        stage = self.task.benchmarks or self.task.tests
        self.benchmark_shapes = tuple(shape.name for shape in stage)
        self._roles: dict[frozenset[Any], Roles] = {}
        self._unsteady: dict[TaskShape, bool] = {}
        self._last: tuple[tuple[Any, ...], Any] | None = None
        self._opaque = False
        #: Seconds for each of the task's own functions.
        self.hook_limit_s = max(self.task.test_timeout_s, self.task.benchmark_timeout_s)
        self._loaded: TaskCode | None = None
        self._contradictions: dict[tuple[TaskShape, str], str] = {}

    @classmethod
    def for_lineage(cls, lineage: Lineage) -> TaskProblem:
        """The problem of the task in the lineage's folder, or in ``task`` there."""
        inside = lineage.path / "task"
        return cls(inside if inside.is_dir() else lineage.path, lineage.name)

    def parse_shape(self, name: str, fields: Mapping[str, Any]) -> TaskShape:
        """The arguments of ``generate_input``; ValueError if there are none."""
        return shape_of(name, dict(fields))

    def _code(self, device: str) -> TaskCode:
        """The task's own functions, imported when they are first asked for."""
        from kernelbench.problems.gpumode.task_code import TaskCode

        if self._loaded is None:
            self._loaded = TaskCode(self.task, device)
        return self._loaded

    def make_inputs(self, shape: TaskShape, input_class: str, seed: int, device: str) -> Inputs:
        """Call ``generate_input``, and put the tensors that are outputs between guard bands.

        Raises:
            ProblemError: If the task raises.
        """
        from kernelbench.problems import pytree
        from kernelbench.problems.stateful_outputs import StatefulOutputs
        from kernelbench.project.arena import plain

        code = self._code(device)
        data = self._drawn(shape, input_class, seed, code)
        roles = self._roles_of(data, shape, code)
        found = [(path, t) for path, t in pytree.tensor_leaves(data) if t.numel()]
        outputs = [t for path, t in found if pytree.pattern(path) in roles.outputs]
        state = [t for path, t in found if pytree.pattern(path) in roles.state]
        pristine = [t.detach().clone() for t in state]
        arena = StatefulOutputs(outputs, list(zip(state, pristine, strict=True)), device)
        replaced = {id(t): view for t, view in zip(outputs, arena.views, strict=True)}
        data = pytree.rebuilt(data, lambda _, leaf: replaced.get(id(leaf), leaf))
        taken = {id(t) for t in (*outputs, *state)}
        operands = {
            id(t): plain(t) for _, t in found if id(t) not in taken and pytree.is_strided(t)
        }
        self._opaque = self._opaque or pytree.has_objects(data)
        form = (*pytree.constants(data), *((view.shape, view.stride()) for view in arena.views))
        return Inputs(data, [*operands.values(), *map(plain, pristine)], arena.views, arena, form)

    def _drawn(self, shape: TaskShape, input_class: str, seed: int, code: TaskCode) -> Any:
        """What the generator makes; of one that makes something else each time, what it made."""
        from kernelbench.problems import pytree

        fresh = input_class == FRESH
        if shape not in self._unsteady:
            first, second = (code.generate(shape, seed, fresh) for _ in range(2))
            self._unsteady[shape] = not pytree.equal_tensors(first, second)
            if not self._unsteady[shape]:
                return second
        if not self._unsteady[shape]:
            return code.generate(shape, seed, fresh)
        key = (shape, input_class, seed)
        if self._last is None or self._last[0] != key:
            self._last = (key, code.generate(shape, seed, fresh))
        return pytree.cloned(self._last[1])

    def _roles_of(self, data: Any, shape: TaskShape, code: TaskCode) -> Roles:
        """Outputs and state, found once for data of one structure, on the first test if it can."""
        from kernelbench.problems import pytree
        from kernelbench.problems.gpumode.buffers import Roles, find_roles

        structure = pytree.structure(data)
        if structure not in self._roles:
            tried = data
            if shape not in self.task.tests and self.task.tests:
                other = code.generate(self.task.tests[0], 0, fresh=False)
                tried = other if pytree.structure(other) == structure else data
            self._roles[structure] = (
                find_roles(tried, code.refer, lambda *given: code.verdict(*given)[0])
                if code.has_reference
                else Roles()
            )
        return self._roles[structure]

    def outputs_of(self, result: Any, inputs: Inputs) -> list[torch.Tensor]:
        """The tensors in what a submission returned, wherever in it they are.

        Raises:
            ValueError: If it returned nothing, or tensors that compute when they are compared.
        """
        import torch

        from kernelbench.problems import pytree
        from kernelbench.problems.stateful_outputs import StatefulOutputs
        from kernelbench.project.arena import plain

        if result is None:
            raise ValueError("returned None: expected the result")
        found = pytree.tensor_leaves(result)
        for path, tensor in found:
            known = type(tensor) in (torch.Tensor, torch.nn.Parameter)
            if not known or not pytree.is_strided(tensor):
                where = "".join(f"[{key!r}]" for key in path)
                raise ValueError(f"output{where} is a {type(tensor).__name__}: expected a tensor")
        own = {view.data_ptr() for view in inputs.outputs}
        if isinstance(inputs.arena, StatefulOutputs):
            inputs.arena.returned = any(tensor.data_ptr() in own for _, tensor in found)
        return OutputTensors([plain(t) for _, t in found], result)

    def reference(self, inputs: Inputs, shape: TaskShape, input_class: str) -> Any:
        """A copy of the data, for the check to judge by: the task computes its own result in it."""
        from kernelbench.problems import pytree

        return pytree.cloned(inputs.data)

    def compare(
        self, outputs: Sequence[torch.Tensor], reference: Any, shape: TaskShape, input_class: str
    ) -> OutputVerdict:
        """The task's verdict; a submission that replaced what judges it is wrong in any case.

        Raises:
            ProblemError: If the check gives no verdict.
            FaultyReferenceError: If the task's own reference is wrong by it.
        """
        from kernelbench.problems import pytree

        assert isinstance(outputs, OutputTensors)
        code = self._loaded
        assert code is not None
        try:
            right, message = code.verdict(reference, pytree.with_tensors(outputs.form, outputs))
        except ProblemError as error:
            right, message = False, str(error)
        if code.replaced:
            return OutputVerdict(False, None, None, f"the submission replaced {code.replaced}")
        if not right:
            self._require_agreement(reference, shape, input_class, code)
        reason = "" if right else message or "check_implementation says so, without a message"
        return OutputVerdict(right, None, None, reason)

    def _require_agreement(
        self, data: Any, shape: TaskShape, input_class: str, code: TaskCode
    ) -> None:
        """Before a submission is called wrong: the task's reference must be right by its check."""
        key = (shape, input_class)
        if key not in self._contradictions:
            self._contradictions[key] = code.contradiction(data)
        if self._contradictions[key]:
            raise FaultyReferenceError(
                f"{self.task.module(_REFERENCE)}: the task's own ref_kernel is wrong by its "
                f"check_implementation ({shape.name}): {self._contradictions[key]}"
            )

    def broken_limit(self, shape: TaskShape, limits: Mapping[str, Any]) -> str:
        """A task's submissions have no limits."""
        return ""

    def work(self, shape: TaskShape, inputs: Inputs | None = None) -> Work:
        """Nothing is known of a task's work: there is no speed of light."""
        return Work(0.0, 0.0, 0.0, "")

    def load_python(self, path: Path, device: str) -> Kernel:
        """A submission's ``custom_kernel``, with the task's modules under their names.

        ``reference.py`` itself gives its ``ref_kernel``.

        Raises:
            ProblemError: If the task cannot be imported.
            LoadError: If the submission cannot.
        """
        return self._hosted(self._code(device).load(path), device)

    def _hosted(self, kernel: Callable[[Any], Any], device: str) -> Kernel:
        from kernelbench.problems import pytree
        from kernelbench.problems.gpumode.on_cpu import redirected

        looked_at = False

        @functools.wraps(kernel)
        def on_gpu(data: Any) -> Any:
            nonlocal looked_at
            if not looked_at:  # once: a submission's process has drawn no data itself
                looked_at = True
                self._opaque = self._opaque or pytree.has_objects(data)
            return kernel(pytree.renewed(data) if self._opaque else data)

        @functools.wraps(kernel)
        def on_cpu(data: Any) -> Any:
            with redirected(device):
                return kernel(pytree.renewed(data) if self._opaque else data)

        return on_cpu if device == "cpu" else on_gpu


#: What a lineage names as its problem to say: the task in my own folder.
TASK = TaskProblem
