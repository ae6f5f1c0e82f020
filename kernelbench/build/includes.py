"""Which project files a source includes, by their text: for the code lock and for what is said of a
step before it is built. What a build in the cache has read, its compiler says.

The search is textual, as a compiler would look for each name: beside the file that includes it,
then in the folders of ``-I`` in order. Conditions are not evaluated, so that no file is missed for
one; a name that no folder has is the compiler's own header. Where a directive cannot be read so
(``#include MACRO``), every header of the folders counts.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_HEADERS = (".h", ".hpp", ".cuh", ".inl")
_PLAIN = re.compile(
    rb'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)[ \t\r]*(?:$|//|/\*)', re.MULTILINE
)
# Any spelling of a directive that reads a file: digraph, comment or line break inside, a macro.
_ANY = re.compile(
    rb"^(?:\s|/\*.*?\*/)*(?:#|%:)(?:[ \t]|\\\r?\n|/\*.*?\*/)*(?:include(?:_next)?|import|embed)\b"
    rb"|__has_include|__has_embed",
    re.MULTILINE,
)
_TOKEN = re.compile(
    r"""(?P<comment>//(?:\\\r?\n|[^\n])*|/\*.*?\*/)
      | (?P<space>[^\S\n]+|\\\r?\n)
      | (?P<lines>\n\s*)
      | (?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"
      | "(?:\\.|[^"\\\n])*"
      | \.?[0-9](?:[eEpP][+-]|'?[\w.])*
      | [^\W\d]\w*
      | '(?:\\.|[^'\\\n])*'
      | %:|.""",
    re.VERBOSE | re.DOTALL,
)
# Code that may say on what line of what file it is.
_KNOWS_ITS_PLACE = re.compile(r"\b(?:__LINE__|__FILE__|__COUNTER__|source_location|assert)\b")


@dataclass(frozen=True)
class Reached:
    """A project file that is included.

    Attributes:
        label: Its name, which does not depend on where the checkout is: the number of the folder
            in which it was found, and the path below it.
    """

    label: str
    path: Path

    def read(self) -> bytes:
        """The bytes of the file."""
        return self.path.read_bytes()


def reached_files(sources: Sequence[Path], include_dirs: Sequence[Path] = ()) -> list[Reached]:
    """The sources and every file that they include, directly or not, sorted by label.

    Args:
        include_dirs: As passed with ``-I``, in order.

    Raises:
        FileNotFoundError: If a source is missing.
    """
    beside = [*dict.fromkeys(source.parent for source in sources)]
    roots = [*beside, *include_dirs]
    found: dict[Path, bytes] = {}
    waiting = [*sources]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found[path] = content = path.read_bytes()
        names = _includes(content)
        if names is None:
            waiting += _every_header(beside, include_dirs)
            continue
        for quoted, name in names:
            if included := find_included(name, [*([path.parent] if quoted else []), *include_dirs]):
                waiting.append(included)
    return sorted((Reached(_label(path, roots), path) for path in found), key=lambda r: r.label)


@functools.lru_cache(maxsize=4096)
def _includes(content: bytes) -> tuple[tuple[bool, str], ...] | None:
    """What a file includes, each with whether it is in quotes; None if that cannot be read."""
    plain = [*_PLAIN.finditer(content)]
    if len(plain) != len(_ANY.findall(content)):
        return None
    return tuple((m[1] is not None, os.fsdecode(m[1] or m[2])) for m in plain)


def find_included(name: str, folders: Sequence[Path]) -> Path | None:
    """The file that an include means: the first of that name in the folders; None if none."""
    for folder in folders:
        path = Path(os.path.normpath(folder / name))
        if path.is_file():
            return path
    return None


def _every_header(beside: Sequence[Path], include_dirs: Sequence[Path]) -> Iterator[Path]:
    # Beside a source only its own folder is searched by #include "..."; -I folders are deep.
    for folder in beside:
        yield from (f for f in folder.glob("*") if f.suffix in _HEADERS and f.is_file())
    for folder in include_dirs:
        yield from (f for f in folder.rglob("*") if f.suffix in _HEADERS and f.is_file())


def _label(path: Path, roots: Sequence[Path]) -> str:
    # The deepest folder, so that a backend's file does not depend on the order of the others.
    at = [(len(root.parts), -i) for i, root in enumerate(roots) if path.is_relative_to(root)]
    if at:
        i = -max(at)[1]
        return f"{i}:{path.relative_to(roots[i]).as_posix()}"
    return f"-:{Path(os.path.relpath(path, roots[0])).as_posix()}"


@functools.lru_cache(maxsize=4096)
def without_comments(content: bytes) -> str:
    """What a compiler makes of a file's text: comments and the kind of white space do not count.

    A file that may ask for its own lines (``__LINE__``, ``assert``) is returned as it is.
    """
    text = content.decode("utf-8", "surrogateescape")
    if _KNOWS_ITS_PLACE.search(text):
        return text
    parts: list[str] = []
    between, directive = "\n", False
    for token in _TOKEN.finditer(text):
        kind = token.lastgroup
        if kind == "lines":
            between = "\n"
        elif kind in ("comment", "space"):
            between = between or " "
        else:
            # Only around a directive does a line's end say something.
            starts = between == "\n" and token[0] in ("#", "%:")
            if between:
                parts.append("\n" if between == "\n" and (starts or directive) else " ")
                directive = starts if between == "\n" else directive
            parts.append(token[0])
            between = ""
    return "".join(parts).strip()


@functools.lru_cache(maxsize=4096)
def without_comment_texts(text: str) -> str:
    """A file's text without its comments, every line where it was."""

    def kept(token: re.Match[str]) -> str:
        return "\n" * token[0].count("\n") if token.lastgroup == "comment" else token[0]

    return _TOKEN.sub(kept, text)
