"""The drawing of a node: the slow link is the one that is coloured, and names stay names."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.run import Rank
from fabricheck.records.verdict import Verdict
from fabricheck.report.run_view import NodeDrawing, node_of_run
from fabricheck.topology.model import Gpu, Topology
from tests.support.nodes import node, system
from tests.support.synthetic import GIB, judged, judgement, pair_run, rank, samples, with_yardstick

SQUARE = node(4, [(a, b, 1, 100.0) for a in range(4) for b in range(a)], nics=1)
STAR = node(4, [], switch={each: 100.0 for each in range(4)})


def drawn(run: RunJudgement, topology: Topology) -> NodeDrawing:
    found = node_of_run(replace(run, topology=topology))
    assert found is not None
    return found


def links(found: NodeDrawing) -> dict[str, tuple[str, str | None]]:
    """Tooltip and colour of each line by the link's name."""
    groups = ElementTree.fromstring(str(found.svg)).iter("g")
    titles = [(str(group.findtext("title")), group.findall("path")[-1].get("class")) for group in groups]
    return {title.partition(":")[0]: (title, color) for title, color in titles}


def test_the_link_of_a_slow_pair_has_its_colour_and_says_so() -> None:
    found = drawn(pair_run(bad={(0, 3): Verdict.FAIL, (3, 0): Verdict.FAIL}), SQUARE)
    lines = links(found)
    assert len(lines) == 6
    title, color = lines["gpu3 - gpu0"]
    # The others are as good as their median is.
    assert color == "c0"
    assert "2 pairs, median 8.7 %, worst 0→3 8.7 % of their median" in title
    for title in (title for name, (title, _) in lines.items() if name != "gpu3 - gpu0"):
        assert "median 100." in title
    assert [name for name, (_, each) in lines.items() if each == color] == ["gpu3 - gpu0"]
    assert "the worst is gpu3 - gpu0" in found.summary
    first = found.table.rows[0]
    assert [cell.text for cell in first] == ["gpu3 - gpu0", "test", "2", "8.7 %", "8.7 %", "0→3"]
    assert first[4].verdict is Verdict.FAIL


def test_a_slow_gpu_on_a_switch_colours_its_own_link_alone() -> None:
    bad = {(a, b): Verdict.FAIL for a in range(4) for b in range(4) if 2 in (a, b)}
    lines = links(drawn(pair_run(bad=bad), STAR))
    slow = [name for name, (_, color) in lines.items() if color == "c0"]
    assert slow == ["gpu2 - switch"]


def test_the_share_is_of_what_links_carry_of_data_where_that_is_known() -> None:
    run = pair_run()
    known = [with_yardstick(each, "achievable", 1150.0) for each in run.judgements]
    for judgements, of in ((known, "the achievable"), ([*known[:-2], *run.judgements[-2:]], "their median")):
        found = drawn(replace(run, judgements=tuple(judgements)), SQUARE)
        assert found.of == of and found.title.endswith(f"in % of {of}")
        assert all(f"of {of}" in title for title, _ in links(found).values())


def test_noise_has_no_colour_of_a_fault() -> None:
    assert {color for _, color in links(drawn(pair_run(), SQUARE)).values()} == {"c9"}


def test_what_was_not_measured_is_grey_and_named() -> None:
    found = drawn(judged([judgement(samples((0, 1), GIB))]), SQUARE)
    lines = links(found)
    assert sum("no pair measured" in title for title, _ in lines.values()) == 5
    assert all(color == "unmeasured" for title, color in lines.values() if "no pair measured" in title)
    assert len(found.table.rows) == 1
    assert "gpu2 - gpu0" in found.table.note
    assert "1 of 6 links" in found.summary


def test_no_drawing_without_links_or_over_several_nodes() -> None:
    run = pair_run()
    for topology in (None, replace(SQUARE, links=()), system("local")):
        assert node_of_run(replace(run, topology=topology)) is None
    two = tuple(rank(number, f"nid{number // 2}") for number in range(4))
    assert node_of_run(replace(run, run=replace(run.run, ranks=two), topology=SQUARE)) is None
    # Devices that the topology does not know: the judge says so, the report must not fail.
    assert node_of_run(replace(run, topology=node(1, []))) is None


@pytest.mark.parametrize("evil", ['<script>alert(1)</script>"', "</svg><b>", "\x1b[1m", "]]>", "a&b'"])
def test_names_are_text_in_the_drawing(evil: str) -> None:
    named = replace(
        SQUARE,
        gpus=tuple(Gpu(f"{evil}{each.index}", each.index, evil) for each in SQUARE.gpus),
        links=tuple(
            replace(each, ends=(each.ends[0].replace("gpu", evil), each.ends[1].replace("gpu", evil)), technology=evil)
            for each in SQUARE.links
        ),
    )
    ranks: list[Rank] = [rank(number, evil) for number in range(4)]
    run = replace(pair_run(), run=replace(pair_run().run, ranks=tuple(ranks)))
    found = drawn(run, named)
    assert {each.tag for each in ElementTree.fromstring(str(found.svg)).iter()} == {
        "svg", "g", "title", "line", "path", "rect", "text",
    }  # fmt: skip
    assert not re.search(r"<(script|b)\b", str(found.svg))
    assert "\x1b" not in str(found.svg)
    assert len(found.table.rows) == 6
