"""The most probable place of a fault: named where the evidence points, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.verdict import Problem, Verdict
from fabricheck.report.places import Place, places_of
from fabricheck.topology.model import Topology
from tests.support.nodes import node
from tests.support.pasts import compared, past_with_everything, watched
from tests.support.pasts import pair_metrics as metrics
from tests.support.synthetic import GIB, judged, judgement, pair_run, rank, samples

SQUARE = node(4, [(a, b, 1, 100.0) for a in range(4) for b in range(a)])
STAR = node(4, [], switch={each: 100.0 for each in range(4)})
PAIRS = [(a, b) for a in range(4) for b in range(4) if a != b]


def places(*runs: RunJudgement, topology: Topology | None = None, problems: tuple[Problem, ...] = ()) -> list[Place]:
    known = [replace(each, topology=topology) for each in runs]
    return list(places_of(known, problems, watched=None, comparison=None))


def bad(*slow: tuple[int, int], verdict: Verdict = Verdict.FAIL) -> dict[tuple[int, int], Verdict]:
    return dict.fromkeys(slow, verdict)


def test_nothing_is_listed_where_nothing_is_wrong() -> None:
    quiet = metrics(slow=None)
    assert (
        places(pair_run(), pair_run(), topology=STAR, problems=(Problem(Verdict.INCOMPLETE, "a check is gone"),)) == []
    )
    found = places_of(
        [replace(pair_run(), topology=STAR)], (), watched=watched(quiet).result, comparison=compared(quiet)
    )  # fmt: skip
    assert found == ()


def test_a_slow_gpu_of_a_run_is_named() -> None:
    (found,) = places(pair_run(bad=bad(*(pair for pair in PAIRS if 2 in pair))), topology=STAR)
    assert found.where == "nid001:gpu2 (or nid001:gpu2-switch)"
    assert found.evidence.startswith("all 6 pairs over it are slow and no other: ")
    assert "8.0 % of expected and 3 more" in found.evidence
    assert (found.source, found.link) == ("pingpong over ccl", "run1")


def test_two_slow_links_are_two_places() -> None:
    found = places(pair_run(bad=bad((0, 1), (1, 0), (2, 3), (3, 2))), topology=SQUARE)
    assert [each.where for each in found] == ["nid001:gpu0-gpu1", "nid001:gpu2-gpu3"]


def test_one_direction_or_everything_names_no_place() -> None:
    assert places(pair_run(bad=bad((0, 1))), topology=SQUARE) == []
    assert places(pair_run(bad=bad(*PAIRS)), topology=STAR) == []
    # Slow pairs that have nothing for themselves.
    assert places(pair_run(bad=bad((0, 1), (2, 3))), topology=STAR) == []


def test_an_operation_that_is_slow_everywhere_names_no_place_where_another_is_fast() -> None:
    """MPI between host and device memory on an H200: slow both ways at a time of one, fast at once, without GPU 0."""
    slow = pair_run(bad=bad(*PAIRS))
    fast = [judgement(samples(pair, GIB, operation="bidirectional")) for pair in ((1, 2), (1, 3), (2, 3))]
    assert places(replace(slow, judgements=(*slow.judgements, *fast)), topology=STAR) == []


def test_what_was_not_measured_right_accuses_nobody_and_clears_nobody() -> None:
    slow = [pair for pair in PAIRS if 2 in pair]
    assert places(pair_run(bad=bad(*slow, verdict=Verdict.INVALID)), topology=STAR) == []
    other = {**bad(*slow), (0, 1): Verdict.INVALID}
    assert len(places(pair_run(bad=other), topology=STAR)) == 1


def test_collectives_that_pass_clear_no_link() -> None:
    run = pair_run(bad=bad((0, 1), (1, 0)))
    everyone = judgement(samples((0, 1, 2, 3), GIB, operation="allreduce"))
    (found,) = places(replace(run, judgements=(*run.judgements, everyone)), topology=SQUARE)
    assert found.where == "nid001:gpu0-gpu1"


def test_without_a_topology_it_is_the_node() -> None:
    ranks = [rank(number, f"nid{number}") for number in range(4)]
    run = pair_run(bad=bad(*(pair for pair in PAIRS if 1 in pair)))
    (found,) = places(judged(run.judgements, run.run.samples, ranks=ranks))
    assert found.where == "nid1"


def test_devices_that_the_topology_does_not_know_name_no_place() -> None:
    assert places(pair_run(bad=bad((0, 1), (1, 0))), topology=node(1, [])) == []


def test_problems_pages_and_suspects_come_first() -> None:
    past = past_with_everything()
    assert past.watched is not None
    problem = Problem(Verdict.DEGRADED, "nid002:hsn0 loses 10% (8% to 12%): 6 pairs over it", "nid002:hsn0")
    found = places_of(
        [replace(pair_run(bad=bad((0, 1), (1, 0))), topology=SQUARE)],
        (problem, Problem(Verdict.FAIL, "something else")),
        watched=past.watched.result,
        comparison=past.comparison,
    )
    assert [(each.where, each.source, each.link) for each in found] == [
        ("nid002:hsn0", "session", ""),
        ("n2:nic0 (or n2)", "history", "incident1"),
        ("n2:nic0 (or n2)", "comparison", "comparison"),
        ("nid001:gpu0-gpu1", "pingpong over ccl", "run1"),
    ]
    assert found[0].evidence == "loses 10% (8% to 12%): 6 pairs over it"
    assert found[1].evidence.startswith("6 of 6 metrics that cross it got worse; the most ")
    assert "since 2026-04-11 02:00 (s100)" in found[1].evidence
    assert "changed then: nccl: 2.28.3 -> 2.29.1" in found[1].evidence
    assert found[2].evidence.startswith("6 of 6 metrics that cross it regressed since 2026-04-01..")
