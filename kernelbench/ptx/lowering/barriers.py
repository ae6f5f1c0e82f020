"""mbarriers (PTX ISA 9.1, 9.7.13.15)."""

from __future__ import annotations

from collections.abc import Sequence

from kernelbench.ptx.errors import StatementError
from kernelbench.ptx.lowering.forms import Form, call
from kernelbench.ptx.lowering.writer import Writer
from kernelbench.ptx.parser.model import Address, Number, Operand

_LOCAL = "{.shared::cta|.shared|}"
_SPACE = "{.shared::cta|.shared::cluster|.shared|}"
_SCOPE = "{.cta|.cluster|}"


def _arrive(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``mbarrier.arrive…  {state|_,} [a]{, count}``."""
    operation, order, _, space = chosen
    given = list(operands)
    token: Operand = "_" if isinstance(given[0], Address) else given.pop(0)
    writer.expect(given, 2) if "expect_tx" in operation else writer.expect(given, 1, 2)
    count = given[1] if len(given) > 1 else Number(1)
    if operation.startswith("arrive_drop") and "expect_tx" not in operation and count != Number(1):
        raise StatementError("a count")
    release = "false" if order == "relaxed" else "true"
    name = operation.removesuffix(".noComplete").replace(".", "_")
    bar = writer.barrier(given[0], space)
    call = f"px::mbarrier_{name}({bar}, {writer.value(count, 4)}, {release});"
    if token == "_" or not writer.is_read(token):
        return call
    # The phase that the arrival is of.
    state = writer.temporary()
    taken = f"const px::b64 {state} = px::mbarrier_state({bar});"
    return f"{{ {taken} {call} {writer.assign(token, 'b64', state)} }}"


def _wait(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``mbarrier.{test_wait,try_wait}{.parity} p, [a], parity or state{, hint}``."""
    _, by_parity, order, scope, space = chosen
    writer.expect(operands, 3, 4)
    barrier, parity = (
        writer.barrier(operands[1], space),
        writer.value(operands[2], 4 if by_parity else 8),
    )
    parity = parity if by_parity else f"px::b32({parity})"
    acquire = "false" if order == "relaxed" else "true"
    call = f"px::mbarrier_test({barrier}, {parity}, {acquire}, "
    call += f"px::Scope::{'kCluster' if scope == 'cluster' else 'kCta'})"
    return writer.assign(operands[0], "pred", call)


BARRIER_FORMS: tuple[Form, ...] = (
    call(f"mbarrier.init{_LOCAL}.b64", "barrier:$0 b32", "mbarrier_init", "sync"),
    call(f"mbarrier.inval{_LOCAL}.b64", "barrier:$0", "mbarrier_inval", "sync"),
    Form("mbarrier.{arrive|arrive.noComplete|arrive_drop|arrive_drop.noComplete|arrive.expect_tx|"
         "arrive_drop.expect_tx}{.release|.relaxed|}" + _SCOPE + _SPACE
         + ".b64", _arrive, "sync"),
    # Which order nothing.
    call("mbarrier.{expect_tx|complete_tx}{.relaxed.cta|.relaxed.cluster|}" + _SPACE + ".b64",
         "barrier:$2 b32", "mbarrier_$0", "sync"),
    # CUTLASS writes the space first, which ptxas takes, too.
    call("mbarrier.{expect_tx|complete_tx}.{shared::cta|shared::cluster}{.relaxed.cta|"
         ".relaxed.cluster}.b64", "barrier:$1 b32", "mbarrier_$0", "sync"),
    Form("mbarrier.{test_wait|try_wait}{.parity|}{.acquire|.relaxed|}" + _SCOPE + _LOCAL + ".b64",
         _wait, "sync"),
)  # fmt: skip
