"""Energy per call on a real board."""

from __future__ import annotations

import pytest

import kernelbench
from kernelbench.machine.environment import foreign_processes

pytestmark = pytest.mark.gpu


@pytest.mark.slow
@pytest.mark.skipif(foreign_processes(0) > 0, reason="other processes use this GPU")
def test_a_step_has_an_energy_and_the_board_a_power() -> None:
    record = kernelbench.run(
        "m05", "qwen35", inputs="random", metrics=("device", "energy"), reps=50, seed=1
    )
    (row,) = record.results
    assert row.status == "pass", row.reason
    energy, device = row.metrics["energy"], row.metrics["device"]
    assert (energy.method, energy.reps) == ("nvml", 5)
    # Back to back is warm, so no slower than cold; no board draws more than 1.5 kW.
    assert 0 < energy.median < 1.5e3 * device.median * 1e-3
    assert any("idle" in note for note in row.notes)
