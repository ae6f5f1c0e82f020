"""shapes.yaml and shapes on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from kernelbench.base.errors import ExitCode, UnknownNameError, UsageError
from kernelbench.problems.fused_moe.problem import PROBLEM as MOE
from kernelbench.problems.fused_moe.shape import MoeShape
from kernelbench.problems.group_gemm.problem import PROBLEM as GEMM
from kernelbench.problems.group_gemm.shape import GroupGemmShape
from kernelbench.problems.moe_layer.problem import PROBLEM as LAYER
from kernelbench.project.shapes import ShapeTable, load_shapes, resolve_shape

ROOT = Path(__file__).resolve().parents[2]
PROBLEMS = {"group_gemm": GEMM, "fused_moe": MOE, "moe_layer": LAYER}


@pytest.fixture(scope="module")
def table() -> ShapeTable:
    return load_shapes(ROOT / "shapes.yaml", PROBLEMS)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "shapes.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_shipped_shapes_are_the_published_ones(table: ShapeTable) -> None:
    expected = {
        "A": ([80, 176, 128, 72, 64, 248, 96, 160], [4096] * 8, [7168] * 8),
        "B": ([40, 76, 168, 72, 164, 148, 196, 160], [7168] * 8, [2048] * 8),
        "C": ([192, 320], [3072] * 2, [4096] * 2),
        "D": ([128, 384], [4096] * 2, [1536] * 2),
        "t0": ([96, 128], [128, 256], [256, 512]),
        "t1": ([256, 72], [512, 384], [256, 256]),
        "t2": ([128, 128], [128, 256], [512, 256]),
        "t3": ([80, 128, 256], [384, 256, 128], [256, 512, 256]),
        "t4": ([64, 72, 96], [128, 384, 512], [512, 512, 256]),
        "t5": ([64, 256, 128], [768, 128, 256], [512, 256, 512]),
        "t6": ([128, 128, 64], [256, 512, 512], [768, 256, 768]),
        "t7": ([128] * 4, [128] * 4, [512, 256, 512, 256]),
        "t8": ([40, 56, 384, 512], [512, 384, 256, 128], [256] * 4),
        "t9": ([512, 384, 256, 128], [256] * 4, [512, 768, 512, 768]),
        "u0": ([1], [128], [256]),
        "u1": ([1, 17, 129], [256] * 3, [512] * 3),
        "u2": ([8, 16, 24, 32, 40, 48, 56, 64], [384] * 8, [256] * 8),
        "u3": ([40, 76, 168, 72, 164], [512] * 5, [768] * 5),
        "u4": ([128, 384], [128] * 2, [2048] * 2),
        "u5": ([333], [1024], [1536]),
        "u6": ([16, 16, 24, 24, 32, 40, 40, 48], [128] * 8, [256] * 8),
        "t10": ([72, 300], [128] * 2, [256, 1536]),
        "u7": ([8, 16, 24, 32, 40, 48, 56, 64], [896] * 8, [256] * 8),
        "u8": ([16, 72], [128] * 2, [3136, 192]),
        "u9": ([16, 16, 24, 24, 32, 40, 40, 48], [64] * 8, [256] * 8),
        "u10": ([1, 129, 40], [200] * 3, [512] * 3),
        "t11": ([40, 72, 136], [128, 256, 128], [512, 256, 512]),
    }
    assert [*table.of("group_gemm")] == list(expected)
    for name, (m, n, k) in expected.items():
        assert table[name] == GroupGemmShape(name, tuple(m), tuple(n), tuple(k))
    tokens = {"qwen35": 128} | {
        f"qwen35-m{m}": m for m in (1, 16, 32, 64, 256, 512, 1024, 2048, 4096, 8192)
    }
    routed = [f"qwen35-{routing}" for routing in ("one", "skewed")]
    assert [*table.of("fused_moe")] == [*tokens, *routed, *(f"s{i}" for i in range(15))]
    for name, m in tokens.items():
        assert table[name] == MoeShape(name, m, 512, 2048, 256, 8)
    for name in routed:
        routing = name.removeprefix("qwen35-")
        assert table[name] == MoeShape(name, 128, 512, 2048, 256, 8, routing=routing)


def test_benchmark_and_check_shapes_exist(table: ShapeTable) -> None:
    for problem in (GEMM, MOE):
        shapes = {*problem.benchmark_shapes, *problem.check_shapes}
        assert shapes <= table.of(problem.name).keys()


def test_shapes_of_the_moe_checker_reach_the_edges(table: ShapeTable) -> None:
    shapes = [cast(MoeShape, table[name]) for name in MOE.check_shapes]
    assert {shape.routing for shape in shapes} == {"uniform", "skewed", "one"}
    assert {shape.renormalize for shape in shapes} == {True, False}
    assert any(shape.softcap for shape in shapes)
    assert (min(s.m for s in shapes), min(s.e for s in shapes)) == (1, 1)
    assert (max(s.e for s in shapes), max(s.topk for s in shapes)) == (512, 8)
    assert any(shape.topk == shape.e > 1 for shape in shapes)
    assert any(shape.k % 512 and shape.k > 512 for shape in shapes)
    assert any(shape.routing == "one" and shape.m > 128 for shape in shapes)


def test_describe(table: ShapeTable) -> None:
    assert table["A"].describe() == "g=8 m=80,176,... n=4096 k=7168"
    assert table["C"].describe() == "g=2 m=192,320 n=3072 k=4096"
    assert table["t0"].describe() == "g=2 m=96,128 n=128,256 k=256,512"
    assert table["qwen35"].describe() == "m=128 n=512 k=2048 e=256 topk=8"
    capped = resolve_shape("m=1:n=128:k=128:e=4:topk=2:renormalize=0:softcap=30", MOE, table)
    assert capped.describe() == "m=1 n=128 k=128 e=4 topk=2 renormalize=0 softcap=30"


def test_ad_hoc_shapes(table: ShapeTable) -> None:
    shape = resolve_shape("m=40,76:n=512:k=768", GEMM, table)
    assert shape == GroupGemmShape("m=40,76:n=512:k=768", (40, 76), (512, 512), (768, 768))
    spec = "m=64:n=512:k=2048:e=256:topk=8:renormalize=false:softcap=2.5:routing=one"
    assert resolve_shape(spec, MOE, table) == MoeShape(
        spec, 64, 512, 2048, 256, 8, False, 2.5, "one"
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("m=40:n=512", "missing field 'k'"),
        ("m=40:n=512:k=768:q=1", "unknown field 'q'"),
        ("m=40:n=512:k=768:k=64", "field 'k' is given twice"),
        ("m=40:n=512:k=100", "k must be a multiple of 64, found 100"),
        ("m=40:n=12:k=64", "n must be a multiple of 8, found 12"),
        ("m=-1:n=8:k=64", "m must be an integer, 0 or more, found -1"),
        ("m=x:n=8:k=64", "m must be an integer, 0 or more, found 'x'"),
        ("m=1.5:n=8:k=64", "m must be an integer, 0 or more, found 1.5"),
        ("m=1:n=0:k=64", "n must be a positive integer, found 0"),
        ("m=true:n=8:k=64", "m must be an integer, 0 or more, found True"),
        ("m=1,2:n=8,8,8:k=64", "lists of unequal length (m has 2, n has 3"),
        ("m=" + ",".join(["1"] * 65) + ":n=8:k=64", "65 groups: expected at most 64"),
        ("m=:n=8:k=64", "'m=' is not FIELD=VALUE"),
    ],
)
def test_wrong_ad_hoc_group_gemm(spec: str, message: str, table: ShapeTable) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_shape(spec, GEMM, table)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("topk=9", "topk must be at most e=8, found 9"),
        ("topk=2:renormalize=maybe", "renormalize must be true or false, found 'maybe'"),
        ("topk=2:softcap=-1", "softcap must be a number, 0 for none, found -1"),
        ("topk=2:softcap=nan", "softcap must be a number"),
        ("topk=2:routing=round", "routing must be one of uniform, skewed, one, found 'round'"),
    ],
)
def test_wrong_ad_hoc_moe(extra: str, message: str, table: ShapeTable) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_shape(f"m=1:n=128:k=128:e=8:{extra}", MOE, table)
    assert message in str(caught.value)


def test_unknown_name_proposes_the_nearest(table: ShapeTable) -> None:
    with pytest.raises(UnknownNameError) as caught:
        resolve_shape("qwen35-m46", MOE, table)
    assert caught.value.hint is not None
    assert "qwen35-m4" in caught.value.hint
    assert caught.value.exit_code == ExitCode.USAGE


def test_shape_of_another_problem_is_refused(table: ShapeTable) -> None:
    with pytest.raises(UsageError, match="belongs to fused_moe, not to group_gemm"):
        resolve_shape("qwen35", GEMM, table)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "the file is empty"),
        ("- A\n", 1, "expected problem names"),
        ("group_gemm:\n  - A\n", 2, "expected shapes of group_gemm"),
        ("group_gemm:\n  A: 5\n", 2, "expected the fields of A"),
        ("group_gemm:\n  A:\n", 2, "expected the fields of A"),
        ("group_gemm:\n  A: {m: 1, n: 8, k: 64\n", 3, "not valid YAML"),
        ("group_gemm:\n  A: {m: 1\tn: 8}\n", 2, "not valid YAML"),
        (
            "group_gemm:\n  A: {m: 1, n: 8, k: 64}\n  A: {m: 1, n: 8, k: 64}\n",
            3,
            "already on line 2",
        ),
        ("group_gemm:\n  A:\n    m: 1\n    n: 8\n    m: 2\n", 5, "'m' is already on line 3"),
        ("group_gemm:\n  A:\n    m: 1\n    n: 8\n    k: -64\n", 5, "k must be a positive integer"),
        ("group_gemm:\n  A:\n    m: 1\n    n: 9\n    k: 64\n", 4, "n must be a multiple of 8"),
        ("group_gemm:\n  A:\n    m: '1'\n    n: 8\n    k: 64\n", 3, "found '1'"),
        ("group_gemm:\n  A:\n    m: []\n    n: 8\n    k: 64\n", 3, "must not be an empty list"),
        ("group_gemm:\n  A:\n    m: [1, 2]\n    n: [8, 8, 8]\n    k: 64\n", 3, "unequal length"),
        ("group_gemm:\n  A:\n    m: 1\n    l: 1\n    n: 8\n    k: 64\n", 4, "unknown field 'l'"),
        ("group_gemm:\n\n  A: {m: 1, n: 8}\n", 3, "missing field 'k'"),
        ("group_gem:\n  A: {m: 1, n: 8, k: 64}\n", 1, "did you mean 'group_gemm'"),
        ("group_gemm:\n  a=b: {m: 1, n: 8, k: 64}\n", 2, "must not hold"),
        ("group_gemm:\n  A: {m: 1, n: 8, k: !!python/none 64}\n", 2, "not valid YAML"),
    ],
)
def test_malformed_file_names_file_and_line(
    tmp_path: Path, text: str, line: int, message: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load_shapes(path, PROBLEMS)
    assert f"{path}:{line}" in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_name_for_two_problems_is_refused(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "group_gemm:\n  A: {m: 1, n: 8, k: 64}\n"
        "fused_moe:\n  A: {m: 1, n: 128, k: 128, e: 2, topk: 1}\n",
    )
    with pytest.raises(UsageError, match=r":4: shape 'A' is already on line 2"):
        load_shapes(path, PROBLEMS)


def test_absent_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load_shapes(tmp_path / "none.yaml", PROBLEMS)


def test_not_text(tmp_path: Path) -> None:
    path = tmp_path / "shapes.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8 text"):
        load_shapes(path, PROBLEMS)
