"""What a build has read, and where the compiler looked: whether it would read the same now.

As ccache's direct mode does, but for headers that appear, too. A compiler says which files it has
read (``SUNPRO_DEPENDENCIES``, which every pass of nvcc's host compiler adds to, while ``-MD`` of
nvcc leaves out the device's pass) and in which folders it looks for a name. A build may be used
while all these files are as they were, and each name is found in the same folders as it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: A file or folder: the number of the root that it is below, -1 for none, and its path there.
_Label = tuple[int, str]

_RULE = re.compile(r"(?:\\.|[^:\\]|:(?=\S))*:(?=\s|$)(.*)")
_WORD = re.compile(r"(?:\\.|\$\$|[^\s\\])+")
_NONEXISTENT = re.compile(r'^ignoring nonexistent directory "(.*)"$', re.MULTILINE)
_SEARCHED = re.compile(r'^#include "\.\.\." search starts here:\n(.*?)^End of search', re.M | re.S)
#: Directives that may ask whether there is a header (``__has_include``), by way of a macro or not.
_CONDITION = re.compile(rb"^[ \t]*#[ \t]*(?:if|elif|define)\b(?:\\\r?\n|[^\n])*", re.MULTILINE)
_HEADER = re.compile(rb'<([^<>"\s]+)>|"([^<>"\s]+)"')
#: Flags that ask for one phase of nvcc.
_PHASES = ("-cubin", "-fatbin", "-ptx")
_SETTLED_NS = 2_000_000_000
_hashes: dict[tuple[str | int, ...], str] = {}


@dataclass(frozen=True)
class Dependencies:
    """What a build has read, and where the compiler looked.

    Attributes:
        read: Every file but the sources.
        names: What was included or asked for, as it is called below a folder of the search.
        folders: Where such a name is looked for, the folders of files that include among them.
    """

    read: tuple[_Label, ...]
    names: tuple[str, ...]
    folders: tuple[_Label, ...]

    def digest(self, roots: Sequence[Path]) -> str:
        """Of the content of what was read, and of where each name is found, both as of now."""
        digest = hashlib.sha256()
        for at, below in self.read:
            digest.update(f"{at} {below}\0{content_hash(_path((at, below), roots))}\0".encode())
        heads: dict[str, list[str]] = {}
        for name in self.names:
            heads.setdefault(name.split("/")[0], []).append(name)
        for folder in self.folders:
            path = _path(folder, roots)
            for name in _there(path, heads):
                digest.update(f"{folder[0]} {folder[1]}\0{name}\0".encode())
        return digest.hexdigest()

    def changed_since(self, time_ns: int, roots: Sequence[Path]) -> bool:
        """Whether a file is younger than a time since the epoch, or gone."""
        try:
            return any(_path(each, roots).stat().st_ctime_ns > time_ns for each in self.read)
        except OSError:
            return True

    def text(self) -> str:
        """The dependencies as JSON text."""
        return json.dumps([self.read, self.names, self.folders])


def dependencies_from(text: str) -> Dependencies:
    """What :meth:`Dependencies.text` wrote.

    Raises:
        ValueError: If it is cut short or something else.
        TypeError: Likewise.
    """
    read, names, folders = json.loads(text)
    labels = (tuple((int(at), str(below)) for at, below in each) for each in (read, folders))
    return Dependencies(next(labels), tuple(map(str, names)), next(labels))


def dependencies_of(
    read: Iterable[str], searched: Sequence[str], roots: Sequence[Path], given: Sequence[str]
) -> Dependencies:
    """What a build depends on.

    Args:
        read: The files as the compiler names them.
        searched: The folders of the search, likewise.
        roots: Folders that may be elsewhere when the build is used again: those of the sources,
            and ``-I``.
        given: Flags and the sources' texts. A root that something names is where it says, then as
            now.
    """
    files = sorted(set(read))
    texts = [*(_bytes(file) for file in files), *(os.fsencode(each) for each in given)]
    movable = [
        (at, f"{root}/")
        for at, root in enumerate(roots)
        if not any(os.fsencode(root) in text for text in texts)
    ]
    starts = {f"{each.rstrip('/')}/" for each in searched}
    starts |= {f"{os.path.realpath(each)}/" for each in searched}
    names = {file[len(each) :] for file in files for each in starts if file.startswith(each)}
    for condition in (each for text in texts for each in _CONDITION.findall(text)):
        names |= {os.fsdecode(angled or quoted) for angled, quoted in _HEADER.findall(condition)}
    folders = {*searched, *(str(Path(file).parent) for file in files), *map(str, roots)}
    return Dependencies(
        tuple(sorted(_label(each, movable) for each in files)),
        tuple(sorted(names)),
        tuple(sorted(_label(each, movable) for each in folders)),
    )


def prerequisites(text: str) -> list[str]:
    """The files that the rules of a dependency file name, each once, in order."""
    found: dict[str, None] = {}
    for line in text.replace("\\\n", " ").splitlines():
        rule = _RULE.match(line)
        for word in _WORD.findall(rule[1]) if rule else ():
            found[re.sub(r"\\([ \t#\\:])", r"\1", word).replace("$$", "$")] = None
    return [*found]


def search_folders(compiler: Path, flags: Sequence[str], *, is_nvcc: bool) -> list[str]:
    """Where a compiler looks for headers, missing folders among them; none if it does not say."""
    words = [word for word in flags if word not in _PHASES]
    # As C++: nvcc searches the same for CUDA sources, but reads its own headers there.
    words += [*(["-Xcompiler"] if is_nvcc else []), "-v", "-x", "c++"]
    run = subprocess.run(
        [str(compiler), *words, "-E", os.devnull, "-o", os.devnull],
        capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, check=False,
        env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    searched = _SEARCHED.search(run.stderr)
    if run.returncode != 0 or searched is None:
        return []
    lines = searched[1].splitlines()
    return [*_NONEXISTENT.findall(run.stderr), *(each[1:] for each in lines if each[:1] == " ")]


def files_named(words: Iterable[str]) -> Iterator[Path]:
    """The files that flags name: options in a file, objects, what is included first."""
    for word in dict.fromkeys(part for each in words for part in re.split(r"[\s=,@]+", each)):
        if "/" in word or "." in word:
            path = Path(word)
            if path.is_file():
                yield path


def _label(path: str, roots: Sequence[tuple[int, str]]) -> _Label:
    """Below the deepest root; a backend's file does not depend on the order of the others."""
    within = [(len(root), -at) for at, root in roots if f"{path}/".startswith(root)]
    if not within:
        return -1, path
    length, at = max(within)
    return -at, path[length:]


def _path(label: _Label, roots: Sequence[Path]) -> Path:
    at, below = label
    return Path(below) if at < 0 else roots[at] / below


def content_hash(path: Path) -> str:
    """A hash of a file's content; empty if it cannot be read.

    A process reads a file once while its status is as it was: the builds of one command have
    hundreds of headers in common.
    """
    try:
        status = path.stat()
        known = (str(path), *status[:3], status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        if known in _hashes:
            return _hashes[known]
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return ""
    # A second change of a moment ago could have the same status.
    if time.time_ns() - status.st_ctime_ns > _SETTLED_NS:
        _hashes[known] = found
    return found


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _there(folder: Path, heads: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Which names are files below a folder, in order."""
    try:
        with os.scandir(folder) as entries:
            here = {".", "..", *(each.name for each in entries)}
    except OSError:
        return
    for head in sorted(here & heads.keys()):
        for name in heads[head]:
            if os.path.isfile(f"{folder}/{name}"):  # noqa: PTH113 (thousands of them)
                yield name
