"""Python definitions that are copied with all that they use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelbench.base.errors import UsageError
from kernelbench.lineages.compiled_export import bundle

SOURCE = '''"""A module."""
from __future__ import annotations

import os.path
import collections.abc
from itertools import chain, count
from typing import TYPE_CHECKING

from kernelbench.problems.fused_moe.fp8 import BLOCK

if TYPE_CHECKING:
    from nowhere import Later

#: What is twice a block.
TWICE = 2 * BLOCK
UNUSED = count()


class Base:
    def stream_on(self) -> int:
        """The stream."""
        return TWICE


# Decorated.
@staticmethod
def root(stream: Later) -> str:
    """A Stream."""
    later(stream)
    return os.path.join(*chain([str(Base().stream_on())]), str(isinstance([], collections.abc.Set)))


def later(value: object) -> None:
    root if value else None
'''


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "module.py").write_text(SOURCE)
    return tmp_path / "module.py"


def test_what_is_used_comes_along_and_nothing_else(file: Path) -> None:
    text = bundle([(file, "root")])
    assert text.startswith("import collections.abc\nimport os.path\nfrom itertools import chain\n")
    assert "count" not in text and "UNUSED" not in text and "nowhere" not in text
    assert "#: What is twice a block.\nTWICE" in text and "# Decorated.\n@staticmethod\n" in text
    assert text.index("BLOCK =") < text.index("TWICE =") < text.index("class Base")
    made: dict[str, Any] = {}
    exec(f"from __future__ import annotations\n{text}", made)
    assert made["root"](0) == "256/False"


def test_letters_that_the_server_refuses_are_replaced(file: Path) -> None:
    text = bundle([(file, "root")])
    assert "stream" not in text.lower()
    assert '"""A Queue."""' in text and "def queue_on" in text and "Base().queue_on()" in text


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("later(stream)", "torch.current_stream()", r"module\.py:\d+: \.current_stream"),
        ("import BLOCK", "import BLOCK as B", r"module\.py:9: B cannot be copied"),
        ("fused_moe.fp8 import", "fused_moe.absent import", r"module\.py:9: there is no kern"),
        ("import BLOCK", "import ABSENT as BLOCK", "BLOCK cannot be copied"),
        ("def root", "def other", "defines no root"),
        ("TWICE = 2", "TWICE = = 2", "cannot be copied from"),
    ],
)
def test_what_cannot_be_copied(file: Path, old: str, new: str, said: str) -> None:
    text = SOURCE.replace(old, new, 1)
    file.write_text(text.replace("2 * BLOCK", "2 * B") if " as B\n" in text else text)
    with pytest.raises(UsageError, match=said) as caught:
        bundle([(file, "root")])
    assert "\n" not in str(caught.value)


def test_one_name_for_two_things(file: Path) -> None:
    other = file.with_name("other.py")
    other.write_text("class Base:\n    pass\n")
    with pytest.raises(UsageError, match="Base is one thing in"):
        bundle([(file, "root"), (other, "Base")])
