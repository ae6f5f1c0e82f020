"""Which functions of a module call which."""

from __future__ import annotations

from collections.abc import Iterable

from kernelbench.ptx.parser.model import Module, PtxFunction


class CallGraph:
    """Which functions of a module call which.

    Attributes:
        functions: Those that the module defines, by name.
        declared: Those that another module would define.
        reached: Those that kernels call, callees of callees too, and those whose address is taken,
            in the order of the text.
    """

    def __init__(self, module: Module) -> None:
        self.functions = {
            name: each
            for name, each in module.functions.items()
            if each.defined and not each.kernel
        }
        self.declared = {name: each for name, each in module.functions.items() if not each.defined}
        self._named = {each.name: _named_in(each) for each in module.functions.values()}
        self._by_address = {each.name for each in module.functions.values() if _has_address(each)}
        self._every: set[str] = set()

        # Tables of virtual functions are variables.
        stored = {of.symbol for each in module.symbols.values() for _, of in each.addresses}
        reached = self.behind([*module.kernels, *stored]) | (stored & self.functions.keys())
        self.reached = [each for name, each in self.functions.items() if name in reached]
        self._every = reached

    def behind(self, names: Iterable[str]) -> set[str]:
        """The functions that some functions call, callees of callees too: by address all."""
        found: set[str] = set()
        left = list(names)
        while left:
            of = left.pop()
            named = self._named.get(of, set()) | (self._every if of in self._by_address else set())
            new = (named & self.functions.keys()) - found
            found |= new
            left += new
        return found


def _named_in(function: PtxFunction) -> set[str]:
    """What a function calls, or takes the address of, among other names."""
    return {
        operand
        for statement in function.statements
        for operand in statement.operands
        if isinstance(operand, str)
    }


def _has_address(function: PtxFunction) -> bool:
    """Whether it calls what a register has the address of."""
    return any(
        not function.registers.keys().isdisjoint(map(str, statement.operands))
        for statement in function.statements
        if statement.opcode.startswith("call")
    )
