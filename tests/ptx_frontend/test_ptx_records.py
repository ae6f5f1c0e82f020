"""The committed records of own steps by their PTX, and the tables that pages have of them."""

from __future__ import annotations

import gpu_verdicts
import ptx_equality
import ptx_mutations

from kernelbench.base.json_file import read_json

EQUALITY = read_json(ptx_equality.RECORD)
GPU = read_json(gpu_verdicts.RECORD)
MUTATIONS = read_json(ptx_mutations.RECORD)


def test_the_tables_are_the_records():
    table = "\n".join(
        [ptx_equality.MARKERS[0], ptx_equality.render(EQUALITY), ptx_equality.MARKERS[1]]
    )
    assert table in ptx_equality.PAGE.read_text()
    table = "\n".join([gpu_verdicts.MARKERS[0], gpu_verdicts.render(GPU), gpu_verdicts.MARKERS[1]])
    assert table in gpu_verdicts.PAGE.read_text()
    assert ptx_mutations.TABLE.read_text() == ptx_mutations.render(MUTATIONS)


def test_every_step_is_right_by_its_ptx():
    steps = set(ptx_equality.STEPS) & set(EQUALITY)
    assert steps == set(ptx_equality.STEPS)
    for name in steps:
        shapes = EQUALITY[name]["plain"]["shapes"]
        assert all(not each["wrong"] and not each["found"] for each in shapes.values()), name


def test_the_checker_is_clean():
    for name in ptx_equality.STEPS:
        shapes = EQUALITY[name]["check"]["shapes"]
        assert shapes and not any(each["found"] for each in shapes.values()), name
    assert all(EQUALITY[name]["failed"]["ptx"] for name in ptx_equality.FAILED)


def test_what_a_gpu_makes_otherwise_is_explained():
    assert len(GPU["arithmetic"]) > 700 and len(GPU["kernels"]) > 100
    for opcode, row in GPU["arithmetic"].items():
        assert row["tuples"] >= 1024, opcode
        assert sum(row.get("reasons", {}).values()) == row["differing"], opcode
        assert "" not in row.get("reasons", {}), opcode
        assert all(each <= 1 for each in row.get("worst", ())), opcode
    for name, row in GPU["kernels"].items():
        assert row["differing"] == 0 or row["reason"], name


def test_no_mistake_that_was_found_is_called_an_equivalent():
    rows = {row["id"]: row for one in MUTATIONS.values() for row in one["rows"]}
    assert ptx_mutations.equivalents()
    for name in ptx_mutations.equivalents():
        # Of a step of which a sample is run it may be of an earlier one.
        one = MUTATIONS[name.partition("-")[0]]
        assert name in rows or len(one["rows"]) < one["sites"], name
        assert name not in rows or not rows[name]["found"], name


def test_what_is_not_mutated_is_clean():
    assert MUTATIONS and set(MUTATIONS) <= set(ptx_mutations.STEPS)
    for name, one in MUTATIONS.items():
        assert one["itself"]["status"] == "not found", name
        assert one["itself"]["runs"] >= ptx_mutations.ITSELF, name
