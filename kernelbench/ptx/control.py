"""Control flow, and the whole grid's instructions (PTX ISA 9.1, 9.7.12, 9.7.13, 9.7.19)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelbench.ptx.calls import lower_call
from kernelbench.ptx.errors import StatementError
from kernelbench.ptx.forms import Form, Lower
from kernelbench.ptx.names import identifier

if TYPE_CHECKING:
    from kernelbench.ptx.model import Operand
    from kernelbench.ptx.writer import Writer


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


def _sleep(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    writer.expect(operands, 1)
    return "px::nanosleep();"


def _registers(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    writer.expect(operands, 1)
    up = "true" if chosen[0] == "inc" else "false"
    return f"px::setmaxnreg({writer.value(operands[0], 4)}, {up});"


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
    Form("nanosleep.u32", _sleep, "sync"),
    Form("setmaxnreg.{inc|dec}.sync.aligned.u32", _registers, "sync"),
    Form("griddepcontrol.wait", fixed("px::griddepcontrol_wait();"), "sync"),
    Form("griddepcontrol.launch_dependents", fixed("px::griddepcontrol_launch_dependents();"),
         "sync"),
)  # fmt: skip
