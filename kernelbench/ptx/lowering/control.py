"""Control flow, and the whole grid's instructions (PTX ISA 9.1, 9.7.12, 9.7.13, 9.7.19).

Calls of functions: 9.7.12.5; how parameters are passed: 7.1. A ``.func`` becomes a C++
function that takes a pointer to each of its results and parameters: to the caller's ``.param``
variables.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelbench.ptx.errors import StatementError
from kernelbench.ptx.lowering.forms import Form, Lower, call
from kernelbench.ptx.lowering.names import block, called, identifier
from kernelbench.ptx.lowering.writer import Writer
from kernelbench.ptx.parser.model import Operand, PtxFunction, Symbol, Vector

#: Functions that no module defines: what of ``px::`` they are, and the bytes that they are passed.
_PROVIDED = {
    "vprintf": ("px::vprintf", (4, 8, 8)),
    "__assertfail": ("px::assertfail", (8, 8, 4, 8, 8)),
    "malloc": ("px::malloc", (8, 8)),
    "free": ("px::free", (8,)),
    "__cudaCDP2GetParameterBufferV2": ("px::parameter_buffer", (8, 8, 12, 12, 4)),
    "__cudaCDP2LaunchDeviceV2": ("px::launch_device", (4, 8, 8)),
    "__cudaCDP2StreamCreateWithFlags": ("px::create_stream", (4, 8, 4)),
    "cudaGraphSetConditional": ("px::set_conditional", (8, 4)),
    "__cudaCDP2StreamDestroy": ("px::success", (4, 8)),
    "__cudaCDP2GetLastError": ("px::success", (4,)),
    "__cudaCDP2PeekAtLastError": ("px::success", (4,)),
}


def lower_call(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``call{.uni} {(results),} name{, (parameters)}``; by an address, with its prototype."""
    rest = list(operands)
    results = _list(rest)
    name = rest.pop(0) if rest else None
    parameters = _list(rest)
    if not isinstance(name, str):
        raise StatementError("no function's name")
    if name in writer.function.registers:
        return _call_by_address(writer, name, results, parameters)
    if rest:
        raise StatementError("operands behind the parameters")
    function = writer.calls.functions.get(name) or _provided(writer, name)
    if function is None:
        raise StatementError(f"{name} is not defined in this module")
    given = _blocks(writer, function.results, results) + _blocks(
        writer, function.parameters, parameters
    )
    cpp = called(name) if function.defined else _PROVIDED[name][0]
    return f"{cpp}({', '.join(given)});"


def _call_by_address(writer: Writer, name: str, results: Vector, parameters: Vector) -> str:
    """A call of the function whose address a register holds: what is passed says what it takes."""
    given = []
    for operand in (*results.items, *parameters.items):
        passed = writer.layout.passed.get(operand) if isinstance(operand, str) else None
        if passed is None:
            raise StatementError(f"{operand} is passed in a register")
        given.append(block(passed.name))
    types = ", ".join("px::Byte*" for _ in given)
    return f"px::function_at<void({types})>({writer.value(name, 8)})({', '.join(given)});"


def _provided(writer: Writer, name: str) -> PtxFunction | None:
    """The declaration of a function that is provided here."""
    function = writer.calls.declared.get(name)
    if function is None or name not in _PROVIDED:
        return None
    passed = tuple(each.size for each in (*function.results, *function.parameters))
    return function if passed == _PROVIDED[name][1] else None


def _list(rest: list[Operand]) -> Vector:
    """Takes a list in parentheses from the front; an empty one if there is none."""
    first = rest[0] if rest else None
    if not isinstance(first, Vector):
        return Vector(())
    del rest[0]
    return first


def _blocks(writer: Writer, wanted: Sequence[Symbol], given: Vector) -> list[str]:
    """The caller's variables for a function's results or parameters."""
    if len(given.items) != len(wanted):
        raise StatementError(f"{len(given.items)} for {len(wanted)} results or parameters")
    found = []
    for symbol, operand in zip(wanted, given.items, strict=True):
        variable = writer.layout.passed.get(operand) if isinstance(operand, str) else None
        if variable is None or symbol.space != "param":
            raise StatementError(f"{operand} is passed in a register")
        if variable.size != symbol.size:
            raise StatementError(f"{variable.size} bytes for {symbol.name}")
        found.append(block(variable.name))
    return found


def _branch(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    writer.expect(operands, 1)
    if not isinstance(operands[0], str):
        raise StatementError("no label")
    return f"goto L{identifier(operands[0])};"


def _branch_by_index(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``brx.idx index, list``: PTX leaves open what an index beyond the list does; it traps."""
    writer.expect(operands, 2)
    labels = writer.function.targets.get(str(operands[1]))
    if labels is None:
        raise StatementError(f"{operands[1]} is no .branchtargets")
    cases = " ".join(f"case {at}: goto L{identifier(label)};" for at, label in enumerate(labels))
    return f"switch ({writer.value(operands[0], 4)}) {{ {cases} default: px::trap(); }}"


def fixed(code: str) -> Lower:
    """An instruction without operands."""

    def lower(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
        writer.expect(operands, 0)
        return code

    return lower


def _exit(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    writer.expect(operands, 0)
    if not writer.function.kernel:
        raise StatementError("in a function that is called")
    return "return;"


CONTROL_FORMS: tuple[Form, ...] = (
    Form("bra{.uni|}", _branch, "launch"),
    Form("brx.idx{.uni|}", _branch_by_index, "integers"),
    Form("ret{.uni|}", fixed("return;"), "launch"),
    Form("exit", _exit, "launch"),
    Form("call{.uni|}", lower_call, "calls"),
    Form("trap", fixed("px::trap();"), "launch"),
    Form("brkpt", fixed("px::breakpoint();"), "order"),
    call("nanosleep.u32", "-", "nanosleep", "sync"),
    call("setmaxnreg.inc.sync.aligned.u32", "b32", "setmaxnreg({0}, true)", "sync"),
    call("setmaxnreg.dec.sync.aligned.u32", "b32", "setmaxnreg({0}, false)", "sync"),
    Form("griddepcontrol.wait", fixed("px::griddepcontrol_wait();"), "sync"),
    Form("griddepcontrol.launch_dependents", fixed("px::griddepcontrol_launch_dependents();"),
         "sync"),
)  # fmt: skip
