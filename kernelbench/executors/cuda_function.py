"""A CUDA step's C++ function as a callable on its problem's data: the calling rule.

The library says what the function takes (``cuda_call/kernelbench_call.cuh``); what is passed is
fitted to that, argument by argument, and refused by name where it does not fit.
"""

from __future__ import annotations

import ctypes
import dataclasses
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.executors.callables import LoadError, describe_exception
from kernelbench.executors.fault import KernelFault
from kernelbench.project.model import Step

if TYPE_CHECKING:
    import torch

_MESSAGE_BYTES = 1024
_TYPE = re.compile(r"\[(?:with )?T = (?P<name>.*)\]$")

#: Types that an element of a tensor must have under a C++ type, by class and size or by name.
#: Any other type takes tensors of every dtype.
_DTYPES: dict[tuple[str, int] | str, tuple[str, ...]] = {
    ("f", 4): ("float32",),
    ("f", 8): ("float64",),
    ("i", 1): ("int8",),
    ("i", 2): ("int16",),
    ("i", 4): ("int32",),
    ("i", 8): ("int64",),
    ("b", 1): ("bool",),
    "__half": ("float16",),
    "__nv_bfloat16": ("bfloat16",),
    "__nv_fp8_e4m3": ("float8_e4m3fn",),
    "__nv_fp8_e5m2": ("float8_e5m2",),
}


@dataclasses.dataclass(frozen=True)
class Parameter:
    """What a C++ function takes at one place.

    Attributes:
        kind: ``p`` pointer, ``s`` stream, ``f``, ``i``, ``u``, ``b``: floating, signed, unsigned,
            bool.
        size: Of a number, or of what the pointer points at, in bytes.
        written: Whether it points at what the function may write.
        type: In C++, ``const float*``, say.
        dtypes: Names of the dtypes that a tensor must have; empty for any.
        any_of_size: Whether a tensor of any dtype of that size will do.
    """

    kind: str
    size: int
    written: bool
    type: str
    dtypes: tuple[str, ...] = ()
    any_of_size: bool = False


def parameters_of(library: ctypes.CDLL) -> tuple[Parameter, ...]:
    """What the function of a library takes."""
    needed = library.kernelbench_signature(None, 0)
    text = ctypes.create_string_buffer(needed + 1)
    library.kernelbench_signature(text, needed + 1)
    return tuple(_parameter(line) for line in text.value.decode().splitlines())


def _parameter(line: str) -> Parameter:
    kind, size_text, written, pretty = line.split(" ", 3)
    size, match = int(size_text), _TYPE.search(pretty)
    name = match["name"] if match else pretty
    if kind == "s":
        return Parameter("s", size, False, "cudaStream_t")
    if kind[0] != "p":
        return Parameter(kind, size, False, name)
    element = kind[1]
    shown = f"{'' if written == '1' else 'const '}{name}*"
    dtypes = _DTYPES.get(name, _DTYPES.get((element, size), ())) if name != "char" else ()
    return Parameter("p", size, written == "1", shown, dtypes, element == "u")


class CudaFunction:
    """A callable that calls a CUDA step's function with a problem's data.

    Args:
        library: With ``kernelbench_signature`` and ``kernelbench_call_function``.
        device: ``cuda:N``; for tests of what does not launch, ``cpu``.

    Raises:
        LoadError: If the function cannot be called so, whatever the data.
    """

    def __init__(self, step: Step, library: ctypes.CDLL, device: str) -> None:
        import torch

        self._step = step
        self._library = library
        self._device = torch.device(device)
        self._pick = expressions(step)
        self._parameters = parameters_of(library)
        shown = ", ".join(parameter.type for parameter in self._parameters)
        self._name = f"{step.function}({shown})"
        streams = [p.kind == "s" for p in self._parameters]
        if not streams or not streams[-1] or sum(streams) > 1:
            raise LoadError(
                f"{self._name}: its last parameter is not a cudaStream_t, the stream to launch on"
            )
        if not any(parameter.written for parameter in self._parameters):
            raise LoadError(f"{self._name} writes nothing: no parameter points at non-const")
        self._dtypes = [
            tuple(getattr(torch, name) for name in p.dtypes if hasattr(torch, name))
            for p in self._parameters
        ]
        self._call = library.kernelbench_call_function
        self._words = ctypes.c_uint64 * len(self._parameters)

    def __call__(self, data: Any) -> Any:
        """Call the function on the current stream; see the calling rule in docs/own-steps.md.

        Returns:
            The tensor that the function gets to write; a list of them if there are several.

        Raises:
            KernelFault: If what the data gives does not fit the function; if that returns an error
                or leaves one of CUDA.
        """
        values, chosen = self._pick(data)
        if len(values) != len(self._parameters) - 1:
            found = ", ".join(map(_described, values))
            advice = "" if chosen else "; `arguments` in step.toml says what it is called with"
            raise KernelFault(
                f"{self._name} takes {len(self._parameters) - 1} arguments and a stream, "
                f"the data gives {len(values)} ({found}){advice}"
            )
        words = self._words()
        written = []
        for i, (value, parameter) in enumerate(zip(values, self._parameters, strict=False)):
            words[i] = self._word(i, value, parameter, chosen)
            if parameter.written and value is not None:
                written.append(value)
        self._run(words)
        return written[0] if len(written) == 1 else written

    def _run(self, words: ctypes.Array[ctypes.c_uint64]) -> None:
        import torch

        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        if self._device.type == "cuda":
            with torch.cuda.device(self._device):
                words[len(words) - 1] = torch.cuda.current_stream().cuda_stream
                status = self._call(words, message, _MESSAGE_BYTES)
        else:
            status = self._call(words, message, _MESSAGE_BYTES)
        if status:
            text = " ".join(message.value.decode(errors="replace").split())
            raise KernelFault(f"{self._step.function} {text}")

    def _word(self, i: int, value: Any, parameter: Parameter, chosen: bool) -> int:
        import torch

        if parameter.kind == "p":
            if isinstance(value, torch.Tensor):
                return self._pointer(i, value, parameter, chosen)
            if value is None:
                return 0
        elif parameter.kind == "f" and isinstance(value, (int, float)):
            (word,) = struct.unpack("=Q", struct.pack("=d", value))
            return int(word)
        elif parameter.kind in "iub" and isinstance(value, int):
            low, high = _range(parameter)
            if not low <= value <= high:
                raise self._misfit(i, f"{value} is out of its range")
            return value % 2**64
        raise self._misfit(i, f"expected {parameter.type}, found {_described(value)}")

    def _pointer(self, i: int, tensor: torch.Tensor, parameter: Parameter, chosen: bool) -> int:
        fits = not (wanted := self._dtypes[i]) or tensor.dtype in wanted
        if parameter.any_of_size:
            fits = tensor.element_size() == parameter.size
        if not fits:
            raise self._misfit(i, f"expected {parameter.type}, found {_described(tensor)}")
        # Who says what is passed may pass strides, and sizes in host memory.
        if not chosen and tensor.device != self._device:
            raise self._misfit(i, f"{_described(tensor)} is on {tensor.device}")
        if not chosen and not tensor.is_contiguous():
            raise self._misfit(
                i,
                f"{_described(tensor)} is not contiguous, and a pointer has no strides; "
                "`arguments` in step.toml can pass them",
            )
        return tensor.data_ptr()

    def _misfit(self, i: int, reason: str) -> KernelFault:
        return KernelFault(f"{self._name}: argument {i + 1}: {reason}")


def open_function(step: Step, path: Path, device: str) -> CudaFunction:
    """The function of a library that was built for a step.

    Raises:
        EnvironmentProblem: If it cannot be opened.
        LoadError: If its function cannot be called.
    """
    try:
        library = ctypes.CDLL(str(path))
        library.kernelbench_signature.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        library.kernelbench_call_function.argtypes = [
            ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t,
        ]  # fmt: skip
    except (OSError, AttributeError) as error:
        text = " ".join(str(error).split())
        raise EnvironmentProblem(f"{step.name}: its library cannot be loaded: {text}") from error
    return CudaFunction(step, library, device)


def expressions(step: Step) -> Callable[[Any], tuple[Sequence[Any], bool]]:
    """What gives a call's arguments for a problem's data, and whether the step has chosen them."""
    if step.arguments is None:
        return lambda data: (list(_leaves(data)), False)
    import torch

    names = {"torch": torch}
    # Not of a user's input, but of the step's own step.toml: code like the rest of the step.
    given = [(text, eval(f"lambda data: ({text})", names)) for text in step.arguments]

    def pick(data: Any) -> tuple[Sequence[Any], bool]:
        values = []
        for text, value in given:
            try:
                values.append(value(data))
            except Exception as error:
                raise KernelFault(f"arguments: {text}: {describe_exception(error)}") from error
        return values, True

    return pick


def _leaves(data: Any) -> Iterator[Any]:
    """Tensors and numbers in order, out of tuples, lists, dicts and dataclasses."""
    if isinstance(data, (tuple, list)):
        for item in data:
            yield from _leaves(item)
    elif isinstance(data, Mapping):
        yield from _leaves(list(data.values()))
    elif dataclasses.is_dataclass(data) and not isinstance(data, type):
        yield from _leaves([getattr(data, field.name) for field in dataclasses.fields(data)])
    else:
        yield data


def _range(parameter: Parameter) -> tuple[int, int]:
    if parameter.kind == "b":
        return 0, 1
    bits = 8 * parameter.size
    return (0, 2**bits - 1) if parameter.kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _described(value: Any) -> str:
    import torch

    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return f"{type(value).__name__} {str(value)[:40]}" if value is not None else "None"
