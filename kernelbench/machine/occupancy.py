"""How many CTAs of a kernel fit on one SM at once, and which resource ends it.

The arithmetic is that of the CUDA toolkit's ``cuda_occupancy.h`` (a test compares the two), with
the SM's limits from the CUDA programming guide's table of compute capabilities. Tensor memory is
added to it: a CTA that cannot allocate its columns waits for another one to free them (PTX ISA,
``tcgen05.alloc``), so it is resident but does not run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernelbench.machine.arch import SmLimits

_WARP = 32
_SUB_PARTITIONS = 4
_REGISTER_UNIT = 256  # registers, per warp
_SHARED_UNIT = 128  # bytes
_MAX_REGISTERS_PER_THREAD = 256
_MAX_THREADS_PER_CTA = 1024


@dataclass(frozen=True)
class CtaNeeds:
    """What one CTA takes."""

    registers: int  #: Per thread.
    threads: int
    shared_bytes: int  #: Static and dynamic together.
    tmem_columns: int = 0
    barriers: int = 0  #: Named barriers; ptxas counts barrier 0 too.


@dataclass(frozen=True)
class Occupancy:
    """``ctas`` fit on an SM; ``limits`` names what keeps one more from it."""

    ctas: int
    limits: tuple[str, ...]


def occupancy(needs: CtaNeeds, sm: SmLimits) -> Occupancy:
    """How many such CTAs an SM holds."""
    fits = {
        "registers": _by_registers(needs, sm),
        "threads": _by_threads(needs, sm),
        "shared memory": _by_shared_memory(needs, sm),
        "CTAs": sm.ctas,
    }
    if needs.barriers and sm.barriers:
        fits["barriers"] = sm.barriers // needs.barriers
    if needs.tmem_columns and sm.tmem_columns:
        fits["tensor memory"] = sm.tmem_columns // needs.tmem_columns
    least = min(fits.values())
    return Occupancy(least, tuple(name for name, count in fits.items() if count == least))


def left_beside(needs: CtaNeeds, ctas: int, sm: SmLimits) -> SmLimits:
    """What an SM has left beside CTAs.

    Args:
        needs: Of each.
        ctas: How many there are.
        sm: What it has in all.
    """
    warps = ctas * _warps(needs)
    return replace(
        sm, registers=sm.registers - warps * _round_up(needs.registers * _WARP, _REGISTER_UNIT),
        threads=sm.threads - warps * _WARP, ctas=sm.ctas - ctas,
        shared_bytes=sm.shared_bytes - ctas * _shared_of(needs, sm),
    )  # fmt: skip


def _warps(needs: CtaNeeds) -> int:
    return -(-needs.threads // _WARP)


def _by_threads(needs: CtaNeeds, sm: SmLimits) -> int:
    if needs.threads > _MAX_THREADS_PER_CTA:
        return 0
    return sm.threads // _WARP // _warps(needs)


def _by_registers(needs: CtaNeeds, sm: SmLimits) -> int:
    per_warp = _round_up(needs.registers * _WARP, _REGISTER_UNIT)
    # The launch is checked as if a CTA's warps filled all sub-partitions alike.
    at_launch = per_warp * _round_up(_warps(needs), _SUB_PARTITIONS)
    if needs.registers > _MAX_REGISTERS_PER_THREAD or at_launch > sm.registers:
        return 0
    if per_warp == 0:
        return sm.ctas
    warps = sm.registers // _SUB_PARTITIONS // per_warp * _SUB_PARTITIONS
    return warps // _warps(needs)


def _by_shared_memory(needs: CtaNeeds, sm: SmLimits) -> int:
    return sm.shared_bytes // _shared_of(needs, sm)


def _shared_of(needs: CtaNeeds, sm: SmLimits) -> int:
    return _round_up(needs.shared_bytes + sm.shared_reserved, _SHARED_UNIT)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
