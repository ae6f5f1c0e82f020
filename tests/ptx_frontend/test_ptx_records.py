"""The committed records of own steps by their PTX, and the tables that pages have of them."""

from __future__ import annotations

import json

import ptx_equality
import ptx_mutations

EQUALITY = json.loads(ptx_equality.RECORD.read_text())
MUTATIONS = json.loads(ptx_mutations.RECORD.read_text())


def test_the_tables_are_the_records():
    table = ptx_equality.BEGIN + ptx_equality.render(EQUALITY) + ptx_equality.END
    assert table in ptx_equality.PAGE.read_text()
    assert ptx_mutations.TABLE.read_text() == ptx_mutations.render(MUTATIONS)


def test_every_step_is_right_by_its_ptx():
    steps = set(ptx_equality.STEPS) & set(EQUALITY)
    assert {"v07", "v16", "v22", "m05", "m07"} <= steps
    for name in steps:
        shapes = EQUALITY[name]["plain"]["shapes"]
        assert all(not each["wrong"] and not each["found"] for each in shapes.values()), name


def test_what_is_not_mutated_is_clean():
    assert MUTATIONS and set(MUTATIONS) <= set(ptx_mutations.STEPS)
    for name, one in MUTATIONS.items():
        assert one["itself"]["status"] == "not found", name
        assert one["itself"]["runs"] >= ptx_mutations.ITSELF, name
