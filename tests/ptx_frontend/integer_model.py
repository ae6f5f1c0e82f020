"""What PTX says that integer instructions do (PTX ISA 9.1, 9.7.1, 9.7.8, 9.7.9), in Python."""

from __future__ import annotations

from collections.abc import Sequence

Value = int


def width(kind: str) -> int:
    return 1 if kind == "pred" else int(kind[1:])


def signed(value: int, kind: str) -> int:
    """Bits as the value that a type gives them."""
    bits = width(kind)
    value &= (1 << bits) - 1
    return value - (1 << bits) if kind[0] == "s" and value >> bits - 1 else value


def clamped(value: int, kind: str) -> int:
    bits = width(kind)
    least = -(1 << bits - 1) if kind[0] == "s" else 0
    most = (1 << bits - 1) - 1 if kind[0] == "s" else (1 << bits) - 1
    return max(least, min(most, value))


def integer_result(opcode: str, operands: Sequence[int], types: Sequence[str]) -> int | None:
    """The result's bits, to be cut to its type; None for an instruction of floats.

    Args:
        operands: Bits.
        types: Of the result and of the operands.
    """
    root, *modifiers = opcode.split(".")
    if any(kind[0] == "f" or kind.startswith("bf") for kind in types):
        return None
    kind = types[1]
    n = width(kind)
    values = [signed(*each) for each in zip(operands, types[1:], strict=True)]
    a, b, c = (*values, 0, 0, 0)[:3]
    high = n if "hi" in modifiers else 0
    if root in ("add", "sub"):
        if modifiers[-1].endswith("x2"):
            return _pairs(root, modifiers, operands)
        total = a + b if root == "add" else a - b
        return clamped(total, kind) if "sat" in modifiers else total
    if root == "mul":
        return a * b >> high
    if root == "mad":
        return (a * b >> high) + c
    if root in ("div", "rem"):
        return _divided(root, a, b)
    if root == "vabsdiff4":
        parts = [abs((a >> at & 255) - (b >> at & 255)) for at in (0, 8, 16, 24)]
        return c + sum(parts) if "add" in modifiers else int.from_bytes(bytes(parts), "little")
    if root in ("min", "max"):
        if any(each.endswith("x2") for each in modifiers):
            return _pairs(root, modifiers, operands)
        found = min(a, b) if root == "min" else max(a, b)
        return max(found, 0) if "relu" in modifiers else found
    if root in ("abs", "neg"):
        return abs(a) if root == "abs" else -a
    if root in ("and", "or", "xor"):
        return {"and": a & b, "or": a | b, "xor": a ^ b}[root]
    if root in ("not", "cnot"):
        return ~a if root == "not" else int(a == 0)
    if root in ("shl", "shr"):
        return a << b if root == "shl" and b < n else a >> min(b, n) if root == "shr" else 0
    if root == "cvt":
        return clamped(a, types[0]) if "sat" in modifiers else a
    if root in ("sad", "mul24", "mad24"):
        return _of_24_bits(root, modifiers, a, b, c, kind)
    if root in ("dp4a", "dp2a"):
        return _products(root, modifiers, operands)
    return _bits(root, modifiers, a, operands, n, kind)


def _of_24_bits(root: str, modifiers: Sequence[str], a: int, b: int, c: int, kind: str) -> int:
    if root == "sad":
        return c + abs(a - b)
    low = [each & 0xFFFFFF for each in (a, b)]
    if kind[0] == "s":
        low = [each - (1 << 24) if each >> 23 else each for each in low]
    product = low[0] * low[1]
    found = product >> 16 if "hi" in modifiers else product
    return signed(found, kind) + (c if root == "mad24" else 0)


def _products(root: str, modifiers: Sequence[str], operands: Sequence[int]) -> int:
    """dp4a and dp2a: the types of a and b are the last two modifiers."""
    of_a, of_b = (each[0] for each in modifiers[-2:])
    parts, size = (4, 8) if root == "dp4a" else (2, 16)
    first = 2 if "hi" in modifiers else 0
    return operands[2] + sum(
        signed(operands[0] >> size * i, f"{of_a}{size}")
        * signed(operands[1] >> 8 * (first + i), f"{of_b}8")
        for i in range(parts)
    )


def _pairs(root: str, modifiers: Sequence[str], operands: Sequence[int]) -> int:
    kind, found = next(each for each in modifiers if each.endswith("x2"))[:-2], 0
    for shift in (0, 16):
        a, b = (signed(each >> shift, kind) for each in operands)
        value = {"add": a + b, "min": min(a, b), "max": max(a, b)}[root]
        found |= ((max(value, 0) if "relu" in modifiers else value) & 0xFFFF) << shift
    return found


def _divided(root: str, a: int, b: int) -> int:
    if b == 0:
        return -1  # on an H200; PTX leaves it open
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient if root == "div" else a - quotient * b


def _bits(
    root: str, modifiers: Sequence[str], a: int, operands: Sequence[int], n: int, kind: str
) -> int:
    text = f"{a & (1 << n) - 1:0{n}b}"
    if root == "popc":
        return text.count("1")
    if root == "clz":
        return n - len(text.lstrip("0"))
    if root == "brev":
        return int(text[::-1], 2)
    if root == "bmsk":
        position, width = operands
        if modifiers[0] == "wrap":
            position, width = position % 32, width % 32
        ones = "1" * min(width, 32) + "0" * min(position, 32)
        return int(ones[-32:] or "0", 2)
    if root == "bfind":
        found = text.find("0" if a < 0 else "1")
        if "shiftamt" in modifiers:
            return 0xFFFFFFFF if found < 0 else found
        return 0xFFFFFFFF if found < 0 else n - 1 - found
    if root in ("bmsk", "szext"):
        return _mask(root, modifiers, operands, kind)
    if root == "fns":
        return _nth_set(*operands)
    if root == "shf":
        low, high, amount = operands
        amount = amount % 32 if modifiers[1] == "wrap" else min(amount, 32)
        both = high << 32 | low
        return both << amount >> 32 if modifiers[0] == "l" else both >> amount
    if root == "bfe":
        return _field(a, operands[1] & 255, operands[2] & 255, n, kind)
    if root == "bfi":
        field, base, position, length = operands
        position, length = position & 255, length & 255
        mask = ((1 << length) - 1 << position) & (1 << n) - 1
        return base & ~mask | field << position & mask
    if root == "lop3":
        x, y, z, table = operands
        return sum(
            (table >> (4 * (x >> i & 1) + 2 * (y >> i & 1) + (z >> i & 1)) & 1) << i
            for i in range(32)
        )
    if root == "prmt":
        selectors = operands[2]
        if modifiers[-1] in _MODES:
            selectors = int(_MODES[modifiers[-1]][selectors & 3], 16)
        return _permuted(operands[1] << 32 | operands[0], selectors)
    raise AssertionError(f"no model of {root}")


def _field(a: int, position: int, length: int, n: int, kind: str) -> int:
    """PTX's pseudocode, bit by bit."""
    unsigned = a & (1 << n) - 1
    sign = 0
    if kind[0] == "s" and length:
        sign = unsigned >> min(position + length - 1, n - 1) & 1
    return sum(
        (unsigned >> position + i & 1 if i < length and position + i < n else sign) << i
        for i in range(n)
    )


def _permuted(source: int, selectors: int) -> int:
    out = 0
    for i in range(4):
        selector = selectors >> 4 * i & 15
        byte = source >> 8 * (selector & 7) & 255
        out |= ((255 if byte & 128 else 0) if selector & 8 else byte) << 8 * i
    return out


#: PTX ISA 9.1, 9.7.9.7: the source byte of each byte of the result, by the low bits of the control.
_MODES = {
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}


def _mask(root: str, modifiers: Sequence[str], operands: Sequence[int], kind: str) -> int:
    """bmsk, szext: bit by bit."""
    a, b, clamps = operands[0], operands[1], "clamp" in modifiers
    if root == "bmsk":
        first = a if clamps else a & 31
        count = b if clamps else b & 31
        return sum(1 << i for i in range(32) if first <= i < first + count)
    count = min(b, 32) if clamps else b & 31
    low = a & (1 << count) - 1
    negative = kind[0] == "s" and 0 < count < 32 and a >> count - 1 & 1
    return low - (1 << count) if negative else low


def _nth_set(mask: int, base: int, offset: int) -> int:
    """fns: PTX's words for an index of a set bit from a base."""
    offset = signed(offset, "s32")
    if offset == 0:
        return base if base < 32 and mask >> base & 1 else 0xFFFFFFFF
    places = range(base, 32) if offset > 0 else range(base, -1, -1) if base < 32 else ()
    found = [i for i in places if mask >> i & 1]
    return found[abs(offset) - 1] if len(found) >= abs(offset) else 0xFFFFFFFF
