"""``kernelbench lint``: products of sizes that are widened too late, planted in shipped steps."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.build import compiler
from kernelbench.cli import invoke as run
from kernelbench.inspection.clang_ast import cindex
from kernelbench.inspection.offsets import OffsetFinding, find_offsets
from kernelbench.project.context import Context


def libclang() -> bool:
    try:
        cindex()
    except EnvironmentProblem:
        return False
    return True


needs_libclang = pytest.mark.skipif(
    not libclang() or compiler.host_compiler() is None, reason="no libclang or no C++ compiler"
)

FOLDERS = {"v": "kernels", "m": "moe", "h": "hopper"}
#: Lineages with building blocks of their own, by folder.
BLOCKS = {"moe": "moe", "hopper": "group_gemm_hopper"}

#: By step: file, what is there, what is planted (of which the finding's product is the part between
#: the marks), and words of the finding.
WEIGHTS = "  const e4m3* b = args.weights + weight_row * args.k;\n"
PLANTED: dict[str, list[tuple[str, str, str, str]]] = {
    "m00": [
        (
            "gemm.cuh",
            WEIGHTS,
            "  const e4m3* b = args.weights + «(expert * args.n + n_offset) * args.k»;\n",
            "added to a pointer",
        ),
        (
            "gemm.cuh",
            "  const float* scales = args.scales",
            (
                "  const uint64_t planted = «expert * args.n * args.k»;\n"
                "  const float* scales = args.scales + planted * 0"
            ),
            "converted to",
        ),
        (
            "gemm.cuh",
            "  float products[kAccumulators] = {};\n",
            (
                "  float products[kAccumulators] = {};\n"
                "  const uint32_t planted_row = expert * args.n + n_offset;\n"
                "  const uint32_t planted_at = «planted_row * args.k»;\n"
                "  sums[0] += args.weight_scales[planted_at];\n"
            ),
            "a pointer's subscript in line",
        ),
        (
            "launch.cu",
            "reserve(size_t{rows} * n)",
            "reserve(«experts * n * k»)",
            "converted to",
        ),
        (
            "launch.cu",
            "reserve(size_t{rows} * k)",
            "reserve(static_cast<size_t>(«rows * k»))",
            "converted to size_t",
        ),
    ],
    "m08": [
        (
            "multiply.cuh",
            "    add_to_output<kColumns>(sums, args, tokens, item.n_block + i);\n",
            (
                "    sums[0] += args.output[«tokens.tokens[i] * args.n * args.topk»];\n"
                "    add_to_output<kColumns>(sums, args, tokens, item.n_block + i);\n"
            ),
            "a pointer's subscript",
        ),
        (
            "load.cuh",
            "args.codes + uint64_t{token} * args.k",
            "args.codes + planted(token, args.experts, args.k)",
            "added to a pointer in line",
        ),
        (
            "load.cuh",
            "template <uint32_t kTokens>\n",
            (
                "KB_DEVICE uint32_t planted(uint32_t token, uint32_t rows, uint32_t k) {\n"
                "  return «token * rows * k»;\n}\n\ntemplate <uint32_t kTokens>\n"
            ),
            "added to a pointer in line",
        ),
    ],
    "h02": [
        (
            "gemm.cuh",
            "  f16* c = group.c + uint64_t{tile.token} * group.n + column;\n",
            "  f16* c = group.c;\n  c += «int(tile.token) * int(group.n) * 8 * int(group.m)»;\n",
            "added to a pointer",
        ),
    ],
    "v06": [
        (
            "kernel.cuh",
            "groups.table[tile.group].c + uint64_t{row} * tile.n;",
            (
                "groups.table[tile.group].c;\n"
                "  for (uint32_t i = 0; i < row * tile.n; ++i) c = &c[«i * tile.k»];"
            ),
            "a pointer's subscript",
        ),
    ],
}

#: Where a product of three is bounded, or 64-bit from its first factor on.
HARMLESS = """\
  const uint64_t wide = uint64_t{expert} * args.n * args.k;
  constexpr uint32_t kRows = 64;
  const uint32_t bounded = (expert & 7) * kRows * args.n;
  uint32_t looped = 0;
  for (uint32_t i = 0; i < 4; ++i) looped = i * (args.n % 16) * args.k;
  const uint16_t narrow = static_cast<uint16_t>(expert);
  const uint32_t placed = narrow * ptx::lane_index() * args.k * args.n;
  const uint32_t tiles = expert * args.n / args.k * args.n;
  sums[0] += args.weight_scales[wide] + args.weight_scales[bounded] + args.weight_scales[looped];
  sums[0] += args.weight_scales[placed] + args.weight_scales[tiles];
"""


def planted(
    root: Path, monkeypatch: pytest.MonkeyPatch, source: str, changes: list[tuple[str, str, str]]
) -> list[OffsetFinding]:
    """What is found in a copy of a shipped step in which files are changed."""
    name, folder = f"x{source[1:]}", FOLDERS[source[0]]
    copy = root / "own" / name
    shutil.copytree(ROOT / folder / source, copy)
    (root / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["own"]\n')
    problem = "fused_moe" if folder == "moe" else "group_gemm"
    blocks = f'building_blocks = "{BLOCKS[folder]}"\n' if folder in BLOCKS else ""
    (root / "own" / "lineage.toml").write_text(
        f'name = "own"\ntitle = "x"\nproblem = "kernelbench.problems.{problem}:PROBLEM"\n{blocks}'
    )
    toml = copy / "step.toml"
    toml.write_text(toml.read_text().replace(f'name = "{source}"', f'name = "{name}"'))
    for file, before, after in changes:
        text = (copy / file).read_text()
        assert before in text, (file, before)
        (copy / file).write_text(text.replace(before, after, 1))
    monkeypatch.setenv("KERNELBENCH_ROOT", str(root))
    (step,) = Context.find().lineages.select((name,))
    return find_offsets(step)


@needs_libclang
@pytest.mark.parametrize("source", PLANTED)
def test_planted_products_are_found_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    plants = PLANTED[source]
    changes = [
        (file, before, after.replace("«", "").replace("»", "")) for file, before, after, _ in plants
    ]
    found = planted(tmp_path, monkeypatch, source, changes)
    expected = {
        (file, after.split("«")[1].split("»")[0]): use for file, _, after, use in plants
        if "«" in after
    }  # fmt: skip
    assert {(each.file.name, each.product) for each in found} == set(expected)
    for each in found:
        where = f" in line {each.used_line}" if each.used_line is not None else ""
        assert expected[each.file.name, each.product] in each.use + where
        line = each.file.read_text().splitlines()[each.line - 1]
        assert each.product in line and each.bits == 32


@needs_libclang
def test_what_is_bounded_or_wide_is_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = "  float products[kAccumulators] = {};\n"
    assert planted(tmp_path, monkeypatch, "m00", [("gemm.cuh", after, after + HARMLESS)]) == []


@needs_libclang
def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    after = "  const e4m3* b = args.weights + expert * args.n * args.k;\n"
    planted(tmp_path, monkeypatch, "m00", [("gemm.cuh", WEIGHTS, after)])
    assert run(["lint", "x00"]) == 3
    text = " ".join(capsys.readouterr().out.split())
    assert "gemm.cuh:74: expert * args.n * args.k: 3 factors in 32 bits, added to a point" in text
    assert "write uint64_t{expert}" in text


def test_without_libclang_one_line_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "clang", None)
    assert run(["lint", "m00"]) == 5
    (line,) = capsys.readouterr().err.splitlines()
    assert "libclang" in line and "pip install" in line


def test_a_step_of_python_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", "v00"]) == 2
    assert "lint reads steps of kind `step`" in capsys.readouterr().err


@needs_libclang
@pytest.mark.long
def test_the_shipped_steps_have_no_finding() -> None:
    steps = Context.find().lineages.select(("group_gemm", "moe", "group_gemm_hopper"))
    compiled = [step for step in steps if step.compiled and step.status != "planned"]
    assert len(compiled) >= 46
    assert {step.name: find_offsets(step) for step in compiled} == {s.name: [] for s in compiled}
