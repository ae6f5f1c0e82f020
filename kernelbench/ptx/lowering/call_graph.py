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
        callees = {each.name: _named_in(each) for each in module.functions.values()}

        def behind(names: Iterable[str]) -> set[str]:
            found: set[str] = set()
            left = list(names)
            while left:
                for name in callees.get(left.pop(), ()):
                    if name in self.functions and name not in found:
                        found.add(name)
                        left.append(name)
            return found

        # Tables of virtual functions are variables.
        stored = {of.symbol for each in module.symbols.values() for _, of in each.addresses}
        reached = behind(module.kernels) | (stored & self.functions.keys()) | behind(stored)
        self.reached = [each for name, each in self.functions.items() if name in reached]


def _named_in(function: PtxFunction) -> set[str]:
    """What a function calls, or takes the address of, among other names."""
    return {
        operand
        for statement in function.statements
        for operand in statement.operands
        if isinstance(operand, str)
    }
