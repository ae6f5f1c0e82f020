"""Where symbols are: shared memory, parameters, local memory, module variables."""

from __future__ import annotations

from collections.abc import Iterable

from kernelbench.ptx.errors import StatementError
from kernelbench.ptx.lowering.names import block, operand_names, variable
from kernelbench.ptx.parser.model import Module, PtxFunction, Symbol


def placed(symbols: Iterable[Symbol]) -> tuple[dict[str, int], int]:
    """Offsets in declaration order, each aligned; and the bytes of all."""
    offsets, end = {}, 0
    for symbol in symbols:
        end = -(-end // symbol.align) * symbol.align
        offsets[symbol.name] = end
        end += symbol.size
    return offsets, end


def _shared_of(module: Module, function: PtxFunction) -> list[Symbol]:
    """The shared variables of a kernel: its own, behind those of functions that may be called.

    Those come first, since a function has one place for each, whichever kernel calls it.
    """
    shared = [each for each in module.symbols.values() if each.space == "shared"]
    if not shared:
        return []
    called = set().union(
        *(_named_in(each) for each in module.functions.values() if not each.kernel)
    )
    common = [each for each in shared if each.name in called]
    if any(not each.size for each in common):
        return shared
    own = _named_in(function) - called
    return [*common, *(each for each in shared if each.name in own)]


def _named_in(function: PtxFunction) -> set[str]:
    return {
        name
        for statement in function.statements
        for operand in statement.operands
        for name in operand_names(operand)
    }


class AddressLayout:
    """Addresses of the names that a function sees, as C++.

    Names in windows (shared, param, local) are offsets there, 32 bits: so newer compilers keep
    them, and ``cvta`` makes generic addresses of them.

    Attributes:
        shared: Offsets of shared variables; those of dynamic shared memory follow the static ones.
        static_shared: Bytes of shared memory that the module takes itself.
        parameters: Offsets of a kernel's parameters.
        parameter_bytes: Of all of them.
        passed: What calls pass, by name: a ``.func``'s parameters and results, and those of the
            calls in a function. Each is a block of memory of its own.
    """

    def __init__(self, module: Module, function: PtxFunction) -> None:
        shared = _shared_of(module, function)
        self.shared, end = placed(each for each in shared if each.size)
        dynamic = [each for each in shared if not each.size]
        align = max((each.align for each in dynamic), default=1)
        self.static_shared = -(-end // align) * align
        self.shared |= dict.fromkeys((each.name for each in dynamic), self.static_shared)
        self.parameters, self.parameter_bytes = placed(
            function.parameters if function.kernel else ()
        )
        own = function.locals.values()
        self.passed = {each.name: each for each in own if each.space == "param"}
        if not function.kernel:
            self.passed |= {each.name: each for each in (*function.results, *function.parameters)}
        self._local, self.local_bytes = placed(each for each in own if each.space == "local")
        self._module = module

    def parameter(self, name: str) -> str:
        """A host pointer to a parameter of a kernel or of a call, as C++; empty for other names."""
        if name in self.passed:
            return block(name)
        return f"(parameters + {self.parameters[name]}u)" if name in self.parameters else ""

    def address(self, name: str) -> str:
        """A C++ expression.

        Raises:
            StatementError: For a name that is nothing in memory.
        """
        if name in self.shared:
            return f"(shared_window + {self.shared[name]}u)"
        if name in self.parameters:
            return f"{self.parameters[name]}u"
        if name in self._local:
            return f"{self._local[name]}u"
        if name in self.passed:
            raise StatementError("the address of a function's parameter")
        if name in self._module.symbols:
            return f"px::address_of({variable(name)})"
        if name in self._module.kernels:
            return f'px::address_of("{name}")'
        raise StatementError(f"{name} is not known")
