"""Which of several launches counts, and how many it takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.commands.run import run
from fabricheck.errors import UserError
from fabricheck.records.case import NODES, CheckJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.session.launches import (
    FALSE_ALARMS,
    LAUNCHES,
    MOST_LAUNCHES,
    Chance,
    Launch,
    Launched,
    Sign,
    beyond_chance,
    deciding_launch,
    is_open,
    is_outvoted,
    read_launched,
    write_launched,
)
from fabricheck.session.problems import problems_of_cases
from fabricheck.session.reframe_report import FinishedSession
from tests.support.sessions import case

P, N, F = (Launch(each) for each in (Verdict.PASS, Verdict.INCOMPLETE, Verdict.FAIL))
# Slow by one thing, by another, and by both.
A, B, AB = (Launch(Verdict.DEGRADED, frozenset(each)) for each in ("a", "b", "ab"))
BAD_P = '[{"case": "A", "said": [], "counts": "PASS", "folder": "", "node": "", "p": "small"}]'
# A session in which nothing was refuted, and a fleet in which much was.
QUIET, LOUD = Chance(1000), Chance(28_672, (1,) * 30)


@pytest.mark.parametrize(
    ("launches", "counts"),
    [
        ((A,), 0),
        ((A, P), 0),
        ((A, P, P), 2),
        ((A, P, A), 2),
        ((A, N, P), 0),
        ((A, N, N), 0),
        ((A, P, F), 2),
        ((A, B, P), 2),
        ((A, P, B), 1),
        ((A, B, AB), 2),
        ((A, B), 0),
        ((N, P), 1),
        ((N, N), 1),
    ],
)
def test_most_of_those_that_ended_decide(launches: tuple[Launch, ...], counts: int) -> None:
    assert deciding_launch(launches) == counts


@pytest.mark.parametrize(
    ("launches", "chance", "is_so"),
    [
        ("abcdefg", Chance(1000, (1,) * 20), True),
        # Nothing else of the session is noisy.
        ("abcdefg", Chance(1000, (1,)), False),
        ("abc", Chance(1000, (1,)), False),
        # Four of seven.
        ("abacada", Chance(1000, (1,) * 20), False),
        # One that passed is what counts.
        ("abc.", Chance(1000, (1,) * 20), False),
        ("abcF", Chance(1000, (1,) * 20), False),
    ],
)
def test_metrics_vote_where_a_session_has_so_many_that_no_launch_passes(
    launches: str, chance: Chance, is_so: bool
) -> None:
    others = {".": P, "F": F}
    made = [others.get(each) or Launch(Verdict.DEGRADED, frozenset(each), judged=56) for each in launches]
    assert is_outvoted(made, chance) is is_so


@given(st.lists(st.sampled_from([P, N, F, A, B, AB]), max_size=4), st.sampled_from([1, 3]))
def test_what_is_settled_by_most_of_all_no_later_launch_changes(later: list[Launch], most: int) -> None:
    launches = [A, *later][:most]
    if not is_open(launches, most, QUIET):
        verdict = launches[deciding_launch(launches)].verdict
        for one in (P, A, B, AB, N):
            more = [*launches, *[one] * (most - len(launches))]
            assert more[deciding_launch(more)].verdict is verdict


@pytest.mark.parametrize(
    ("launches", "is_quiet_open", "is_loud_open"),
    [
        ((A,), True, True),
        ((A, A), False, True),
        ((A, A, A), False, False),
        ((A, P), True, True),
        ((A, P, P), False, False),
        ((A, P, A), False, True),
        ((A, P, A, A), False, False),
        ((A, P, A, P), True, True),
        ((A, B), True, True),
        ((A, F), False, False),
        ((A, N), True, True),
        ((A, N, N), False, False),
    ],
)
def test_the_more_is_slow_by_chance_the_more_launches_it_takes(
    launches: tuple[Launch, ...], is_quiet_open: bool, is_loud_open: bool
) -> None:
    assert is_open(launches, MOST_LAUNCHES, QUIET) is is_quiet_open
    assert is_open(launches, MOST_LAUNCHES, LOUD) is is_loud_open


def test_a_node_is_one_of_nodes_and_a_metric_one_of_metrics() -> None:
    """Tails of pairs say nothing of nodes, of which there are fewer; those of nodes say something of both."""
    node = Launch(Verdict.DEGRADED, frozenset("n"), 56)
    of_pairs, of_nodes = Chance(28_672, (1,) * 30), Chance(28_672, (56,) * 30)
    assert of_pairs.p_value((node, node)) < FALSE_ALARMS < of_pairs.p_value((A, A))
    assert of_nodes.p_value((node, node)) == 1.0
    assert of_nodes.p_value((A, A)) == of_pairs.p_value((A, A))


def test_what_was_refuted_tells_chance() -> None:
    node = Launch(Verdict.DEGRADED, frozenset("n"), 56)
    assert Chance.of(1000, [(A, A), (A, P, P), (node, B, P), (A, N)]) == Chance(1000, (1, 56))


def sign(p: float | None, breadth: int = 14, *, counted: bool = False) -> Sign:
    gpu = Component(Kind.GPU, "gpu0", "nid001")
    return Sign(Finding("slow-gpu", Verdict.DEGRADED, "slow", (gpu,), p=p), breadth, counted=counted)


def test_what_was_slow_beside_it_and_is_not_again_says_how_often_chance_does_that() -> None:
    """Two metrics of 112 dip in each launch, and one of them twice; all 14 pairs of a slow GPU are slow twice."""
    dips = [Launch(Verdict.DEGRADED, frozenset(each), 2) for each in ("ab", "ac")]
    gpu = [Launch(Verdict.DEGRADED, frozenset("abcdefghijklmn"), 14)] * 2
    chance = Chance.of(112, [dips])
    assert chance == Chance(112, (1,))
    assert is_open(dips, MOST_LAUNCHES, chance)
    assert Chance.of(112, [gpu]) == Chance(112)
    assert not is_open(gpu, MOST_LAUNCHES, Chance(112))


def test_what_several_tests_show_of_one_part_is_no_proof_that_it_is_chance() -> None:
    """A port that heals after the first launches of four tests."""
    port = sign(1e-20, 3)
    mine = Launch(Verdict.DEGRADED, frozenset([*"abc", *port.finding.components]), 3, (port,))
    assert beyond_chance((mine, P, P), Chance.of(320, [(mine, P, P)] * 4)) == ((1, port),)


@pytest.mark.parametrize(
    ("one", "chance", "is_beyond"),
    [
        (sign(2e-12), Chance(1000), True),
        (sign(1e-5), Chance(1000), False),
        # The tails of single values, and of a link's two directions, are those of no distribution.
        (sign(1e-30, 1), Chance(1000), False),
        (sign(1e-30, 2), Chance(1000), False),
        # Where much else was slow once and not again, it is noise.
        (sign(1e-30, 3), Chance(1000), True),
        (sign(1e-30, 3), Chance(1000, (1,) * 100), False),
        (sign(None), Chance(1000), False),
        # What hardware counts is no noise.
        (sign(None, counted=True), Chance(1000, (1,) * 100), True),
    ],
)
def test_what_chance_does_not_explain_in_one_launch_is_told(one: Sign, chance: Chance, is_beyond: bool) -> None:
    slow = Launch(Verdict.DEGRADED, frozenset("a"), signs=(one,))
    assert beyond_chance((slow, P, P), chance) == (((1, one),) if is_beyond else ())
    # What counts says it itself, also where it was slow again.
    assert not beyond_chance((slow, slow), chance) and not beyond_chance((slow,), chance)
    assert not beyond_chance((slow, F, P), chance)


def test_a_run_launches_as_often_as_the_budget_was_measured_with() -> None:
    (launches,) = (each for each in run.params if each.name == "launches")
    assert launches.default == MOST_LAUNCHES


def test_what_was_launched_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_launched(tmp_path) == ()
    said = ("DEGRADED", "on other nodes", "PASS")
    launched = tuple(Launched("A @s:p+e", said, "DEGRADED", "", "nid001", p, outvoted=not p) for p in (None, 0.01))
    write_launched(tmp_path, launched)
    assert read_launched(tmp_path) == launched


@pytest.mark.parametrize("text", ["", "3", "[3]", '[{"case": "A"}]', '[{"case": 1, "said": 2}]', BAD_P])
def test_a_damaged_file_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / LAUNCHES).write_text(text)
    with pytest.raises(UserError, match=LAUNCHES):
        read_launched(tmp_path)


def test_of_a_fleet_the_files_of_one_node_are_those_of_another_launch(tmp_path: Path) -> None:
    first, second = (tmp_path / each / "stage" / "Smoke" for each in ("run", "run/launch-2"))
    for folder, nodes in ((first, ("nid001", "nid002")), (second, ("nid002",))):
        for node in nodes:
            (folder / NODES / node).mkdir(parents=True)
            (folder / NODES / node / "result.jsonl").write_text("{}\n")

    def judged(*found: Finding) -> dict[str, Any]:
        return {"result": "fail", "phase": "performance", "judged": CheckJudgement.of(found)}

    def of_node(node: str, verdict: Verdict) -> Finding:
        return Finding("recorded", verdict, "x", files=(str(first / NODES / node / "result.jsonl"),))

    bad = of_node("nid002", Verdict.DEGRADED)
    slow = case(name="Smoke", folder=first, **judged(bad))
    session = FinishedSession.of(tmp_path / "run", [slow], 1)
    again = session.instead(case(name="Smoke", folder=second), "nid002")
    assert [file.relative_to(tmp_path / "run").parts[0] for file in again.files] == ["launch-2", "stage"]
    assert again.cases[0].verdict is Verdict.PASS and not list(problems_of_cases(again.cases))
    # What else is wrong with the test stays, and what is wrong with the node in the launch that counts.
    hung = of_node("nid001", Verdict.INCOMPLETE)
    session = FinishedSession.of(tmp_path / "run", [case(name="Smoke", folder=first, **judged(bad, hung))], 1)
    again = session.instead(case(name="Smoke", folder=second), "nid002")
    assert again.cases[0].judged == CheckJudgement.of([hung])
    lost = Finding("node-did-not-run", Verdict.INCOMPLETE, "x", (Component.of_node("nid002"),))
    again = session.instead(case(name="Smoke", folder=second, **judged(lost)), "nid002")
    assert again.cases[0].judged == CheckJudgement.of([hung, lost])


def test_two_slow_nodes_of_a_fleet_and_another_problem_come_to_a_verdict(tmp_path: Path) -> None:
    """Each node has launches of its own; the second one met a case that passed with the first one's."""
    first, second = (tmp_path / each / "stage" / "Smoke" for each in ("run", "run/launch-2"))
    for folder, node in ((folder, node) for folder in (first, second) for node in ("nid001", "nid002")):
        (folder / NODES / node).mkdir(parents=True)
        (folder / NODES / node / "result.jsonl").write_text("{}\n")
    slow = case(name="Smoke", folder=first, result="fail", phase="performance", judged=CheckJudgement(Verdict.DEGRADED))
    session = FinishedSession.of(tmp_path / "run", [slow], 2)
    for node in ("nid001", "nid002"):
        session = session.instead(case(name="Smoke", folder=second), node)
    assert [each.code for each in (*session.problems, *problems_of_cases(session.cases))] == ["tests-missing"]
    assert {file.relative_to(tmp_path / "run").parts[0] for file in session.files} == {"launch-2"}
