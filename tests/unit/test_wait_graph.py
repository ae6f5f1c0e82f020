"""The wait-for graph of a hang: its nodes and edges, and the picture's structure."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from kernelbench.emulator.findings import NOBODY, Access, Waiting
from kernelbench.report.wait_graph import wait_graph, wait_graph_svg

EMPTY = Waiting(
    Access("load_warp", "k.cuh:7"), (0, 0, 0), 0, (4,), 1, "empty[0]", "phase parity 0",
    "1 more arrival", 2, Access(NOBODY),
)  # fmt: skip
LANES = replace(EMPTY, lanes=0xFFFFFFFE, what="the other lanes of its warp", needs="", victim=4)
FULL = replace(
    EMPTY, access=Access("mma_warp", "k.cuh:9"), warps=(5,), lanes=0xFFFFFFFF, what="full[0]",
    arrived=Access("load_warp", "k.cuh:6"),
)  # fmt: skip
EXIT = replace(FULL, access=Access("gemm", "k.cuh:20"), warps=(0, 1), what="named barrier 0",
               needs="64 more threads", victim=4)  # fmt: skip


def test_edges_lead_from_who_waits_to_the_root() -> None:
    graph = wait_graph([EXIT, FULL, LANES, EMPTY])
    assert graph.waiters == (EMPTY, EXIT, FULL, LANES)
    assert graph.objects[0].what == "empty[0]"
    named = {(graph.objects[o].what, graph.waiters[w].what) for o, w in graph.ends}
    assert named == {
        ("full[0]", "empty[0]"), ("full[0]", LANES.what), (LANES.what, "empty[0]"),
        ("named barrier 0", "full[0]"), ("named barrier 0", "empty[0]"),
        ("named barrier 0", LANES.what),
    }  # fmt: skip
    assert all(place for place, _ in graph.ends), "nobody ends the root's wait"


def test_waiters_for_one_thing_share_its_node() -> None:
    other = replace(FULL, warps=(6,), access=Access("epilogue", "k.cuh:12"))
    graph = wait_graph([FULL, other, EMPTY])
    assert (graph.waits, len(graph.objects)) == ((0, 1, 1), 2)
    elsewhere = wait_graph([FULL, replace(FULL, cta=(1, 0, 0))])
    assert len(elsewhere.objects) == 2 and elsewhere.ends == ()


def test_the_picture_has_every_node_and_edge_and_marks_the_root() -> None:
    many = [replace(FULL, warps=(warp,), what=f"<full[{warp}]>") for warp in range(20)]
    root = ElementTree.fromstring(wait_graph_svg([*many, EMPTY]))
    kinds = [element.attrib.get("class") for element in root.iter()]
    assert (kinds.count("waiter"), kinds.count("object"), kinds.count("object root")) == (14, 13, 1)
    assert (kinds.count("for"), kinds.count("ends")) == (14, 13)
    titles = [element.text for element in root.iter() if element.tag.endswith("title")]
    assert "empty[0] lacks 1 arrival: phase parity 0" in titles
    assert "7 more wait" in (root[-1].text or "")
    assert wait_graph_svg([]) == ""
