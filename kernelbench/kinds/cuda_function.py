"""A CUDA step's C++ function as a callable on its problem's data: the calling rule.

The library says what the function takes (``cuda_call/kernelbench_call.cuh``); what is passed is
fitted to that, argument by argument, and refused by name where it does not fit.
"""

from __future__ import annotations

import ctypes
import dataclasses
import re
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.kinds.callables import LoadError, describe_exception
from kernelbench.kinds.loaded_step import KernelFault
from kernelbench.project.model import Step

if TYPE_CHECKING:
    import torch

_MESSAGE_BYTES = 1024
_ALL_ONES = 2**64 - 1
_DOUBLE, _WORD = struct.Struct("=d"), struct.Struct("=Q")
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
    """What a C++ function takes at one place."""

    #: ``p`` pointer, ``s`` stream, ``f``, ``i``, ``u``, ``b``: floating, signed, unsigned, bool.
    kind: str
    size: int  #: Of a number, or of what the pointer points at, in bytes.
    written: bool  #: Whether it points at what the function may write.
    type: str  #: In C++, ``const float*``, say.
    dtypes: tuple[str, ...] = ()  #: Names of the dtypes that a tensor must have; empty for any.
    any_of_size: bool = False  #: Whether a tensor of any dtype of that size will do.


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
        device: ``cuda:N``, or ``cpu``.
        stream: The handle of the stream that calls are made on, if ``device`` is the CPU.

    Raises:
        LoadError: If the function cannot be called so, whatever the data.
    """

    def __init__(self, step: Step, library: ctypes.CDLL, device: str, stream: int = 0) -> None:
        import torch

        self._stream = stream

        self._step = step
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
        self._written = [i for i, each in enumerate(self._parameters) if each.written]
        chosen = step.arguments is not None
        self._words_for = [
            _word_maker(parameter, self._device, chosen) for parameter in self._parameters[:-1]
        ]
        self._call = library.kernelbench_call_function
        self._words = (ctypes.c_uint64 * len(self._parameters))()
        self._message = ctypes.create_string_buffer(_MESSAGE_BYTES)

    def __call__(self, data: Any) -> Any:
        """Call the function on the current stream; see the calling rule in docs/own-steps.md.

        What is the same in every call is made once: a call of a short kernel is timed, too.

        Returns:
            The tensor that the function gets to write; a list of them if there are several.

        Raises:
            KernelFault: If what the data gives does not fit the function; if that returns an error
                or leaves one of CUDA.
        """
        values, words = self._pick(data), self._words
        if len(values) != len(self._words_for):
            raise self._wrong_count(values)
        for i, (value, word_for) in enumerate(zip(values, self._words_for, strict=True)):
            try:
                words[i] = word_for(value)
            except _Misfit as error:
                raise KernelFault(f"{self._name}: argument {i + 1}: {error}") from None
        if self._run():
            text = " ".join(self._message.value.decode(errors="replace").split())
            raise KernelFault(f"{self._step.function} {text}")
        written = [values[i] for i in self._written if values[i] is not None]
        return written[0] if len(written) == 1 else written

    def _run(self) -> int:
        import torch

        words = self._words
        if self._device.type != "cuda":
            words[len(words) - 1] = self._stream
            return int(self._call(words, self._message, _MESSAGE_BYTES))
        words[len(words) - 1] = torch.cuda.current_stream(self._device).cuda_stream
        if torch.cuda.current_device() == self._device.index:
            return int(self._call(words, self._message, _MESSAGE_BYTES))
        with torch.cuda.device(self._device):
            return int(self._call(words, self._message, _MESSAGE_BYTES))

    def _wrong_count(self, values: Sequence[Any]) -> KernelFault:
        chosen = self._step.arguments is not None
        advice = "" if chosen else "; `arguments` in step.toml says what it is called with"
        return KernelFault(
            f"{self._name} takes {len(self._words_for)} arguments and a stream, the data gives "
            f"{len(values)} ({', '.join(map(_described, values))}){advice}"
        )


class _Misfit(Exception):
    """A value that does not fit its parameter; the message says why."""


def _word_maker(parameter: Parameter, device: torch.device, chosen: bool) -> Callable[[Any], int]:
    """What gives the 64 bits for a value of a parameter, or raises :class:`_Misfit`."""
    if parameter.kind == "p":
        return _pointer_maker(parameter, device, chosen)
    if parameter.kind == "f":

        def floating(value: Any) -> int:
            if not isinstance(value, (int, float)):
                raise _unexpected(parameter, value)
            return int(_WORD.unpack(_DOUBLE.pack(value))[0])

        return floating
    low, high = _range(parameter)

    def integer(value: Any) -> int:
        if not isinstance(value, int):
            raise _unexpected(parameter, value)
        if not low <= value <= high:
            raise _Misfit(f"{value} is out of its range")
        return value & _ALL_ONES

    return integer


def _pointer_maker(
    parameter: Parameter, device: torch.device, chosen: bool
) -> Callable[[Any], int]:
    import torch

    tensor_type = torch.Tensor
    names = [name for name in parameter.dtypes if hasattr(torch, name)]
    dtypes = frozenset(getattr(torch, name) for name in names)
    size = parameter.size if parameter.any_of_size else 0

    def pointer(value: Any) -> int:
        if value is None:
            return 0
        if not isinstance(value, tensor_type):
            raise _unexpected(parameter, value)
        if (dtypes and value.dtype not in dtypes) or (size and value.element_size() != size):
            raise _unexpected(parameter, value)
        # Who says what is passed may pass strides, and sizes in host memory.
        if not chosen:
            if value.device != device:
                raise _Misfit(f"{_described(value)} is on {value.device}")
            if not value.is_contiguous():
                raise _Misfit(
                    f"{_described(value)} is not contiguous, and a pointer has no strides; "
                    "`arguments` in step.toml can pass them"
                )
        return value.data_ptr()

    return pointer


def _unexpected(parameter: Parameter, value: Any) -> _Misfit:
    return _Misfit(f"expected {parameter.type}, found {_described(value)}")


def open_function(step: Step, path: Path, device: str, stream: int = 0) -> CudaFunction:
    """The function of a library that was built for a step; see :class:`CudaFunction`.

    Raises:
        EnvironmentProblem: If it cannot be opened.
        LoadError: If its function cannot be called.
    """
    try:
        library = ctypes.CDLL(str(path), mode=sys.getdlopenflags())
        library.kernelbench_signature.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        library.kernelbench_call_function.argtypes = [
            ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t,
        ]  # fmt: skip
    except (OSError, AttributeError) as error:
        text = " ".join(str(error).split())
        raise EnvironmentProblem(f"{step.name}: its library cannot be loaded: {text}") from error
    return CudaFunction(step, library, device, stream)


def expressions(step: Step) -> Callable[[Any], Sequence[Any]]:
    """What gives the arguments for a problem's data: its own leaves, or what the step chose."""
    if step.arguments is None:
        return lambda data: list(data_leaves(data))
    import torch

    names = {"torch": torch}
    texts = step.arguments
    # Not a user's input, but code of the step like its sources.
    together = eval(f"lambda data: ({' '.join(f'({text}),' for text in texts)})", names)

    def pick(data: Any) -> Sequence[Any]:
        try:
            return cast("Sequence[Any]", together(data))
        except Exception:
            for text in texts:
                try:
                    eval(f"lambda data: ({text})", names)(data)
                except Exception as error:
                    raise KernelFault(f"arguments: {text}: {describe_exception(error)}") from error
            raise

    return pick


def data_leaves(data: Any) -> Iterator[Any]:
    """Tensors and numbers in order, out of tuples, lists, dicts and dataclasses."""
    if isinstance(data, (tuple, list)):
        for item in data:
            yield from data_leaves(item)
    elif isinstance(data, Mapping):
        yield from data_leaves(list(data.values()))
    elif dataclasses.is_dataclass(data) and not isinstance(data, type):
        yield from data_leaves([getattr(data, field.name) for field in dataclasses.fields(data)])
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
