"""What a launch of each test came to, before it is launched again."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricheck.diagnosis.causes import diagnose
from fabricheck.records.case import Case, CheckJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.metrics import metrics_of
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.rfm.measure import FabricbenchCheck
from fabricheck.rfm.shared_job import JOBS
from fabricheck.session.launches import MOST_LAUNCHES, Launch, Launched, read_launched, write_launched
from fabricheck.session.outcome import Outcome, _vote, judge_session, launches_of
from fabricheck.session.reframe import Selection
from fabricheck.session.reframe_report import FinishedSession
from fabricheck.session.relaunch import Again
from fabricheck.session.slow_once import slow_again, write_slow_once
from fabricheck.session.suite_run import Launcher
from fabricheck.store.session_nodes import node_records
from fabricheck.suite import Suite
from tests.support.effort import effort
from tests.support.equal_runs import judge_of, pairs, run_of
from tests.support.sessions import case, make_suite, result_file


def only_launch(folder: Path, run: Run, *problems: Finding, **checked: Any) -> Launch:
    file = folder / "result.jsonl"
    file.write_text("{}\n")
    judge, measured = judge_of(), case(folder=folder, **checked)
    found = judge.compare([replace(judge.judge_alone(replace(run, path=str(file))), test=str(measured))])
    outcome = Outcome(diagnose(found.runs, (*found.problems, *problems)), found.runs, (measured,))
    (launch,) = launches_of(FinishedSession.of(folder, [measured], 0), outcome).values()
    return launch


def test_a_launch_says_what_is_slow_and_how_many_metrics_that_has(tmp_path: Path) -> None:
    """Of 12 pairs of four GPUs those 6 of one: its name, and how rare chance is for as much of a session."""
    launch = only_launch(tmp_path, run_of(["vm"] * 4, pairs(4), slower={way: 0.05 for way in pairs(4) if 3 in way}))
    assert (launch.verdict, launch.metrics) == (Verdict.DEGRADED, 6)
    gpu = Component(Kind.GPU, "gpu3", "vm")
    assert gpu in launch.slow
    assert len(launch.slow) == 6 + 2  # and its link to the switch
    # Beside each other: six pairs of one operation and size.
    (sign,) = launch.signs
    assert (sign.finding.components[0], sign.breadth, sign.counted) == (gpu, 6, False)
    assert sign.finding.p is not None and sign.finding.p < 1e-6
    assert len(sign.finding.metrics) == 6


@pytest.mark.parametrize("slow", [(), (Finding("slow-part", Verdict.DEGRADED, "slow"),)])
def test_what_a_node_reports_needs_no_second_launch(tmp_path: Path, slow: Sequence[Finding]) -> None:
    """Beside it, what only the check found to be slow."""
    differ = Finding("nodes-differ", Verdict.DEGRADED, "as planted", files=(str(tmp_path / "result.jsonl"),))
    checked = CheckJudgement.of([differ, *slow])
    run = run_of(["vm"] * 4, pairs(4))
    launch = only_launch(tmp_path, run, differ, result="fail", phase="performance", judged=checked)
    assert (launch.verdict, bool(launch.slow)) == (Verdict.DEGRADED, bool(slow))


def judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, losses: Sequence[Mapping[tuple[int, ...], float]]
) -> tuple[FinishedSession, Outcome]:
    """The session of one test whose pairs lose so much in each launch."""
    root = make_suite(tmp_path / "suite")
    runs = tmp_path / "run"
    cases = [case("hgx-h200", folder=runs / f"launch-{number}") for number in range(1, len(losses) + 1)]
    results: dict[Path, Run] = {}
    for one, slower in zip(cases, losses, strict=True):
        assert one.folder is not None
        one.folder.mkdir(parents=True)
        file = one.folder / "result.jsonl"
        file.write_text("{}\n")
        results[file] = replace(run_of(["vm"] * 4, pairs(4), slower=slower), path=str(file))
    monkeypatch.setattr("fabricheck.session.outcome.read_result", lambda file, *_: results[file])
    again = Again(Launcher(Suite(root), tmp_path), Selection("hgx-h200"), len(losses), lambda _: None)
    left = iter(cases[1:])
    monkeypatch.setattr(Launcher, "run_again", lambda *_, **__: ((next(left),), ""))
    monkeypatch.setattr(
        "fabricheck.session.reframe_report._moved_cases", lambda folder: (cases[int(folder.name[-1]) - 1],)
    )
    session, _ = again.judge(FinishedSession.of(runs, cases[:1], 1))
    return session, judge_session(session, Suite(root), "hgx-h200")


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        # Far beyond chance and gone: so looks a flapping optic.
        ((0.05, 0.0, 0.0), Verdict.DEGRADED),
        ((0.9, 0.0, 0.0), Verdict.DEGRADED),
        # By no more than what a launch may be off by.
        ((0.006, 0.0, 0.0), Verdict.PASS),
    ],
)
def test_what_was_slow_in_one_launch_beyond_chance_is_intermittent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, losses: tuple[float, ...], verdict: Verdict
) -> None:
    crossing = [{way: loss for way in pairs(4) if 3 in way} for loss in losses]
    session, outcome = judged_again(tmp_path, monkeypatch, crossing)
    runs = session.folder
    assert outcome.verdict is verdict, outcome.problems
    assert session.files == (runs / "launch-3" / "result.jsonl",)
    found = [each for each in outcome.problems if each.code == "intermittent"]
    assert [each.components[0] for each in found] == [Component(Kind.GPU, "gpu3", "vm")] * (verdict is Verdict.DEGRADED)
    # Who reads the folder later finds the same.
    assert [one.code for each in read_launched(runs) for one in each.intermittent] == ["intermittent"] * len(found)
    nodes = node_records(outcome.cases, outcome.judged, problems=outcome.problems)
    assert nodes["vm"].verdict == verdict.value


@pytest.mark.parametrize(("slow", "verdict"), [(0, Verdict.PASS), (1, Verdict.INCOMPLETE), (6, Verdict.DEGRADED)])
def test_in_its_only_launch_a_test_is_slow_by_no_more_than_chance_explains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: int, verdict: Verdict
) -> None:
    """By so many of the pairs of a GPU; one of these may be noise, and names no part."""
    crossing = [way for way in pairs(4) if 3 in way]
    _, outcome = judged_again(tmp_path, monkeypatch, [dict.fromkeys(crossing[:slow], 0.05)])
    assert outcome.verdict is verdict
    assert [len(names) for names in outcome.slow_once.values()] == [1] * (slow == 1)
    named = {part.name for problem in outcome.problems for part in problem.components}
    assert named == ({"gpu3"} if slow == 6 else set())


def test_one_pair_a_launch_that_is_another_each_time_is_outvoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of seven launches passes; a session in which one of 12 metrics is slow by chance explains that."""
    losses = [{way: 0.05} for way in pairs(4)[:MOST_LAUNCHES]]
    session, outcome = judged_again(tmp_path, monkeypatch, losses)
    assert outcome.verdict is Verdict.PASS, outcome.problems
    assert {each.verdict for run in outcome.judged for each in run.judgements} == {Verdict.PASS}
    (launched,) = read_launched(session.folder)
    assert (launched.outvoted, launched.counts, len(launched.said)) == (True, "PASS", MOST_LAUNCHES)


def test_below_the_minimum_is_launched_again_and_fails_where_it_is_so_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crossing = [{way: 0.9 for way in pairs(4) if 3 in way}] * MOST_LAUNCHES
    session, outcome = judged_again(tmp_path, monkeypatch, crossing)
    assert outcome.verdict is Verdict.FAIL
    assert len(read_launched(session.folder)[0].said) > 1


@pytest.mark.parametrize(
    ("verdict", "codes", "counts"),
    [
        (Verdict.INCOMPLETE, ["slow-while-busy"], Verdict.DEGRADED),
        (Verdict.INCOMPLETE, ["slow-while-busy", "no-baseline"], Verdict.INCOMPLETE),
        (Verdict.FAIL, ["below-floor", "wrong-bytes"], Verdict.FAIL),
    ],
)
def test_what_is_only_slow_is_launched_again(verdict: Verdict, codes: Sequence[str], counts: Verdict) -> None:
    assert _vote(verdict, [Finding(code, verdict, "") for code in codes]) is counts


def measured_in(folder: Path, test: str = "PingPong", factor: float = 1.0, place: int = 0) -> Case:
    own = folder / f"test{place}"
    result_file(own, 1, place, factor=factor).rename(own / "result.jsonl")
    return case(name=f"{test} %transport=mpi %place={place}", folder=own)


def suite_of(tmp_path: Path, healthy: Case, test: str = "PingPong") -> tuple[Path, str]:
    """A suite with a reference of one latency of `healthy`, and the name of its metric. Votes take 2%, one launch three
    times that."""
    root = make_suite(tmp_path / "suite")
    metric = next(each for each in metrics_of(read_run(healthy.result_files()[0])) if each.unit == "us")
    source = "{kind: measured, source: x, date: 2026-11-29, system: local, software: x, command: x, once: {us: 3}}"
    (root / "reference_values" / "local.yaml").write_text(
        f"$sources:\n  healthy: {source}\n$provenance:\n  {test}: healthy\n"
        f"{test}:\n  '*': {{{metric.name}: [{metric.value}, null, 0.02, us]}}\n"
        "$uncalibrated: {'*': not asked}\n"
    )
    return root, metric.name


#: What keeps a slow test from a second launch: a busy queue, and what was asked of us or of ReFrame.
NO_RELAUNCH = ("busy", "--launches=1", "--repeat=3", "-P x=1", "--parameterize=x=1", "--distribute=all", "--reruns=2",
               "--max-retries=1", "--duration=1h")  # fmt: skip


@settings(max_examples=effort(20), deadline=None)
@given(
    way=st.sampled_from(NO_RELAUNCH),
    factors=st.lists(st.sampled_from((0.95, 1.0, 1.04, 1.1)), min_size=1, max_size=3),
    left=st.sets(st.integers(0, 2)),
)
def test_what_cannot_be_launched_again_is_incomplete_and_asked_first_next_time(
    way: str, factors: Sequence[float], left: set[int]
) -> None:
    """By bounds of 2% for votes and 6% for one launch; `left`: what the session before left open."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        asked: list[list[str]] = []

        def run_again(*given: Any, **_: object) -> tuple[tuple[Case, ...], str]:
            asked.append([*map(str, given[2])])
            return (), ""

        patch.setattr(Launcher, "run_again", run_again)
        cases = [
            measured_in(Path(name) / "runs/local-20261129T000000Z", factor=factor, place=place)
            for place, factor in enumerate(factors)
        ]
        root, metric = suite_of(Path(name), measured_in(Path(name) / "healthy"))
        before = {str(cases[place]): (metric,) for place in left if place < len(cases)}
        (earlier := Path(name) / "runs/local-20261128T000000Z").mkdir()
        write_slow_once(earlier, before)
        selection = Selection("local", more=(way,) if way.startswith("-") else ())
        again = Again(Launcher(Suite(root), Path(name)), selection, 1 if "launches" in way else 3, lambda _: None)
        folder = Path(name) / "runs/local-20261129T000000Z"
        session, _ = again.judge(FinishedSession.of(folder, cases, len(cases)))
        outcome = judge_session(session, Suite(root), "local")
    slow = [str(case) for case, factor in zip(cases, factors, strict=True) if factor > 1.02]
    surely = {str(case) for case, factor in zip(cases, factors, strict=True) if factor > 1.06}
    alone = {*slow} - surely - before.keys()
    found = {judged.test: judged.verdict for judged in outcome.judged}
    assert {test for test, verdict in found.items() if verdict is Verdict.DEGRADED} >= surely
    assert not alone & {test for test, verdict in found.items() if verdict is Verdict.DEGRADED}
    assert alone <= outcome.slow_once.keys()
    assert len([each for each in outcome.problems if each.code == "slow-once"]) == len(outcome.slow_once)
    assert not any(each.components for each in outcome.problems if each.code == "slow-once")  # nothing to drain
    if alone and not surely and not before:
        assert outcome.verdict is Verdict.INCOMPLETE
    order = [*sorted(slow, key=lambda test: test not in before)]
    assert asked[:1] == ([order] if way == "busy" and slow else [])


@pytest.mark.parametrize(
    ("test", "launched", "verdict"),
    [
        ("FleetNetwork", "", Verdict.DEGRADED),  # its bounds are for one launch, as there is no other
        ("PingPong", "PASS, did not run", Verdict.PASS),
        ("PingPong", "DEGRADED, DEGRADED", Verdict.DEGRADED),
    ],
)
def test_a_bound_that_takes_two_launches_judges_nothing_by_one(
    tmp_path: Path, test: str, launched: str, verdict: Verdict
) -> None:
    folder = tmp_path / "run"
    measured = measured_in(folder, test, factor=1.04)
    root, metric = suite_of(tmp_path, measured_in(tmp_path / "healthy"), test)
    if launched:
        p = 1e-4 if launched.endswith("DEGRADED") else None
        said = tuple(launched.split(", "))
        write_launched(folder, [Launched(str(measured), said, "DEGRADED", p=p)])
    session = FinishedSession.of(folder, [measured], 1).with_launches(read_launched(folder))
    outcome = judge_session(session, Suite(root), "local")
    (judged,) = [each for run in outcome.judged for each in run.judgements if each.name == metric]
    assert judged.verdict is verdict
    assert any(metric in each.metrics for each in outcome.problems) is (verdict is Verdict.DEGRADED)


@pytest.mark.parametrize(
    ("losses", "codes"),
    [
        ((1.04, 1.0), ("slow-once", "")),
        ((1.04, 1.04), ("slow-once", "slower-than-reference")),
        ((1.04, None, 1.0), ("slow-once", "", "")),
        ((1.04, None, 1.04), ("slow-once", "", "slower-than-reference")),
        ((1.04, 1.0, 1.04), ("slow-once", "", "slow-once")),
    ],
)
def test_the_next_session_that_runs_it_decides_what_one_launch_left_open(
    tmp_path: Path, losses: Sequence[float | None], codes: Sequence[str]
) -> None:
    root, metric = suite_of(tmp_path, measured_in(tmp_path / "healthy"))
    for night, (loss, code) in enumerate(zip(losses, codes, strict=True), start=1):
        folder = tmp_path / "runs" / f"local-202611{night:02}T000000Z"
        folder.mkdir(parents=True)
        cases = [measured_in(folder, factor=loss)] if loss is not None else []
        outcome = judge_session(FinishedSession.of(folder, cases, len(cases)), Suite(root), "local")
        write_slow_once(folder, outcome.slow_once)
        own = [each for run in outcome.judged for each in run.judgements if each.name == metric]
        said = {*(each.code for each in outcome.problems), *(each.code for each in own)}
        said &= {"slow-once", "slower-than-reference"}
        assert said == ({code} if code else set()), night
        assert bool(outcome.slow_once) is (code == "slow-once" or loss is None)


def test_reframe_by_itself_says_what_a_second_launch_could_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, metric = suite_of(tmp_path, measured_in(tmp_path / "healthy"))
    session = FinishedSession.of(tmp_path / "run", [measured_in(tmp_path / "run", factor=1.04)], 1)
    (judged,) = judge_session(session, Suite(root), "local", may_launch_again=True).judged
    assert judged.slow_once == (metric,)
    monkeypatch.delenv(JOBS, raising=False)
    check: Any = SimpleNamespace(fleet_problems=())
    assert not FabricbenchCheck.as_launched(check, judged).slow_once
    assert [each.code for each in check.fleet_problems] == ["slow-once"]


def test_noise_of_two_sessions_decides_nothing() -> None:
    def slow(first: int, count: int = 20) -> dict[str, tuple[str, ...]]:
        return {f"T{number}": (f"m{number}",) for number in range(first, first + count)}

    assert list(slow_again(slow(0), slow(19), 1000)) == []
    assert len(list(slow_again(slow(0, 1), slow(0, 1), 1000))) == 1
    assert list(slow_again({"T": ("a", "b")}, {"T": ("c",)}, 1000)) == []
