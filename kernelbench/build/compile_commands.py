"""What a build system says of its compilations: ``compile_commands.json``, as CMake writes it.

Source: Clang's documentation, "JSON Compilation Database Format Specification".
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelbench.base.errors import UsageError

#: CMake keeps the objects of a target there.
_TARGET = re.compile(r"CMakeFiles/([^/]+)\.dir/")
#: Flags that name a folder or a file; those of architectures, of outputs and of dependencies.
_FOLDERS = ("-I", "-isystem", "-include", "-L")
_OTHERS_WORD = ("-o", "-x", "-MF", "-MT", "-MQ", "-arch", "-gencode", "-ccbin", "-code")
_DROPPED = re.compile(
    r"-c|-dc|--compile|-M\w*|-O\w*|-g|-G|-forward-unknown-to-host-compiler|--generate-code=.*"
    r"|(-arch|--gpu-architecture|-gencode|-code|-ccbin|-x)=.*"
)
_RELOCATABLE = ("-dc", "--device-c")
#: What nvcc takes as the host's compiler does.
_OF_BOTH = re.compile(r"-([DUl]|-?std=).*|-w")
_STANDARD = re.compile(r"--?std=(?:c|gnu)\+\+(\d\w)")
_DRAFTS = {"0x": "11", "1y": "14", "1z": "17", "2a": "20", "2b": "23"}


def sources_of_target(file: Path, target: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The sources of targets and what nvcc is to be given for them.

    Args:
        file: The ``compile_commands.json``.
        target: Its name in CMake, and those of the libraries that it links, with commas between;
            empty for the only one, and where no output names one.

    Returns:
        The sources, and the flags of all of them, with absolute folders. Architectures, outputs
        and levels of optimization are left to who compiles.

    Raises:
        UsageError: If the file is none, or names others or no such target, or if their sources
            are compiled with different values of a macro.
    """
    by_target: dict[str, list[Mapping[str, Any]]] = {}
    for entry in _entries(file):
        found = _TARGET.search(entry.get("output") or " ".join(_words(entry)))
        by_target.setdefault(found[1] if found else "", []).append(entry)
    named = sorted(filter(None, by_target))
    if not target and len(named) == 1:
        target = named[0]
    asked = target.split(",")
    if not by_target.keys() >= {*asked} or (named and not target):
        known = f"targets: {', '.join(named)}" if named else "no targets"
        raise UsageError(
            f"{file} has {known}",
            "name one of them, and the libraries that it links: --target NAME,LIBRARY",
        )
    sources, flags = [], dict[str, None]()
    for entry in itertools.chain.from_iterable(by_target[each] for each in asked):
        folder = Path(entry["directory"])
        sources.append(_near(folder / entry["file"]))
        compiler, *words = _words(entry)
        flags |= dict.fromkeys(_kept(words, folder, of_host="nvcc" not in Path(compiler).name))
    macros: dict[str, str] = {}
    for flag in (each for each in flags if each.startswith("-D")):
        name = flag[2:].partition("=")[0]
        if macros.setdefault(name, flag) != flag:
            raise UsageError(
                f"{file}: sources of {target or 'the program'} have {macros[name]} and {flag}",
                "kernelbench check --build COMMAND builds each as it is",
            )
    return tuple(dict.fromkeys(sources)), (*_newest_standard(flags), *flags)


def _near(path: Path) -> str:
    """A path as somebody in the working folder would write it."""
    whole = os.path.normpath(path)
    here = os.path.relpath(whole)
    return whole if here.startswith("..") else here


def _entries(file: Path) -> list[Mapping[str, Any]]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no JSON"
        raise UsageError(
            f"cannot read {file}: {why}", "cmake -DCMAKE_EXPORT_COMPILE_COMMANDS=ON writes it"
        ) from error
    keys = {"directory", "file"}
    if not isinstance(found, list) or not all(isinstance(e, dict) and keys <= {*e} for e in found):
        raise UsageError(f"{file} is no list of compilations with a directory and a file each")
    return found


def _words(entry: Mapping[str, Any]) -> list[str]:
    given = entry.get("arguments") or shlex.split(str(entry.get("command", "")))
    words = [str(word) for word in given] or [""]
    for at in reversed([i for i, word in enumerate(words[:-1]) if word == "--options-file"]):
        # CMake's Makefiles keep include folders of CUDA sources there.
        file = Path(entry["directory"]) / words[at + 1]
        words[at : at + 2] = shlex.split(file.read_text()) if file.is_file() else []
    return words


def _newest_standard(flags: dict[str, None]) -> list[str]:
    """The newest standard that flags name, which are left without: nvcc takes one, and none of
    GNU's."""
    found = {each: known[1] for each in flags if (known := _STANDARD.fullmatch(each))}
    for each in found:
        del flags[each]
    years = {_DRAFTS.get(each, each) for each in found.values()} - {"98", "03"}
    return [f"-std=c++{max(years)}"] if years else []


def _kept(words: list[str], folder: Path, *, of_host: bool) -> Iterator[str]:
    """What of a compilation concerns the source, one word each.

    Args:
        of_host: Whether the host's compiler makes it, and not nvcc.
    """
    left = iter(words)
    for word in left:
        option = next((each for each in _FOLDERS if word.startswith(each)), None)
        if word in _OTHERS_WORD:
            next(left, None)
        elif option is not None:
            value = word.removeprefix(option).removeprefix("=") or next(left, "")
            kept = "-I" if option == "-isystem" else option
            whole = os.path.normpath(folder / value)
            yield f"{kept}{'=' if kept == '-include' else ''}{whole}"
        elif word in ("-D", "-U", "-l", "-Xcompiler", "-std"):
            yield f"{word}{'=' if word in ('-Xcompiler', '-std') else ''}{next(left, '')}"
        elif word in _RELOCATABLE:
            yield "-rdc=true"
        elif word.startswith("-") and not _DROPPED.fullmatch(word):
            yield word if not of_host or _OF_BOTH.fullmatch(word) else f"-Xcompiler={word}"
