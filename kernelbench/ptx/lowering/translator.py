"""PTX module → C++ for the emulator: a function for each kernel, a ``#line`` for each statement.

A finding's address in the library therefore leads to a line of the PTX text, and by ``.loc`` to the
source.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from kernelbench.ptx.errors import Obstacle, StatementError, UnsupportedPtxError
from kernelbench.ptx.lowering.call_graph import CallGraph
from kernelbench.ptx.lowering.layout import AddressLayout
from kernelbench.ptx.lowering.names import block, called, identifier, variable
from kernelbench.ptx.lowering.table import row_of
from kernelbench.ptx.lowering.writer import Writer
from kernelbench.ptx.parser.model import SIZES, Module, PtxFunction, Statement, Symbol

#: What debug information calls the folder of a PTX file.
PTX_FOLDER = "/kb/ptx"
#: The header of everything that translations call.
HEADER = "ptx_frontend/ptx.hpp"


@dataclass(frozen=True)
class Translation:
    """A module in C++.

    Attributes:
        entries: The C function of each kernel that can run, by the kernel's name.
        layouts: Of every kernel.
        refused: What each other kernel has, or calls, that cannot be translated.
        texts: The lines of each kernel and function that is reached, by its name.
        variables: The lines that define the module's variables.
    """

    entries: dict[str, str]
    layouts: dict[str, AddressLayout]
    refused: dict[str, tuple[Obstacle, ...]]
    texts: Mapping[str, Sequence[str]]
    variables: Sequence[str]
    module: Module
    calls: CallGraph
    has_variants: bool

    @functools.cached_property
    def source(self) -> str:
        """All of it."""
        functions = {name for name in self.texts if name not in self.layouts}
        return self._source([*self.entries], functions, self.variables, self._exported)

    @property
    def source_of_variables(self) -> str:
        """What the sources of single kernels leave out."""
        return self._source([], (), self.variables, self._exported)

    def source_of(self, kernel: str) -> str:
        """One kernel and what it calls; ``kb_ptx_bind`` is given the variables' addresses."""
        names = [variable(each.name) for each in global_variables(self.module)]
        pointers = [f"[[maybe_unused]] px::Byte* {name};" for name in names]
        bound = (f"{name} = to[{at}];" for at, name in enumerate(names))
        bind = ["KB_PTX_BIND {", *bound, "}"]
        return self._source([kernel], self.calls.behind([kernel]), pointers, bind)

    @property
    def can_be_parted(self) -> bool:
        """Whether each kernel can have a source of its own: no variable names a function."""
        symbols = [each for each in self.module.symbols.values() if each.space != "shared"]
        named = {of.symbol for each in symbols for _, of in each.addresses}
        shared = len(symbols) == len(global_variables(self.module))
        return shared and named.isdisjoint(self.calls.functions)

    @property
    def _exported(self) -> Iterator[str]:
        for at, each in enumerate(global_variables(self.module)):
            yield f"KB_PTX_VARIABLE(kb_ptx_variable_{at}, {variable(each.name)})"

    def _source(
        self, kernels: Sequence[str], functions: Collection[str], variables: Iterable[str],
        last: Iterable[str],
    ) -> str:  # fmt: skip
        words = ["KB_PTX_WORD(kb_ptx_variant)", "KB_PTX_WORD(kb_ptx_variant_ran)"]
        heads = (f"{_head(each)};" for each in self.calls.reached if each.name in functions)
        own = {*kernels, *functions}
        texts = itertools.chain(*(text for name, text in self.texts.items() if name in own))
        parts = [
            f'#include "{HEADER}"', "", *(words if self.has_variants else ()), "namespace {", "",
            *heads, *variables, *texts, "}  // namespace", "",
            *(f"KB_PTX_EXPORT({self.entries[each]})" for each in kernels), *last,
        ]  # fmt: skip
        return "\n".join(parts) + "\n"


#: What statements are instead, by function and position there: while ``kb_ptx_variant`` has a
#: number, those beside it. ``kb_ptx_variant_ran`` then says whether they were reached.
Variants = Mapping[tuple[str, int], Sequence[tuple[int, Sequence[Statement]]]]


def translate(module: Module, variants: Variants | None = None) -> Translation:
    """Translate every kernel, and the functions that kernels call.

    A kernel that cannot be translated is left out, as a program may never launch it.

    Args:
        variants: For trials of the checker with faults in a kernel; none by default.

    Raises:
        UnsupportedPtxError: With every statement that cannot be translated, if no kernel is left.
    """
    calls = CallGraph(module)
    layouts = {name: AddressLayout(module, each) for name, each in module.kernels.items()}
    entries = {name: f"kb_ptx_kernel_{at}" for at, name in enumerate(layouts)}
    texts: dict[str, list[str]] = {}
    found: dict[str, list[Obstacle]] = {}
    for each in (*calls.reached, *module.kernels.values()):
        head = _head(each)
        if each.kernel:
            head = f"void {entries[each.name]}_body([[maybe_unused]] px::Byte* parameters)"
        writer = Writer(each, layouts.get(each.name) or AddressLayout(module, each), calls)
        obstacles = found[each.name] = []
        texts[each.name] = [*_function(module, head, writer, variants or {}, obstacles)]
    faulty = {name for name, each in found.items() if each}
    refused = {
        name: tuple(each for of in found if of in behind for each in found[of])
        for name in (found if faulty else ())
        if faulty & (behind := {name, *calls.behind([name])})
    }
    obstacles = []
    variables = [*_variables(module, calls, refused, obstacles)]
    if obstacles or (layouts and layouts.keys() <= refused.keys()):
        obstacles += itertools.chain(*found.values())
        raise UnsupportedPtxError(module.name, sorted(obstacles, key=lambda each: each.line))
    entries = {name: each for name, each in entries.items() if name not in refused}
    texts = {name: each for name, each in texts.items() if name not in refused}
    refused = {name: each for name, each in refused.items() if name in layouts}
    return Translation(entries, layouts, refused, texts, variables, module, calls, bool(variants))


def global_variables(module: Module) -> list[Symbol]:
    """The module's variables in memory of the GPU; ``kb_ptx_variable_N`` is the Nth's address."""
    return [each for each in module.symbols.values() if each.space in ("global", "const")]


def _variables(
    module: Module, calls: CallGraph, refused: Collection[str], obstacles: list[Obstacle]
) -> Iterator[str]:
    for symbol in module.symbols.values():
        if symbol.space == "shared":
            continue
        if symbol.size == 0:
            obstacles.append(Obstacle(symbol.line, symbol.name, "defined in another module"))
            continue
        initial = f" = {{{', '.join(map(str, symbol.initial))}}}" if symbol.initial else " = {}"
        align = max(symbol.align, 16)
        yield f"alignas({align}) px::Byte {variable(symbol.name)}[{symbol.size}]{initial};"
    for symbol in module.symbols.values():
        yield from _addresses_in(module, calls, symbol, refused, obstacles)


def _addresses_in(
    module: Module, calls: CallGraph, symbol: Symbol, refused: Collection[str],
    obstacles: list[Obstacle],
) -> Iterator[str]:  # fmt: skip
    """Fills in the addresses that a variable begins with."""
    for offset, of in symbol.addresses:
        if of.symbol in refused:  # as is every kernel that calls by address
            continue
        target = module.symbols.get(of.symbol)
        name = f"&{called(of.symbol)}" if of.symbol in calls.functions else variable(of.symbol)
        in_memory = target is not None and target.space in ("global", "const")
        if not in_memory and of.symbol not in calls.functions:
            text = f"the address of {of.symbol}, which is no variable in memory"
            obstacles.append(Obstacle(symbol.line, symbol.name, text))
            continue
        value = f"px::address_of({name}) + {of.offset}"
        place = f"{variable(symbol.name)} + {offset}"
        name = f"{variable(symbol.name)}_{offset}_filled"
        yield f"[[maybe_unused]] const bool {name} = px::put_address({place}, {value});"


def _head(function: PtxFunction) -> str:
    """The C++ head of a function that is called."""
    passed = (*function.results, *function.parameters)
    blocks = ", ".join(f"[[maybe_unused]] px::Byte* {block(each.name)}" for each in passed)
    return f"void {called(function.name)}({blocks})"


def _function(
    module: Module, head: str, writer: Writer, variants: Variants, obstacles: list[Obstacle]
) -> Iterator[str]:
    function, layout = writer.function, writer.layout
    body: list[str] = []
    for at, each in enumerate(function.statements):
        others = variants.get((function.name, at), ())
        body += _statement(module, writer, each, others, obstacles)
    text = "\n".join(body)
    named = set(re.findall(r"\br_\w+", text))
    yield f'#line {function.line} "{PTX_FOLDER}/{module.name}"'
    yield f"{head} {{"
    yield f"  [[maybe_unused]] constexpr uint32_t kStaticShared = {layout.static_shared};"
    # Each is a call, which a small function is too short for.
    if "own_shared" in text:
        yield "  px::Byte* const own_shared = px::own_shared();"
    if "shared_window" in text:
        yield "  const uint32_t shared_window = px::shared_window();"
    if "carry_flag" in text:
        yield "  bool carry_flag = false;"
    if layout.local_bytes or re.search(r"\blocal\b", text):
        # A function that has none may be given the address of its caller's.
        yield f"  alignas(32) px::Byte local[{max(layout.local_bytes, 1)}];"
    for symbol in function.locals.values():
        if symbol.space == "param":
            yield f"  alignas(16) px::Byte {block(symbol.name)}[{symbol.size}];"
    for registers, array in writer.arrays.items():
        unset = ", ".join(["~0u"] * len(registers))
        yield f"  alignas(16) px::b32 {array}[{len(registers)}] = {{{unset}}};"
    for name, kind in function.registers.items():
        # Registers that nothing names cost time to compile.
        if writer.register(name) in named:
            # All ones are NaN: what nothing has written has no value.
            bits = "pred" if kind == "pred" else f"b{8 * SIZES[kind]}"
            unset = f"px::{bits}(~0ull)" if bits in ("b16", "b32", "b64") else ""
            yield f"  px::{bits} {writer.register(name)}{{{unset}}};"
    yield from body
    yield "}"
    yield ""


def _statement(
    module: Module,
    writer: Writer,
    statement: Statement,
    others: Sequence[tuple[int, Sequence[Statement]]],
    obstacles: list[Obstacle],
) -> Iterator[str]:
    yield f"#line {statement.line}"
    if statement.label:
        yield f"L{identifier(statement.label)}:;"
        return
    writer.statement = statement
    try:
        code = writer.dependences(statement) + _code(writer, statement)
        for number, instead in others:
            text = " ".join(_code(writer, each) for each in instead)
            chosen = f"kb_ptx_variant == {number}"
            code = f"if ({chosen}) {{ kb_ptx_variant_ran = 1; {text} }} else {{ {code} }}"
    except StatementError as error:
        places = [
            f"{PurePosixPath(module.files.get(each.file, '?')).name}:{each.line}"
            for each in statement.chain
        ]
        # The innermost, and the program's own: what lies between are headers.
        source = " in ".join(dict.fromkeys([*places[:1], *places[-1:]]))
        obstacles.append(Obstacle(statement.line, statement.opcode, str(error), source))
        return
    yield f"  {code}"


def _code(writer: Writer, statement: Statement) -> str:
    found = row_of(statement.opcode)
    if found is None:
        raise StatementError("no translation")
    form, chosen = found
    code = form.lower(writer, chosen, statement.operands)
    if not statement.guard:
        return code
    guard = writer.predicate(statement.guard)
    return f"if ({'!' if statement.negated else ''}{guard}) {{ {code} }}"
