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

import contextlib
import functools
import random
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kernelbench.base.errors import FaultyReferenceError, ProblemError
from kernelbench.problems.gpumode.task_file import Task, TaskShape, read_task, shape_of
from kernelbench.project.problem import Inputs, Kernel, OutputTensors, OutputVerdict, Work

if TYPE_CHECKING:
    import torch

    from kernelbench.problems.gpumode.buffers import Roles
    from kernelbench.problems.gpumode.judge import Guard
    from kernelbench.project.model import Lineage

FRESH, FIXED = "fresh-seed", "task-seed"
#: Seeds that every generator takes, numpy's too.
_SEEDS = 2**31 - 1
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
        self._device = "cpu"
        #: Seconds for each of the task's own functions.
        self.hook_limit_s = max(self.task.test_timeout_s, self.task.benchmark_timeout_s)
        self._loaded: ModuleType | None = None
        self._guard: Guard | None = None
        self._agrees: dict[tuple[TaskShape, str], str] = {}

    def parse_shape(self, name: str, fields: Mapping[str, Any]) -> TaskShape:
        """The arguments of ``generate_input``.

        Raises:
            ValueError: If there are none.
        """
        return shape_of(name, dict(fields))

    # -- the task's own functions ---------------------------------------------------------------

    @functools.cached_property
    def _judge(self) -> Any:
        """The modules that judge: loaded before any submission, in a set of their own."""
        from kernelbench.problems.gpumode.modules import ModuleSet, claim_process

        claim_process(self.task.folder)
        return ModuleSet(self.task)

    def _module(self, device: str) -> ModuleType:
        """The task's ``reference`` module, loaded on first use.

        Raises:
            ProblemError: If it raises while it is imported.
        """
        from kernelbench.problems.gpumode.judge import Guard

        if self._loaded is None:
            with self._calling("importing reference.py", device):
                self._loaded = self._judge.load(_REFERENCE)
            self._guard = Guard()
        return self._loaded

    @contextlib.contextmanager
    def _calling(
        self, what: str, device: str, kind: type[ProblemError] = ProblemError
    ) -> Iterator[None]:
        """Run code of the task as the server does: with gradients, its own modules, its device.

        Raises:
            ProblemError: For whatever it raises, with file and line; a subclass if ``kind`` says.
        """
        import torch

        from kernelbench.problems.gpumode.on_cpu import redirected

        if self._guard is not None:
            self._guard.undo()
        try:
            with torch.enable_grad(), self._judge.active(), redirected(device):
                yield
        except ProblemError:
            raise
        except torch.OutOfMemoryError:
            raise
        except (Exception, SystemExit) as error:
            raise kind(self._blamed(what, error, device)) from error

    def _blamed(self, what: str, error: BaseException, device: str) -> str:
        """One line: what raised what, at the innermost line of the task's own files."""
        files = {str(path) for _, path in self.task.modules}
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
        where = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
        text = " ".join(str(error).split())[:300]
        lacking = isinstance(error, NotImplementedError) or "cuda" in text.lower()
        hint = "; the task may need a GPU" if device == "cpu" and lacking else ""
        return f"{where}{what} raised {type(error).__name__}: {text}{hint}"

    # -- Problem --------------------------------------------------------------------------------

    def make_inputs(self, shape: TaskShape, input_class: str, seed: int, device: str) -> Inputs:
        """Call ``generate_input``, and put the tensors that are outputs between guard bands.

        Raises:
            ProblemError: If the task raises.
        """
        from kernelbench.problems.gpumode import trees
        from kernelbench.problems.mixed_arena import MixedArena, plain

        self._device = device
        key = (shape.name, input_class, seed, device)
        data = self._drawn(shape, input_class, seed, device, key)
        roles = self._roles_of(data, shape, device)
        found = [(path, t) for path, t in trees.tensor_leaves(data) if t.numel()]
        outputs = [t for path, t in found if trees.pattern(path) in roles.outputs]
        state = [t for path, t in found if trees.pattern(path) in roles.state]
        pristine = [t.detach().clone() for t in state]
        arena = MixedArena(outputs, list(zip(state, pristine, strict=True)), device)
        replaced = {id(t): view for t, view in zip(outputs, arena.views, strict=True)}
        data = trees.rebuilt(data, lambda _, leaf: replaced.get(id(leaf), leaf))
        taken = {id(t) for t in (*outputs, *state)}
        operands = {id(t): plain(t) for _, t in found if id(t) not in taken and _strided(t)}
        self._opaque = self._opaque or trees.has_objects(data)
        form = (*trees.constants(data), *((view.shape, view.stride()) for view in arena.views))
        return Inputs(data, [*operands.values(), *map(plain, pristine)], arena.views, arena, form)

    def _drawn(
        self, shape: TaskShape, input_class: str, seed: int, device: str, key: tuple[Any, ...]
    ) -> Any:
        """What the generator makes; of one that makes something else each time, what it made."""
        from kernelbench.problems.gpumode import trees

        if shape not in self._unsteady:
            first, second = (self._generated(shape, input_class, seed, device) for _ in range(2))
            self._unsteady[shape] = not _equal(first, second)
            if not self._unsteady[shape]:
                return second
        if not self._unsteady[shape]:
            return self._generated(shape, input_class, seed, device)
        if self._last is None or self._last[0] != key:
            self._last = (key, self._generated(shape, input_class, seed, device))
        return trees.cloned(self._last[1])

    def _generated(self, shape: TaskShape, input_class: str, seed: int, device: str) -> Any:
        import numpy as np
        import torch

        from kernelbench.problems.gpumode import trees

        module = self._module(device)
        arguments = shape.arguments()
        drawn = seed % _SEEDS
        if input_class == FRESH and type(arguments.get("seed")) is int:
            arguments["seed"] = (arguments["seed"] + drawn) % _SEEDS
        random.seed(drawn)
        np.random.seed(drawn)
        torch.manual_seed(drawn)
        with self._calling(f"generate_input({shape.describe()})", device):
            data = module.generate_input(**arguments)
        # Writing into a tensor whose elements share memory is an error: such ones are spread out.
        return trees.rebuilt(data, lambda _, leaf: _spread(leaf))

    def _roles_of(self, data: Any, shape: TaskShape, device: str) -> Roles:
        """Outputs and state, found once for data of one structure, on the first test if it can."""
        from kernelbench.problems.gpumode import trees
        from kernelbench.problems.gpumode.buffers import Roles, find_roles

        structure = frozenset(trees.pattern(path) for path, _ in trees.tensor_leaves(data))
        if structure not in self._roles:
            tried = data
            if shape not in self.task.tests and self.task.tests:
                other = self._generated(self.task.tests[0], FIXED, 0, device)
                patterns = frozenset(trees.pattern(path) for path, _ in trees.tensor_leaves(other))
                tried = other if patterns == structure else data
            self._roles[structure] = (
                find_roles(
                    tried,
                    lambda data: self._referred(data, device),
                    lambda data, result: self._verdict(data, result, device)[0],
                )
                if self._has_reference(device)
                else Roles()
            )
        return self._roles[structure]

    def outputs_of(self, result: Any, inputs: Inputs) -> list[torch.Tensor]:
        """The tensors in what a submission returned, wherever in it they are.

        Raises:
            ValueError: If it returned nothing, or tensors that compute when they are compared.
        """
        from kernelbench.problems.gpumode import trees
        from kernelbench.problems.mixed_arena import MixedArena, plain

        if result is None:
            raise ValueError("returned None: expected the result")
        found = trees.tensor_leaves(result)
        for path, tensor in found:
            if type(tensor).__name__ not in ("Tensor", "Parameter") or not _strided(tensor):
                where = "".join(f"[{key!r}]" for key in path)
                raise ValueError(f"output{where} is a {type(tensor).__name__}: expected a tensor")
        own = {view.data_ptr() for view in inputs.outputs}
        if isinstance(inputs.arena, MixedArena):
            inputs.arena.returned = any(tensor.data_ptr() in own for _, tensor in found)
        paths = [path for path, _ in found]
        complex_paths = {path for path, tensor in found if tensor.is_complex()}
        return OutputTensors([plain(t) for _, t in found], (result, paths, complex_paths))

    def reference(self, inputs: Inputs, shape: TaskShape, input_class: str) -> Any:
        """A copy of the data, for the check to judge by: the task computes its own result in it."""
        from kernelbench.problems.gpumode import trees

        return trees.cloned(inputs.data)

    def compare(
        self,
        outputs: Sequence[torch.Tensor],
        reference: Any,
        shape: TaskShape,
        input_class: str,
    ) -> OutputVerdict:
        """The task's verdict; a submission that replaced what judges it is wrong in any case.

        Raises:
            ProblemError: If the check gives no verdict.
            FaultyReferenceError: If the task's own reference is wrong by it.
        """
        assert isinstance(outputs, OutputTensors)
        device = self._device
        try:
            right, message = self._verdict(reference, _returned(outputs), device)
        except ProblemError as error:
            right, message = False, str(error)
        assert self._guard is not None
        if self._guard.replaced:
            message = f"the submission replaced {self._guard.replaced}"
            return OutputVerdict(False, None, None, message)
        if not right:
            self._require_agreement(reference, shape, input_class, device)
        reason = "" if right else message or "check_implementation says so, without a message"
        return OutputVerdict(right, None, None, reason)

    def _verdict(self, data: Any, output: Any, device: str) -> tuple[bool, str]:
        """What ``check_implementation`` says of a result, on a copy of ``data``."""
        from kernelbench.problems.gpumode import trees
        from kernelbench.problems.gpumode.judge import understood

        module = self._module(device)
        with self._calling("check_implementation", device):
            returned = module.check_implementation(trees.cloned(data), output)
        try:
            return understood(returned)
        except TypeError as error:
            raise ProblemError(f"{self.task.module(_REFERENCE)}: {error}") from None

    def _has_reference(self, device: str) -> bool:
        return callable(getattr(self._module(device), "ref_kernel", None))

    def _referred(self, data: Any, device: str) -> Any:
        """What the task's ``ref_kernel`` gives; it may change ``data``."""
        module = self._module(device)
        with self._calling("ref_kernel", device, FaultyReferenceError):
            return module.ref_kernel(data)

    def _require_agreement(
        self, data: Any, shape: TaskShape, input_class: str, device: str
    ) -> None:
        """Before a submission is called wrong: the task's reference must be right by its check."""
        from kernelbench.problems.gpumode import trees

        key = (shape, input_class)
        if key not in self._agrees and self._has_reference(device):
            result = trees.cloned(self._referred(trees.cloned(data), device))
            right, message = self._verdict(data, result, device)
            self._agrees[key] = "" if right else message or "no message"
        if self._agrees.get(key):
            path = self.task.module(_REFERENCE)
            raise FaultyReferenceError(
                f"{path}: the task's own ref_kernel is wrong by its check_implementation "
                f"({shape.name}): {self._agrees[key]}"
            )

    def broken_limit(self, shape: TaskShape, limits: Mapping[str, Any]) -> str:
        """A task's submissions have no limits."""
        return ""

    def work(self, shape: TaskShape, inputs: Inputs | None = None) -> Work:
        """Nothing is known of a task's work: there is no speed of light."""
        return Work(0.0, 0.0, 0.0, "")

    # -- loading a submission -------------------------------------------------------------------

    def load_python(self, path: Path, device: str) -> Kernel:
        """A submission's ``custom_kernel``, with the task's modules under their names.

        ``reference.py`` itself gives its ``ref_kernel``.

        Raises:
            ProblemError: If the task cannot be imported.
            LoadError: If the submission cannot.
        """
        from kernelbench.executors.callables import LoadError, load_callable
        from kernelbench.problems.gpumode.modules import ModuleSet
        from kernelbench.problems.gpumode.on_cpu import redirected

        self._module(device)
        own = ModuleSet(self.task)
        with redirected(device):
            if path.resolve() == self.task.module(_REFERENCE):
                kernel = getattr(own.load(_REFERENCE), "ref_kernel", None)
                if kernel is None:
                    raise LoadError("reference.py defines no ref_kernel")
            else:
                with own.active():
                    kernel = load_callable(path)
        own.install()
        return self._hosted(kernel, device)

    def _hosted(self, kernel: Callable[[Any], Any], device: str) -> Kernel:
        from kernelbench.problems.gpumode import trees
        from kernelbench.problems.gpumode.on_cpu import redirected

        @functools.wraps(kernel)
        def on_gpu(data: Any) -> Any:
            return kernel(trees.renewed(data) if self._opaque else data)

        @functools.wraps(kernel)
        def on_cpu(data: Any) -> Any:
            with redirected(device):
                return kernel(trees.renewed(data) if self._opaque else data)

        return on_cpu if device == "cpu" else on_gpu


class _OfLineage:
    """What a lineage names as its problem to say: the task in my own folder."""

    def for_lineage(self, lineage: Lineage) -> TaskProblem:
        """The problem of the task in the lineage's folder, or in ``task`` there."""
        inside = lineage.path / "task"
        return TaskProblem(inside if inside.is_dir() else lineage.path, lineage.name)


TASK = _OfLineage()


def _returned(outputs: OutputTensors) -> Any:
    """What the submission returned, with these tensors in it."""
    import torch

    from kernelbench.problems.gpumode import trees

    result, paths, complex_paths = outputs.form
    tensors = dict(zip(paths, outputs, strict=True))

    def leaf(path: trees.Path, old: Any) -> Any:
        if path not in tensors:
            return old
        copy = tensors[path].clone()
        return torch.view_as_complex(copy) if path in complex_paths else copy

    return trees.rebuilt(result, leaf)


def _strided(tensor: torch.Tensor) -> bool:
    import torch

    return tensor.layout is torch.strided


def _spread(leaf: Any) -> Any:
    import torch

    if not isinstance(leaf, torch.Tensor) or not _strided(leaf):
        return leaf
    shared = any(n > 1 and step == 0 for n, step in zip(leaf.shape, leaf.stride(), strict=True))
    return leaf.detach().contiguous() if shared else leaf


def _equal(first: Any, second: Any) -> bool:
    """Whether two draws have the same tensors, bit by bit."""
    from kernelbench.problems.gpumode import trees
    from kernelbench.problems.mixed_arena import same_bits

    one, other = trees.tensor_leaves(first), trees.tensor_leaves(second)
    return len(one) == len(other) and all(
        p == q
        and a.shape == b.shape
        and a.dtype == b.dtype
        and (not _strided(a) or same_bits(a, b))
        for (p, a), (q, b) in zip(one, other, strict=True)
    )
