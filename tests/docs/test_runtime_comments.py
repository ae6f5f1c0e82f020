"""What the emulator's runtime says of the instructions that it models."""

from __future__ import annotations

import re

from conftest import ROOT

RUNTIME = ROOT / "kernels" / "common" / "backend" / "emu" / "runtime"
#: Declared beside the instructions: registers that only name a thread, and the host side.
_NO_INSTRUCTION = {
    "thread_index", "cta_index", "cta_count", "cluster_nctarank", "clusterid_x", "shared_storage",
    "sm_count", "device_malloc", "device_free", "pinned_malloc", "pinned_free", "launch",
    "ctas_per_sm", "encode_tensor_map",
}  # fmt: skip


def declared() -> set[str]:
    """The functions that kernels' inline ptx calls."""
    text = "".join(file.read_text() for file in RUNTIME.glob("api_*.hpp"))
    return set(re.findall(r"^[\w:*&]+[ *&]+(\w+)\(", text, re.MULTILINE)) - _NO_INSTRUCTION


def test_every_instruction_is_named_where_it_is_modelled() -> None:
    """``// PTX: …`` above the definition: its form and section, or the instruction's."""
    said = {}
    for file in RUNTIME.glob("*.cpp"):
        for comment, name in re.findall(
            r"((?:^//.*\n)*)^[\w:*&]+[ *&]+(\w+)\([^;{]*\{", file.read_text(), re.MULTILINE
        ):
            said.setdefault(name, []).append(comment)
    names = declared()
    assert len(names) > 60
    assert names <= said.keys()
    assert not {name for name in names if not any("// PTX: " in text for text in said[name])}
