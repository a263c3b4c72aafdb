"""What is at fault: a part where the evidence points to one, a pair where not, and no part where all are alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.finding_texts import CATALOGUE
from fabricheck.records.verdict import Verdict
from fabricheck.report.cards import Card
from fabricheck.report.content import plain
from fabricheck.report.lines import steps
from fabricheck.report.part_names import NodeParts
from fabricheck.topology.model import Topology
from tests.support.findings import at, bad_finding
from tests.support.nodes import node
from tests.support.pages import cards_of
from tests.support.pasts import pair_metrics as metrics
from tests.support.pasts import past_with_everything, watched
from tests.support.synthetic import GIB, judged, judgement, pair_run, rank, samples

NO_PART, NOT_ALIKE = (CATALOGUE[code].sentence for code in ("all-slow", "no-healthy-majority"))
SQUARE = node(4, [(a, b, 1, 100.0) for a in range(4) for b in range(a)])
STAR = node(4, [], switch={each: 100.0 for each in range(4)})
PAIRS = [(a, b) for a in range(4) for b in range(4) if a != b]


def suspects(
    *runs: RunJudgement, topology: Topology | None = None, problems: tuple[Finding, ...] = (), **more: Any
) -> list[Card]:
    return list(cards_of([replace(each, topology=topology) for each in runs], problems=problems, **more))


def named(*runs: RunJudgement, topology: Topology | None = None) -> list[str]:
    return [each.part for each in suspects(*runs, topology=topology)]


def bad(*slow: tuple[int, int], verdict: Verdict = Verdict.FAIL) -> dict[tuple[int, int], Verdict]:
    return dict.fromkeys(slow, verdict)


def test_nothing_is_listed_where_nothing_is_wrong() -> None:
    quiet = metrics(slow=None)
    assert suspects(pair_run(), pair_run(), topology=STAR) == []
    found = suspects(pair_run(), topology=STAR, watched=watched(quiet).result)
    assert found == []


def test_a_slow_gpu_is_one_suspect_with_its_address_loss_and_next_step() -> None:
    slow = pair_run(bad=bad(*(pair for pair in PAIRS if 2 in pair)))
    (found,) = suspects(
        replace(slow, test="PingPong %x=1 @s:gpu+e"), replace(slow, test="Both @s:gpu+e"), topology=STAR, system="s"
    )
    assert found.part == "nid001 GPU 2 (bus 0000:02:00.0), or its link to switch"
    assert found.loss == "12 measurements in 2 runs at 8.7 % of their peers"
    assert found.evidence[0].startswith("PingPong x=1, pingpong uncontended 1GiB goodput: ")
    assert found.evidence[0].endswith(" 96.00 Gb/s, and 5 more")
    assert found.next_ == (
        "on nid001: `nvidia-smi nvlink -e -i 0000:02:00.0`",
        "`fabricheck run --system s --name PingPong --name Both`",
    )
    assert (found.source, found.link) == ("2 runs", "run1")


def test_what_the_node_says_of_a_part_stands_with_it() -> None:
    slow = pair_run(bad=bad(*(pair for pair in PAIRS if 2 in pair)))
    said = (
        bad_finding(Verdict.DEGRADED, "nid001: GPU 2: PCIe runs at Gen 3 of 5: reseat it", "nid001:gpu2"),
        bad_finding(Verdict.FAIL, "x"),
    )
    found = suspects(slow, topology=STAR, problems=said)
    assert found[0].evidence[0] == "nid001: GPU 2: PCIe runs at Gen 3 of 5: reseat it"


def test_what_equals_say_of_a_part_stands_with_it_and_what_they_say_of_its_pairs_is_explained() -> None:
    slow = pair_run(bad=bad(*(pair for pair in PAIRS if 2 in pair)))
    places = ("nid001:gpu2", "nid001:gpu2 → nid001:gpu3", "nid001:gpu1 ↔ nid001:gpu2", "nid001:gpu0 → nid001:gpu1")
    problems = tuple(bad_finding(Verdict.DEGRADED, f"{each}: 6 metrics are slower", each) for each in places)
    gpu, pair = sorted(suspects(slow, topology=STAR, problems=problems), key=lambda each: -len(each.part))
    assert gpu.evidence[0] == "nid001:gpu2: 6 metrics are slower"
    assert (pair.part, pair.loss) == ("nid001 GPU 0 → GPU 1", "6 metrics are slower")
    (alone,) = suspects(pair_run(), problems=(replace(problems[0], components=at("nid001:gpu2 sending")),))
    assert alone.part == "nid001 GPU 2 (bus 0000:02:00.0) sending"
    assert alone.next_ == ("on nid001: `nvidia-smi nvlink -e -i 0000:02:00.0`",)


def test_a_pair_that_has_no_part_for_itself_is_named() -> None:
    assert named(pair_run(bad=bad((0, 1))), topology=SQUARE) == ["nid001 GPU 0 ↔ GPU 1"]
    assert named(pair_run(bad=bad((1, 3), (3, 1))), topology=STAR) == ["nid001 GPU 1 ↔ GPU 3"]
    assert named(pair_run(bad=bad((0, 1), (2, 3))), topology=STAR) == ["nid001 GPU 0 ↔ GPU 1", "nid001 GPU 2 ↔ GPU 3"]


def test_what_is_slow_everywhere_is_no_part() -> None:
    (found,) = suspects(pair_run(bad=bad(*PAIRS)), topology=STAR)
    assert found.part == NO_PART
    assert found.loss == "all 12 measurements in 1 run at 8.0 % of the expected rate"


def test_what_is_slow_everywhere_by_different_amounts_is_not_said_to_be_equal() -> None:
    slow = pair_run(bad=bad(*PAIRS))
    worse = tuple(
        replace(each, value=each.value * (0.3 if each.samples.ranks == (1, 2) else 1)) for each in slow.judgements
    )
    (found,) = suspects(replace(slow, judgements=worse), topology=STAR)
    assert found.part == NOT_ALIKE
    assert found.loss == "all 12 measurements in 1 run at 2.4 % to 8.0 % of the expected rate"
    assert found.evidence[0].endswith("1→2 28.80 Gb/s, and 11 more")


def test_collectives_through_a_suspect_are_counted_with_it_and_no_suspect_of_their_own() -> None:
    run = pair_run(bad=bad(*(pair for pair in PAIRS if 2 in pair)))
    everyone = judgement(samples((0, 1, 2, 3), GIB, operation="allreduce"), verdict=Verdict.FAIL)
    (found,) = suspects(replace(run, judgements=(*run.judgements, everyone)), topology=STAR)
    assert found.loss.startswith("7 measurements")
    assert named(replace(pair_run(), judgements=(*pair_run().judgements, everyone)), topology=STAR) == [NO_PART]


def test_what_was_not_measured_right_accuses_nobody_and_clears_nobody() -> None:
    slow = [pair for pair in PAIRS if 2 in pair]
    assert named(pair_run(bad=bad(*slow, verdict=Verdict.INVALID)), topology=STAR) == []
    other = {**bad(*slow), (0, 1): Verdict.INVALID}
    assert len(named(pair_run(bad=other), topology=STAR)) == 1


def test_without_a_topology_it_is_the_node() -> None:
    ranks = [rank(number, f"nid{number}") for number in range(4)]
    run = pair_run(bad=bad(*(pair for pair in PAIRS if 1 in pair)))
    assert named(judged(run.judgements, run.run.samples, ranks=ranks)) == ["nid1 GPU 1 (bus 0000:01:00.0), or nid1"]


def test_wrong_bytes_are_said_as_such() -> None:
    run = pair_run(bad=bad((0, 1)))
    wrong = [replace(each, samples=replace(each.samples, wrong_bytes=7)) for each in run.judgements]
    (found,) = suspects(replace(run, judgements=tuple(wrong)), topology=SQUARE, system="s", folder="run")
    assert found.loss == "1 measurement in 1 run, 1 with wrong bytes"
    assert (found.code, "ci/drain.py run/verdict.json --system s" in found.next_[0]) == ("wrong-bytes", True)


def test_one_wrong_byte_where_all_is_slow_is_a_suspect_of_its_own() -> None:
    run = pair_run(bad=bad(*PAIRS))
    wrong = [
        replace(each, samples=replace(each.samples, wrong_bytes=int(each.samples.ranks == (1, 2))))
        for each in run.judgements
    ]
    pair, all_ = suspects(replace(run, judgements=tuple(wrong)), topology=STAR)
    assert (pair.part, pair.loss) == ("nid001 GPU 1 ↔ GPU 2", "1 measurement in 1 run, 1 with wrong bytes")
    assert (all_.part, all_.loss) == (
        NO_PART,
        "all 11 measurements in 1 run at 8.0 % of the expected rate",
    )


def test_a_problem_is_told_once_with_the_runs_that_have_it_and_a_first_step() -> None:
    text = "out/result.jsonl: nid003 (rank 2) did not report before the others timed out"
    problem = bad_finding(Verdict.INCOMPLETE, text, code="node-did-not-report")
    runs = [replace(pair_run(problems=[problem]), test=f"Test{each} @s:gpu+e") for each in range(5)]
    (found,) = suspects(*runs, system="s")
    assert found.part == "nid003 (rank 2) did not report before the others timed out"
    assert found.loss == "in Test0 @s:gpu+e; Test1 @s:gpu+e; Test2 @s:gpu+e and 2 more"
    assert plain(found.next_[0]) == steps(problem, system="s")[0]


def test_problems_history_and_suspects_each_have_their_place() -> None:
    past = past_with_everything()
    assert past.watched is not None
    problem = bad_finding(Verdict.DEGRADED, "nid002:hsn0 loses 10% (8% to 12%): 6 pairs over it", "nid002:hsn0")
    found = suspects(
        pair_run(bad=bad((0, 1), (1, 0))),
        topology=SQUARE,
        problems=(problem, bad_finding(Verdict.FAIL, "something else")),
        watched=past.watched.result,
    )
    assert [(each.part, each.source, each.link) for each in found] == [
        ("nid001 link GPU 0 - GPU 1", "pingpong over ccl", "run1"),
        ("nid002:hsn0", "session", ""),
        ("something else", "session", ""),
        ("n2:nic0 or n2", "history", "history"),
    ]
    assert found[1].loss == "loses 10% (8% to 12%): 6 pairs over it"
    assert found[3].loss.startswith("6 of 6 metrics that use it got worse; worst: ")
    assert "since 2026-04-11 02:00 (s100)" in found[3].loss
    assert "changed then: nccl: 2.28.3 -> 2.29.1" in found[3].loss


@pytest.mark.parametrize(
    ("component", "said"),
    [
        (Component(Kind.GPU, "gpu2", "gpu-node-01", direction="sending"), "gpu-node-01:gpu2 sending"),
        (Component(Kind.PATH, "gpu0", "gpu-01", "gpu1", "gpu-02"), "gpu-01 gpu0 ↔ gpu-02 gpu1"),
        (Component(Kind.PATH, "gpu0", "gpu-01", "gpu1", "gpu-01", "out"), "gpu-01 gpu0 → gpu1"),
        (Component(Kind.LINK, "gpu0", "gpu-01", "gpu1", "gpu-01"), "gpu-01 link gpu0 - gpu1"),
    ],
)
def test_components_are_called_by_their_fields(component: Component, said: str) -> None:
    assert NodeParts().place([component]) == said


def test_a_card_is_no_milder_than_what_its_part_measured_alone() -> None:
    """Copies between a GPU and its host: its equals find it slow, and it is under the floor."""
    run = pair_run()
    first = replace(run.judgements[0], samples=replace(run.judgements[0].samples, ranks=(2,)), verdict=Verdict.FAIL)
    problem = bad_finding(Verdict.DEGRADED, "nid001:gpu2 is slow", "nid001:gpu2")
    card, *_ = suspects(replace(run, judgements=(first,)), problems=(problem,), topology=SQUARE)
    assert card.part.startswith("nid001 GPU 2")
    assert card.verdict is Verdict.FAIL
