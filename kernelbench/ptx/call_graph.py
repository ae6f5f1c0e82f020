"""Which functions of a module call which."""

from __future__ import annotations

from collections.abc import Iterable

from kernelbench.ptx.model import Module, PtxFunction


class CallGraph:
    """Which functions of a module call which.

    Attributes:
        functions: Those that the module defines, by name.
        declared: Those that another module would define.
        reached: Those that kernels call, callees of callees too, in the order of the text.
        recursive: The names of those that come back to themselves.
    """

    def __init__(self, module: Module) -> None:
        self.functions = {
            name: each
            for name, each in module.functions.items()
            if each.defined and not each.kernel
        }
        self.declared = {name: each for name, each in module.functions.items() if not each.defined}
        callees = {each.name: _callees(each) for each in module.functions.values()}

        def behind(names: Iterable[str]) -> set[str]:
            found: set[str] = set()
            left = list(names)
            while left:
                for name in callees.get(left.pop(), ()):
                    if name in self.functions and name not in found:
                        found.add(name)
                        left.append(name)
            return found

        from_kernels = behind(module.kernels)
        self.reached = [each for name, each in self.functions.items() if name in from_kernels]
        self.recursive = {name for name in from_kernels if name in behind([name])}


def _callees(function: PtxFunction) -> set[str]:
    return {
        operand
        for statement in function.statements
        if statement.opcode.startswith("call")
        for operand in statement.operands
        if isinstance(operand, str)
    }
