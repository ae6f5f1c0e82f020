"""What launches of a script leave in small tensors that nothing else changes before the next one.

The runtime notes words that strong accesses find changed; a kernel that counts by plain loads and
stores, or adds to a result, is seen here by what its tensors hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kernelbench.emulator.findings import Access, Finding
from kernelbench.emulator.identity import identity_of

#: Larger tensors are no counters, and results that are added to are seen in small ones, too.
_MOST_BYTES = 1 << 18
_KIND = "not-reset"


class Leftovers:
    """What the kernels of a script leave behind.

    Attributes:
        set_back: The name of a tensor that a launch is to find as the kernel's first one did.
    """

    def __init__(self) -> None:
        self.set_back = ""
        self._first: dict[tuple[str, int], bytes] = {}
        self._left: dict[tuple[str, int], bytes] = {}

    def meet(self, kernel: str, tensors: Mapping[str, Any]) -> list[Finding]:
        """A launch of a kernel begins: a note of each tensor that holds what the launch before has
        left, and not what that one found.

        Args:
            tensors: Arrays of bytes by the parameter's name.
        """
        found = []
        for name, array in _small(tensors):
            key, held = (kernel, array.ctypes.data), array.tobytes()
            if held != self._left.get(key):
                self._first[key] = held
            elif held != self._first[key]:
                found.append(_note(kernel, name))
                if name == self.set_back:
                    array.data.cast("B")[:] = self._first[key]
        return found

    def leave(self, kernel: str, tensors: Mapping[str, Any]) -> None:
        """It has ended."""
        for _, array in _small(tensors):
            self._left[kernel, array.ctypes.data] = array.tobytes()


def _small(tensors: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, array) for name, array in tensors.items() if array.nbytes <= _MOST_BYTES)


def _note(kernel: str, name: str) -> Finding:
    text = (
        f"{kernel} finds in {name} what its launch before has left there: the script ends well if "
        "it finds what was there before the first"
    )
    identity = identity_of(_KIND, kernel, name, ())
    return Finding(_KIND, text, Access(), None, name, (), 0, -1, -1, 1, kernel, identity)
