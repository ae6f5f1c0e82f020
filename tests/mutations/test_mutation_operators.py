"""The operators: they find every site, change what they say, and leave the rest alone."""

from __future__ import annotations

import difflib
import functools
import re
from collections import Counter
from pathlib import Path

import mutate
import pytest
from cpp_source import Edit, Source, SourceError, Span, apply
from mutant import FAILED, FILES, OPERATORS, WRONG, Mutant, files_of, mutants

from kernelbench.emulator.findings import CLASSES

KERNELS = Path(__file__).parents[2] / "kernels"

SNIPPET = """// bar_sync(); in a comment, and f(1);
#define UNUSED bar_sync();
KB_DEVICE void roles(SharedStorage& shared, uint32_t count) {
  Mbarrier* full = &shared.full[0];
  for (uint32_t k = 0; k < count; k += kTileK) {
    if (k < 3 && count < 9) ptx::bar_sync(1, f(2, "a;b") + 3);
    const char* text = "bar_sync();";
    ptx::wait<0>();
  }
}

KB_GLOBAL void KB_LAUNCH_BOUNDS(kThreads, 1) kernel(KB_GRID_CONSTANT(Groups) groups) {
  roles(shared_storage<SharedStorage>(), 7);
}
"""


@pytest.fixture
def snippet() -> Source:
    return Source("snippet.cuh", SNIPPET)


def test_comments_literals_and_macros_are_no_code(snippet: Source) -> None:
    assert len(snippet.code) == len(snippet.text)
    assert [snippet.line(call.span.start) for call in snippet.calls("bar_sync")] == [6]


def test_functions(snippet: Source) -> None:
    assert [name for name, _ in snippet.functions] == ["roles", "kernel"]
    assert snippet.function_at(snippet.text.index("wait")) == "roles"
    assert snippet.function_at(0) == ""


def test_a_call_has_its_parts(snippet: Source) -> None:
    (call,) = snippet.calls("bar_sync")
    assert [snippet[argument] for argument in call.arguments] == ["1", 'f(2, "a;b") + 3']
    assert call.statement and snippet[call.statement].endswith("+ 3);")
    (inner,) = snippet.calls("f")
    assert inner.statement is None
    (wait,) = snippet.calls("wait")
    assert wait.template == "<0>" and wait.arguments == ()


def test_loops_and_comparisons(snippet: Source) -> None:
    (loop,) = snippet.loops
    assert snippet[loop.condition] == "k < count" and snippet[loop.step] == "k += kTileK"
    assert snippet.loops_around(snippet.text.index("wait")) == [loop]
    found = [(snippet[c.left], snippet[c.right], c.loop is not None) for c in snippet.comparisons()]
    assert found == [("k", "count", True), ("k", "3", False), ("count", "9", False)]


def test_edits_are_made_at_once() -> None:
    edits = (Edit(Span(4, 5), "x"), Edit(Span(0, 1), "long"))
    assert apply("a = b;", edits) == "long = x;"
    with pytest.raises(SourceError, match="overlap"):
        apply("a = b;", (Edit(Span(0, 3), ""), Edit(Span(2, 4), "")))


def test_a_bracket_that_is_never_closed() -> None:
    with pytest.raises(SourceError, match=r"x:2: a bracket"):
        list(Source("x", "\nf(").calls("f"))


@pytest.fixture(scope="module", params=mutate.STEPS["kernels"])
def of_step(request: pytest.FixtureRequest) -> list[Mutant]:
    return sites(request.param)


@functools.cache
def sites(step: str) -> list[Mutant]:
    """Every mutant of a step, found once."""
    return list(mutants(KERNELS / step))


def on_device(step: Path) -> str:
    """The kernel and its building blocks, without comments and heads of functions."""
    texts = [
        path.read_text(encoding="utf-8")
        for name, path in files_of(step).items()
        if name != FILES[1]
    ]
    return re.sub(r"//.*|^KB_\w+ .*", "", "\n".join(texts), flags=re.MULTILINE)


# Operators that work on every statement that calls one of these, and on nothing else.
EVERY_CALL = {
    "init-count-plus": "mbarrier_init",
    "inval-dropped": "mbarrier_inval",
    "wait-dropped": r"(?:mbarrier|cluster)_wait_parity",
    "wait-parity-flipped": r"(?:mbarrier|cluster)_wait_parity",
    "expect-tx-dropped": "mbarrier_arrive_expect_tx",
    "handover-dropped": "mbarrier_arrive",
    "handover-relaxed": "mbarrier_arrive",
    "commit-dropped": "tcgen05_commit",
    "advance-dropped": "advance",
    "barrier-dropped": "bar_sync",
    "barrier-missing-warp": "bar_sync",
    "cluster-sync-dropped": "cluster_sync",
    "cluster-arrive-relaxed": "barrier_cluster_arrive",
    "cluster-wait-dropped": "barrier_cluster_wait",
    "multicast-removed": "cluster_mask",
    "rank-ignored": "cluster_ctarank",
    "request-twice": "request_cta|clusterlaunchcontrol_try_cancel",
    "warp-sync-dropped": "bar_warp_sync",
    "elect-removed": "elect_sync",
    "copy-dropped": "cp_async_bulk_tensor_2d_shared_global|cp_async_bulk_shared_global",
    "store-dropped": "cp_async_bulk_tensor_2d_global_shared",
    "proxy-fence-dropped": "fence_proxy_async",
    "fence-mbarrier-init-dropped": "fence_mbarrier_init_release_cluster",
    "commit-group-dropped": "cp_async_bulk_commit_group",
    "wait-group-dropped": "cp_async_bulk_wait_group(?:_read)?",
    "wait-group-pending": "cp_async_bulk_wait_group(?:_read)?",
    "replace-dropped": r"tensormap_replace_\w+|replace_matrix|replace_rows",
    "cp-fenceproxy-dropped": "tensormap_cp_fenceproxy",
    "map-acquire-dropped": "fence_proxy_tensormap_generic_acquire_gpu",
    "alloc-dropped": "tcgen05_alloc",
    "dealloc-dropped": "tcgen05_dealloc",
    "wait-ld-dropped": "tcgen05_wait_ld",
    "tcgen05-fence-dropped": r"tcgen05_fence_\w+",
    "cp-dropped": r"tcgen05_cp_\w+",
    "mma-dropped": r"tcgen05_mma_\w+",
}


def test_every_site_is_found(of_step: list[Mutant]) -> None:
    text = on_device(KERNELS / of_step[0].step)
    # A building block waits for the barrier that its caller has named, and is mutated there.
    text = text.replace("mbarrier_wait_parity(ptx::sem_acquire, ptx::scope_cluster, bar", "")
    counts = Counter(mutant.operator for mutant in of_step)
    for name, call in EVERY_CALL.items():
        sites = len(re.findall(rf"(?<!\w)(?:{call})(?:<\w+>)?\(", text))
        assert counts[name] == sites, name
    assert counts["bound-over"] == len(re.findall(r" < ", text))
    assert counts["stage-swapped"] == len(re.findall(r"\[\w+\.stage\]", text))


def test_every_ptx_function_of_the_steps_is_mutated() -> None:
    # Queries and conversions have no sites; what they return is mutated where it is used.
    passive = {
        "smem_address", "thread_index", "warp_index", "lane_index", "cta_index", "cta_count",
    }  # fmt: skip
    for step in mutate.STEPS["kernels"]:
        used = set(re.findall(r"\bptx::(\w+)[<(]", on_device(KERNELS / step))) - passive
        changed: set[str] = set()
        for mutant in sites(step):
            changed |= used & set(re.findall(r"\w+", mutant.code))
        assert used <= changed, step


def test_a_mutant_differs_in_one_place(of_step: list[Mutant]) -> None:
    files = files_of(KERNELS / of_step[0].step)
    originals = {name: path.read_text().splitlines() for name, path in files.items()}
    for mutant in of_step:
        old, new = originals[mutant.file], mutant.text.splitlines()
        blocks = [
            opcode
            for opcode in difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes()
            if opcode[0] != "equal"
        ]
        # Allocation and what frees it change together.
        assert 1 <= len(blocks) <= 2, mutant.id
        assert sum(end - start for _, start, end, _, _ in blocks) <= 8, mutant.id


def test_mutants_are_distinct(of_step: list[Mutant]) -> None:
    seen: dict[tuple[str, str], str] = {}
    for mutant in of_step:
        key = (mutant.file, mutant.text)
        assert key not in seen, f"{mutant.id} is {seen.get(key)}"
        seen[key] = mutant.id


def test_expectations_are_in_the_checkers_words(of_step: list[Mutant]) -> None:
    for mutant in of_step:
        assert mutant.expect.kinds, mutant.id
        assert mutant.expect.kinds <= CLASSES.keys() | {WRONG, FAILED}, mutant.id


def test_every_operator_has_a_site_somewhere() -> None:
    used = {mutant.operator for step in mutate.STEPS["kernels"] for mutant in sites(step)}
    assert used == {each.name for each in OPERATORS}
