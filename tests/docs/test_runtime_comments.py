"""What the emulator's runtime says of the instructions that it models."""

from __future__ import annotations

import re

from conftest import ROOT

RUNTIME = ROOT / "kernels" / "common" / "backend" / "emu" / "runtime"
#: Declared beside the instructions: registers that only name a thread, and shared memory itself.
_NO_INSTRUCTION = {
    "thread_index", "cta_index", "cta_count", "cluster_nctarank", "clusterid_x", "shared_storage",
}  # fmt: skip


def declared() -> set[str]:
    """The functions that kernels' inline ptx calls; what is for the host comes behind them."""
    texts = [file.read_text() for file in RUNTIME.glob("api_*.hpp")]
    text = "".join(text.partition("// Host side")[0] for text in texts)
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
