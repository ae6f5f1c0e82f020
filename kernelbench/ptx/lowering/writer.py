"""Writes one function as C++: names of registers, values of operands, addresses.

A register is a local variable, an unsigned integer of its width (``bool`` for predicates), so that
no value depends on the type that an instruction sees it as. ``px::`` is
``backend/emu/ptx_frontend``.
"""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from collections.abc import Sequence

from kernelbench.ptx.errors import StatementError
from kernelbench.ptx.lowering.call_graph import CallGraph
from kernelbench.ptx.lowering.layout import AddressLayout
from kernelbench.ptx.lowering.names import called, identifier, operand_names, registers_in
from kernelbench.ptx.lowering.registers import SPECIAL_REGISTERS, arrays_of
from kernelbench.ptx.parser.model import (
    SIZES,
    Address,
    Negated,
    Number,
    Operand,
    PtxFunction,
    Real,
    Statement,
    Sum,
    Vector,
)

_SHARED = ("shared", "shared::cta")


class Writer:
    """What translations of statements ask for.

    Args:
        calls: Of the module.

    Attributes:
        arrays: For each list of registers that an instruction fills later, the array they live in.
    """

    def __init__(self, function: PtxFunction, layout: AddressLayout, calls: CallGraph) -> None:
        self.function = function
        self.statement = Statement(0)
        self.layout = layout
        self.calls = calls
        self.arrays = arrays_of(function)
        self._homes = {
            register: f"{array}[{at}]"
            for registers, array in self.arrays.items()
            for at, register in enumerate(registers)
        }
        #: Arrays of tcgen05.ld that nothing in the text so far has waited for.
        self._loading: dict[str, frozenset[str]] = {}
        #: Registers that statements so far have copied from those arrays.
        self._copies: set[Operand] = set()
        #: The last `selp` that chooses between a register and something else.
        self._selected = {
            each: statement
            for statement in function.statements
            if statement.opcode.startswith("selp.") and len(statement.operands) == 4
            for each in statement.operands[1:3]
            if isinstance(each, str)
        }
        self._temporaries = 0
        self._mentions = Counter(
            name
            for statement in function.statements
            for name in {statement.guard, *itertools.chain(*map(operand_names, statement.operands))}
        )

    # ---- names

    def register(self, name: str) -> str:
        """The variable that a register is."""
        return self._homes.get(name) or identifier(name)

    def is_read(self, name: Operand) -> bool:
        """Whether more than the one statement names a register."""
        return isinstance(name, str) and self._mentions[name] > 1

    def selected_if(self, loaded: Operand) -> str:
        """When a ``selp`` takes what the statement loads, if nothing else does; else nothing.

        nvcc makes ``rank ? halo[0] : 0`` a load of what may be unwritten, and a ``selp`` that
        leaves it: the program does not read it then.
        """
        if not isinstance(loaded, str) or self._mentions[loaded] != 2:
            return ""
        select = self._selected.get(loaded)
        if select is None:
            return ""
        _, yes, no, taken = select.operands
        statements = iter(self.function.statements)
        while next(statements) is not self.statement:
            pass
        for each in statements:
            if each is select and yes != no:
                return f"{'' if loaded == yes else '!'}{self.predicate(taken)}"
            written = operand_names(each.operands[0]) if each.operands else set()
            if each is select or each.label or written & operand_names(taken):
                return ""
        return ""

    def array(self, registers: Operand) -> tuple[str, int]:
        """The array of a list of registers that is filled later, and its length."""
        names = registers_in(registers)
        if names not in self.arrays:
            raise StatementError("its registers overlap those of another such instruction")
        return self.arrays[names], len(names)

    def copied(self, target: Operand, source: Operand) -> str:
        """After a move of 32 bits: what the runtime has to do if the source is filled later."""
        if not (source in self._homes or source in self._copies) or not self.function.kernel:
            return ""
        self._copies.add(target)
        return f" px::copied({self.register(str(target))}, {self.register(str(source))});"

    def temporary(self) -> str:
        """A name that nothing else has."""
        self._temporaries += 1
        return f"t{self._temporaries}"

    @staticmethod
    def cpp(kind: str) -> str:
        """The C++ type of a PTX type."""
        return f"px::{kind}"

    @staticmethod
    def expect(operands: Sequence[Operand], *counts: int) -> None:
        """Refuse a statement with another number of operands."""
        if len(operands) not in counts:
            raise StatementError(f"{len(operands)} operands")

    def dependences(self, statement: Statement) -> str:
        """What has to come before a statement that uses registers of a load in flight."""
        if statement.opcode.startswith("tcgen05.ld."):
            registers = registers_in(statement.operands[0]) if statement.operands else ()
            if registers in self.arrays:
                self._loading[self.arrays[registers]] = frozenset(registers)
            return ""
        if statement.opcode.startswith("tcgen05.wait::ld"):
            self._loading.clear()
        if not self._loading:
            return ""
        named = {statement.guard, *itertools.chain(*map(operand_names, statement.operands))}
        used = [array for array, registers in self._loading.items() if registers & named]
        return "".join(f"px::tcgen05_arrived({array}); " for array in used)

    # ---- values

    def value(self, operand: Operand, size: int) -> str:
        """The bits of an operand: an unsigned expression of ``size`` bytes (bool: of 1)."""
        kind = f"px::b{8 * size}"
        if isinstance(operand, str):
            return self._named(operand, kind)
        if isinstance(operand, Number):
            if size > 8:
                raise StatementError("a literal of 128 bits")
            return _literal(operand.value, size)
        if isinstance(operand, Real):
            return _literal(_bits(operand, size), size)
        if isinstance(operand, Sum):
            return f"{kind}({self.layout.address(operand.symbol)} + {operand.offset})"
        if isinstance(operand, Vector):
            part = size // len(operand.items)
            items = ", ".join(self.value(each, part) for each in operand.items)
            return f"px::joined<{kind}>({items})"
        raise StatementError(f"operand {operand}")

    def _named(self, name: str, kind: str) -> str:
        types = self.function.registers
        if name in types:
            register = self.register(name)
            same = types[name] == "pred" or f"px::b{8 * SIZES[types[name]]}" == kind
            return register if same else f"{kind}({register})"
        if name in SPECIAL_REGISTERS:
            return f"{kind}({SPECIAL_REGISTERS[name]})"
        if name in self.calls.functions:
            return f"{kind}(px::address_of(&{called(name)}))"
        return f"{kind}({self.layout.address(name)})"

    def predicate(self, operand: Operand) -> str:
        """A condition."""
        if isinstance(operand, Negated):
            return f"!{self.predicate(operand.operand)}"
        if isinstance(operand, Number):
            return "true" if operand.value else "false"
        if isinstance(operand, str) and self.function.registers.get(operand) == "pred":
            return self.register(operand)
        raise StatementError(f"{operand} is no predicate")

    def typed(self, operand: Operand, kind: str) -> str:
        """An operand as a value of a PTX type."""
        if kind == "pred":
            return self.predicate(operand)
        value = self.value(operand, SIZES[kind])
        if not is_integer(kind):
            return f"__builtin_bit_cast(px::{kind}, {value})"
        return f"px::{kind}({value})" if kind[0] == "s" else value

    def values(self, operand: Operand, size: int) -> list[str]:
        """The elements of a vector operand, or the one of a scalar."""
        items = operand.items if isinstance(operand, Vector) else (operand,)
        return [self.value(each, size) for each in items]

    # ---- results

    def assign(self, target: Operand, kind: str, expression: str) -> str:
        """A statement that stores a value of a PTX type."""
        if isinstance(target, Vector):
            bits, name = 8 * SIZES[kind], self.temporary()
            parts = [f"const auto {name} = px::stored<px::b{bits}>({expression});"]
            part = f"px::b{bits // len(target.items)}"
            for at, item in enumerate(target.items):
                parts.append(self.assign(item, part[4:], f"px::part<{part}, {at}>({name})"))
            return "{ " + " ".join(parts) + " }"
        if target == "_":
            return f"(void)({expression});"
        types = self.function.registers
        if not isinstance(target, str) or target not in types:
            raise StatementError(f"{target} is no register")
        if (types[target] == "pred") != (kind == "pred"):
            raise StatementError(f"a value of type {kind} for {target}")
        if kind == "pred":
            return f"{self.register(target)} = {expression};"
        # A signed value extends its sign where the register is wider.
        if not is_integer(kind):
            expression = f"__builtin_bit_cast(px::b{8 * SIZES[kind]}, {expression})"
        return f"{self.register(target)} = {expression};"

    # ---- addresses

    def shared(self, address: Operand) -> str:
        """An address of the shared windows, 32 bits."""
        base, offset = self._plain(address)
        return f"({self.value(base, 4)} + {offset & 0xFFFFFFFF:#x}u)"

    def generic(self, address: Operand) -> str:
        """A host pointer, from a generic or a global address."""
        base, offset = self._plain(address)
        return f"px::pointer({self.value(base, 8)} + {offset & (1 << 64) - 1:#x}ull)"

    def pointer(self, address: Operand, space: str) -> str:
        """A host pointer, from an address in a state space (empty: generic)."""
        base, offset = self._plain(address)
        plus = f" + {offset & 0xFFFFFFFF:#x}u"
        if space in _SHARED:
            return f"px::shared_at(own_shared, shared_window, {self.value(base, 4)}{plus})"
        if space == "shared::cluster":
            return f"px::cluster_at({self.value(base, 4)}{plus})"
        if space.startswith("param"):
            return self._parameter(base, offset)
        if space == "local":
            # Of a caller's array the offset may be negative.
            return f"(local + px::s32({self.value(base, 4)}{plus}))"
        return self.generic(address)

    def accessed(self, address: Operand, space: str, size: int) -> str:
        """The same, for an access of ``size`` bytes, which a thread's own memory is checked for."""
        where = self.pointer(address, space)
        if space != "local":
            return where
        extent = self.layout.local_bytes if self.function.kernel else 0
        return f"px::own<{size}>({where}, local, {extent}u)"

    def _parameter(self, base: Operand, offset: int) -> str:
        named = self.layout.parameter(base) if isinstance(base, str) else ""
        if named:
            return f"({named} + {offset})"
        if not self.function.kernel:
            raise StatementError("a parameter by its address, in a function that is called")
        return f"(parameters + ({self.value(base, 4)} + {offset & 0xFFFFFFFF:#x}u))"

    def barrier(self, address: Operand, space: str) -> str:
        """The address of an mbarrier in the shared windows, 32 bits."""
        if space.startswith("shared"):
            return self.shared(address)
        return f"px::to_shared({self.generic(address)})"

    @staticmethod
    def _plain(address: Operand) -> tuple[Operand, int]:
        if not isinstance(address, Address) or address.coordinates:
            raise StatementError(f"{address} is no plain address")
        return address.base, address.offset


def is_integer(kind: str) -> bool:
    """Whether values of a PTX type are bits or integers."""
    return kind[0] in "bus" and kind[1:].isdigit()


def _literal(value: int, size: int) -> str:
    """A number of ``size`` bytes."""
    suffix = {4: "u", 8: "ul"}.get(size)
    digits = f"{value & (1 << 8 * size) - 1:#x}"
    return digits + suffix if suffix else f"px::b{8 * size}({digits})"


def _bits(real: Real, size: int) -> int:
    """A literal's bits in the format of ``size`` bytes."""
    if size == real.size:
        return real.bits
    formats = {4: "<f", 8: "<d"}
    if size not in formats:
        raise StatementError(f"a floating-point literal of {8 * size} bits")
    value = struct.unpack(formats[real.size], real.bits.to_bytes(real.size, "little"))[0]
    try:
        return int.from_bytes(struct.pack(formats[size], value), "little")
    except OverflowError:
        raise StatementError("a floating-point literal beyond its type") from None
