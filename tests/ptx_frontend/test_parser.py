"""PTX text to a module, and what is refused, with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernelbench.ptx
from kernelbench.base.errors import ExitCode
from kernelbench.ptx import PtxError, UnsupportedPtxError
from kernelbench.ptx.library import parse
from kernelbench.ptx.lowering.table import TABLE, row_of
from kernelbench.ptx.parser.model import Address, Negated, Number, Pair, Real, Vector

HERE = Path(__file__).parent
HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n"


def kernel(body: str, head: str = "") -> str:
    return (
        f"{HEAD}{head}\n.visible .entry k(.param .u64 p)\n{{\n"
        f".reg .pred %p<4>;\n.reg .b32 %r<8>;\n.reg .b64 %rd<4>;\n{body}\n}}\n"
    )


def statements(body: str):
    return parse("k.ptx", kernel(body)).functions["k"].statements


def test_operands():
    found = statements(
        "@!%p1 ld.global.v2.b32 {%r1, _}, [%rd1+-8];\n"
        "fma.rn.f32 %r1, 0f3F800000, -1.5, 0x1FU;\n"
        "shfl.sync.idx.b32 %r1|%p2, %r2, -1, 0x1f, -1;\n"
        "setp.eq.and.s32 %p1, %r1, 0, !%p2;\n"
        "cp.async.bulk.tensor.2d.shared::cta.global.tile [%r1], [%rd1, {%r2, 0}], [%r3];"
    )
    assert (found[0].guard, found[0].negated) == ("%p1", True)
    assert found[0].operands == (Vector(("%r1", "_")), Address("%rd1", -8, ()))
    assert found[1].operands[1:] == (
        Real(0x3F800000, 4), Real(0xBFF8000000000000, 8), Number(31),
    )  # fmt: skip
    assert found[2].operands[0] == Pair("%r1", "%p2")
    assert found[3].operands[3] == Negated("%p2")
    assert found[4].operands[1] == Address("%rd1", 0, (Vector(("%r2", Number(0))),))


def test_types_need_no_space_before_them():
    # Both stand in the inline assembly of CUDA's headers and of programs.
    found = statements("{ .reg.b16 i,r; mov.b16 i, r; }\n@%p1 add .s32 %r1, %r2, 1;")
    assert [each.opcode for each in found] == ["mov.b16", "add.s32"]
    text = kernel("ld.shared.u32 %r1, [x];", head=".shared.align 8 .b8 x[16];\n")
    assert parse("k.ptx", text).symbols["x"].align == 8


def test_scopes_have_registers_and_labels_of_their_own():
    found = statements(
        "{ .reg .pred p; WAIT: @p bra WAIT; }\n{ .reg .b32 p; WAIT: mov.b32 p, 1; bra WAIT; }"
    )
    labels = [each.label for each in found if each.label]
    assert len(set(labels)) == 2
    assert [each.operands[0] for each in found if each.opcode == "bra"] == labels
    registers = (
        parse("k.ptx", kernel("{ .reg .pred p; }\n{ .reg .b32 p; }")).functions["k"].registers
    )
    assert {"pred", "b32"} <= {kind for name, kind in registers.items() if name.startswith("p")}


def test_variables_and_directives():
    text = kernel("ret;", ".const .align 4 .u32 t[2] = {1, -2};\n.shared .align 16 .b8 s[32];")
    text = text.replace("(.param .u64 p)", "(.param .u64 p)\n.reqntid 64, 2\n.minnctapersm 1")
    module = parse("k.ptx", text)
    assert module.symbols["t"].initial == b"\x01\0\0\0\xfe\xff\xff\xff"
    assert (module.symbols["s"].size, module.symbols["s"].align) == (32, 16)
    assert module.functions["k"].directives["reqntid"] == (64, 2)


def test_source_chains_go_through_inlined_calls():
    module = parse("small.ptx", (HERE / "small.ptx").read_text())
    loads = [
        each
        for each in module.functions["reverse"].statements
        if each.opcode.startswith("ld.shared")
    ]
    (load,) = loads
    assert load.chain[0].line == 13 and len(load.chain) == 2
    assert "other_end" in module.strings[load.chain[0].function]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "k.ptx:1: no .version and .target"),
        ("int main() {}", "k.ptx:1: 'int' at the top of a module"),
        (HEAD + ".address_size 32", "k.ptx:4: addresses of 32 bits"),
        (kernel("add.s32 %r1, %r2"), "k.ptx:11: expected ';', found '}'"),
        (kernel("%r1 = 1;"), "k.ptx:10: '%r1' is no instruction"),
        (kernel("mov.b32 %r1, [%r2*3];"), "k.ptx:10: '*' in an address"),
        (kernel("ret;").rstrip("}\n"), "the text ends in the middle of a statement"),
        (kernel("mov.b32 %r1, ?;"), "k.ptx:10: '?' is not PTX"),
    ],
)
def test_what_is_not_ptx(text, message):
    with pytest.raises(PtxError) as error:
        kernelbench.ptx.load("k.ptx", text=text)
    assert message in str(error.value)
    assert error.value.exit_code == ExitCode.USAGE


def test_everything_unsupported_is_named_with_its_line():
    body = (
        "vadd.u32.u32.u32 %r1, %r2, %r3;\ncall.uni f, (%r1);\nmov.u32 %r1, %warp_size;\n"
        "selp.b32 %r1, 1, 2, %r3;\nret;\nwmma.load.a.sync %r1;"
    )
    with pytest.raises(UnsupportedPtxError) as error:
        kernelbench.ptx.load("k.ptx", text=kernel(body))
    assert [(each.line, each.what) for each in error.value.obstacles] == [
        (10, "vadd.u32.u32.u32"), (11, "call.uni"), (12, "mov.u32"), (13, "selp.b32"),
        (15, "wmma.load.a.sync"),
    ]  # fmt: skip
    assert "vadd.u32.u32.u32 at k.ptx:10" in str(error.value) and "and 2 more" in str(error.value)
    assert error.value.exit_code == ExitCode.USAGE


def test_registers_that_two_instructions_fill():
    body = "\n".join(
        f"tcgen05.ld.sync.aligned.32x32b.x2.b32 {{{registers}}}, [%r7];"
        for registers in ("%r1, %r2", "%r1, %r2", "%r2, %r3")
    )
    with pytest.raises(UnsupportedPtxError, match=r"k\.ptx:12 \(its registers overlap"):
        kernelbench.ptx.load("k.ptx", text=kernel(body))


def test_a_missing_file(tmp_path):
    with pytest.raises(PtxError, match="cannot be read"):
        kernelbench.ptx.load(tmp_path / "none.ptx")


def test_modifiers_that_no_row_spells_are_not_ignored():
    assert row_of("ld.global.b32") is not None
    for opcode in ("ld.global.b32.wide", "ld.b24", "add.rn.s32", "mul.wide.u64", "fence"):
        assert row_of(opcode) is None, opcode


def test_no_opcode_has_two_rows():
    rows = {}
    for form in TABLE:
        opcodes = [opcode for opcode, _ in form.opcodes()] if form.spelling[0] != "l" else []
        for opcode in opcodes:
            assert rows.setdefault(opcode, form) is form, opcode
