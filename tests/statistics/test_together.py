"""References of a part together: from healthy sessions through calibrate and its file to the judge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks.sessions import parts_of_metrics
from fabricheck.diagnosis.causes import diagnose
from fabricheck.errors import UserError
from fabricheck.history.calibrate import Calibration, calibrate
from fabricheck.history.references_file import updated_text, write
from fabricheck.judge.siblings import Compared
from fabricheck.judge.system import SystemJudge
from fabricheck.records.case import Case
from fabricheck.records.judgement import Judgement
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.statistics.together import Drawn, together_of
from fabricheck.store.metric_rows import HISTORY, JudgedCase, metrics_table
from fabricheck.yardsticks.references import load_references
from tests.support.equal_runs import POLICY, pairs, run_of
from tests.support.nodes import system
from tests.support.sessions import case

NAME = "hgx-h200"
SPREAD = 0.01
FIRST = datetime(2026, 9, 1, 2, tzinfo=timezone.utc)
NODES = ("nid001", "nid002", "nid003")
GPUS = 4
ATTRIBUTES = {"transport": "copy", "$system": NAME, "$partition": f"{NAME}:gpu", "$environ": "openmpi"}
CASES = {
    node: case(NAME, name=f"Copies{number} %transport=copy", partition=f"{NAME}:gpu", attributes=ATTRIBUTES)
    for number, node in enumerate(NODES)
}
Session = dict[str, Run]


def session(seed: int, loss: dict[str, dict[tuple[int, ...], float]] | None = None) -> Session:
    """A launch on each node, whose pairs differ by 1% from launch to launch."""
    rng = np.random.default_rng(seed)
    found = {}
    for number, node in enumerate(NODES):
        more = (loss or {}).get(node, {})
        slower = {way: 1 - np.exp(SPREAD * rng.standard_normal()) * (1 - more.get(way, 0.0)) for way in pairs(GPUS)}
        made = run_of([node] * GPUS, pairs(GPUS), slower=slower, seed=seed)
        header = {**made.header, "run_id": f"{seed:016x}{number:016x}"}
        found[node] = replace(made, header=header, path=f"out/{node}.jsonl")
    return found


def judged(judge: SystemJudge, runs: Session, cases: Mapping[str, Case] = CASES) -> Compared:
    return judge.compare(
        [
            replace(judge.judge_alone(run, cases[node].test, cases[node].attributes), test=str(cases[node]))
            for node, run in runs.items()
        ]
    )


def calibrated(sessions: Iterable[Session], cases: Mapping[str, Case] = CASES) -> Calibration:
    judge = SystemJudge(system(NAME), None, POLICY)
    tables = []
    for number, each in enumerate(sessions):
        runs = judged(judge, each, cases).runs
        measured = [JudgedCase(cases[node], one, '{"suite": "1"}', "{}") for node, one in zip(NODES, runs, strict=True)]
        tables.append(metrics_table(measured, f"s{number:03}", FIRST + timedelta(days=number)))
    history = pl.concat(tables).select([name for name in HISTORY if name != "rehearsal"])
    return calibrate(history.with_columns(rehearsal=False), NAME)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> SystemJudge:
    """That of a system whose references are of twenty sessions."""
    found = calibrated(map(session, range(20)))
    assert (len(found.references), found.refused) == (36, ())
    return judge_by(found, tmp_path_factory.mktemp("site"))


def judge_by(found: Calibration, folder: Path) -> SystemJudge:
    path = folder / "reference_values" / f"{NAME}.yaml"
    write(path, updated_text(path, found, "fabricheck calibrate"))
    references = load_references(path)
    ((_, together),) = references.together.items()
    assert set(together.parts) >= {"gpu", "node", "session"}
    return SystemJudge(system(NAME), references, POLICY)


def test_healthy_sessions_are_green(judge: SystemJudge) -> None:
    for seed in range(100, 120):
        found = judged(judge, session(seed))
        assert {each.verdict for each in found.runs} == {Verdict.PASS}
        assert found.problems == ()


def slow(found: Compared) -> list[Judgement]:
    return [each for run in found.runs for each in run.judgements if each.verdict is Verdict.DEGRADED]


def test_a_slow_gpu_is_named_although_none_of_its_metrics_is_beyond_its_bound(judge: SystemJudge) -> None:
    loss = {"nid002": {way: 0.025 for way in pairs(GPUS) if 2 in way}}
    runs = session(200, loss)
    alone = judge.judge_alone(runs["nid002"], CASES["nid002"].test, CASES["nid002"].attributes)
    assert alone.verdict is Verdict.PASS
    found = judged(judge, runs)
    assert [each.verdict for each in found.runs] == [Verdict.PASS, Verdict.DEGRADED, Verdict.PASS]
    assert {each.samples.ranks for each in slow(found)} == set(loss["nid002"])
    (named,) = (each for each in diagnose(found.runs, found.problems).problems if each.components)
    assert (named.components[0].text, named.files) == ("nid002:gpu2", ("out/nid002.jsonl",))
    # Enough to stand alone where the next launch does not show it.
    assert named.p is not None and named.p < 1e-5
    # The check that measured it says the same, so that it is launched again.
    own = judge.compare([replace(alone, test=str(CASES["nid002"]))])
    assert [each.verdict for each in own.runs] == [Verdict.DEGRADED]


def test_what_all_launches_lost_alike_is_said_of_the_whole(judge: SystemJudge) -> None:
    found = judged(judge, session(300, {node: dict.fromkeys(pairs(GPUS), 0.03) for node in NODES}))
    (cause,) = diagnose(found.runs, found.problems).causes
    assert set(cause.finding.files) == {f"out/{node}.jsonl" for node in NODES}
    assert cause.finding.code == "all-slow"
    # Nothing of it stands beside something that is as fast as ever: another launch says whether it lasts.
    assert cause.finding.p is None


def test_nodes_that_differ_are_each_held_to_their_own_level(tmp_path: Path) -> None:
    """One test runs on all nodes, of which one is 5% slower than the others and always was."""
    of_node = {"nid003": dict.fromkeys(pairs(GPUS), 0.05)}
    cases = dict.fromkeys(NODES, CASES["nid001"])
    found = calibrated((session(seed, of_node) for seed in range(20)), cases)
    assert len(found.references) == 12
    judge = judge_by(found, tmp_path)
    assert not judged(judge, session(100, of_node), cases).problems
    loss = {way: 0.045 for way in pairs(GPUS) if 2 in way}
    lossy = judged(judge, session(200, {**of_node, "nid002": loss}), cases)
    assert [each.verdict for each in lossy.runs] == [Verdict.PASS, Verdict.DEGRADED, Verdict.PASS]
    (named,) = (each for each in diagnose(lossy.runs, lossy.problems).problems if each.components)
    assert named.components[0].text == "nid002:gpu2"


def test_on_other_nodes_than_were_measured_parts_are_not_judged(judge: SystemJudge) -> None:
    assert judge.references is not None
    (source,) = judge.references.together
    assert judge.references.nodes[source] == set(NODES)
    elsewhere = replace(judge.references, nodes={source: frozenset({"nid009"})})
    loss = {"nid002": {way: 0.025 for way in pairs(GPUS) if 2 in way}}
    found = judged(replace(judge, references=elsewhere), session(200, loss))
    assert slow(found) == []


@pytest.mark.parametrize("shared", [0.0, 0.7])
def test_what_healthy_sessions_share_is_learnt(shared: float) -> None:
    parts, launch = parts_of_metrics(280)
    rng = np.random.default_rng(1)
    units = np.zeros(280, dtype=np.int64)

    def drawn() -> Drawn:
        common = np.sqrt(shared) * rng.standard_normal(5)[launch]
        return Drawn(common + np.sqrt(1 - shared) * rng.standard_normal(280), launch, units, parts)

    found = together_of([drawn() for _ in range(40)], {"Gb/s": 5.0}, 0.005, 40)
    assert found is not None
    assert found.launch == pytest.approx(shared, abs=0.1)
    assert found.bounds["Gb/s"] == pytest.approx(5.0, rel=0.1)
    assert found.parts["gpu"] < 0.2


def test_gpus_that_differ_from_launch_to_launch_are_in_what_is_normal() -> None:
    parts, launch = parts_of_metrics(280)
    rng = np.random.default_rng(2)
    gpus = [each for each in parts if each.kinds == ("gpu",)]

    def drawn() -> Drawn:
        values = rng.standard_normal(280)
        for each in gpus:
            values[each.metrics] += 0.8 * rng.standard_normal()
        return Drawn(values, launch, np.zeros(280, dtype=np.int64), parts)

    found = together_of([drawn() for _ in range(40)], {"Gb/s": 8.0}, 0.005, 40)
    assert found is not None
    assert found.parts["gpu"] > 0.4
    assert together_of([], {}, 0.005, 20) is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("limit: 5", "limit: 0", "together.limit"),
        ("launch: 0.1", "launch: 1", "together.launch"),
        (", limit: 5", "", "together.limit"),
    ],
)
def test_what_a_file_says_of_parts_is_checked(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = """$sources:
  here:
    kind: vendor
    source: made up
    together: {bounds: {Gb/s: 5.1}, launch: 0.1, parts: {gpu: 0.1}, limit: 5}
$provenance: {Copies: here}
Copies: {'*': {x: [1, -0.1, null, Gb/s]}}
"""
    path = tmp_path / "sim.yaml"
    path.write_text(text, encoding="utf-8")
    assert load_references(path).together["here: vendor: made up"].limit == 5
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(UserError, match=said):
        load_references(path)
