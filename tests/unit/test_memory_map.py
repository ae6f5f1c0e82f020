"""What lies where in shared memory: from a layout to regions, and the picture's structure."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from kernelbench.emulator.dwarf import Layout
from kernelbench.emulator.memory_map import Region, memory_maps
from kernelbench.emulator.symbols import Place, Symbols
from kernelbench.machine.arch import ARCHES
from kernelbench.report.memory_map import memory_map_svg

BYTE, BARRIER = Layout(1), Layout(8, name="Mbarrier")
STAGE = Layout(
    3072, name="Stage", members=(("a", 0, Layout(2048, element=BYTE)), ("b", 2048, Layout(1024)))
)
STORAGE = Layout(
    12288,
    members=(
        ("stages", 0, Layout(6144, element=STAGE)),
        ("full", 6144, Layout(16, element=BARRIER)),
        ("done", 6160, BARRIER),
        ("tmem", 6168, Layout(4)),
        ("out", 8192, Layout(4096, element=Layout(2048, element=BYTE))),
    ),
)


class Fixed(Symbols):
    """Symbols that know one layout."""

    def __init__(self) -> None:
        super().__init__({})

    def place(self, pc: Any) -> Place | None:
        return None

    def kernel(self, pc: Any) -> str:
        return ""

    def shared_layout(self, pc: Any, type_name: str | None) -> Layout | None:
        return STORAGE if type_name == "S" else None


def raw(kind: str) -> dict[str, Any]:
    return {"pc": None, "shared_type": kind, "shared_bytes": 12288, "tmem_columns": 256}


def test_regions_are_tiles_of_stages_barriers_and_the_rest() -> None:
    (found,) = memory_maps({"memory": [raw("S"), raw("unknown")]}, Fixed())
    assert (found.shared_bytes, found.tmem_columns) == (12288, 256)
    assert found.regions == (
        Region("stages[0].a", 0, 2048),
        Region("stages[0].b", 2048, 1024),
        Region("stages[1].a", 3072, 2048),
        Region("stages[1].b", 5120, 1024),
        Region("full[2]", 6144, 16, True),
        Region("done", 6160, 8, True),
        Region("tmem", 6168, 4),
        Region("out[0]", 8192, 2048),
        Region("out[1]", 10240, 2048),
    )
    assert memory_maps({}, Fixed()) == ()


def test_the_picture_has_every_region_and_the_limits() -> None:
    (found,) = memory_maps({"memory": [raw("S")]}, Fixed())
    root = ElementTree.fromstring(memory_map_svg(found, ARCHES[100]))
    regions = [each for each in root if "region" in each.attrib.get("class", "")]
    assert [each[0].text for each in regions][1::3] == [
        "stages[0].b: 1,024 bytes at 2,048", "full[2]: 16 bytes at 6,144",
        "out[0]: 2,048 bytes at 8,192",
    ]  # fmt: skip
    assert len(regions) == 9
    assert sum("barrier" in each.attrib["class"] for each in regions) == 2
    texts = [each.text for each in root if each.tag == "text"]
    assert texts[:2] == [
        "shared memory: 12,288 of 232,448 bytes",
        "stages: 2 × (a 2,048, b 1,024), 6,144 bytes at 0",
    ]
    assert texts[-2] == "out: 2 × (2,048), 4,096 bytes at 8,192"
    assert texts[-1] == "TMEM: 256 of 512 columns allocated"
    (tmem,) = (each for each in root if each.attrib.get("class") == "tmem k0")
    assert float(tmem.attrib["width"]) == 380
    assert "TMEM" not in memory_map_svg(found, ARCHES[90])
