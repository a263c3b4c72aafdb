from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.special import bdtrc

from benchmarks.calibration import KINDS, bounds, runs_of
from benchmarks.noise import autocorrelated
from fabricheck.errors import UserError
from fabricheck.history.calibrate import ALONE, MANY_METRICS, Calibration, calibrate
from fabricheck.history.references_file import diff, updated_text, write
from fabricheck.history.text import calibration_lines
from fabricheck.session import launches
from fabricheck.statistics.constants import FALSE_ALARMS, FEWEST, VOTED
from fabricheck.statistics.levels import persistence_of
from fabricheck.statistics.robust import centre_and_spread, normal_score, prediction_factor
from fabricheck.statistics.spread import Prior
from fabricheck.statistics.tails import Floats, Tail, deviations_of, joined_tail
from fabricheck.yardsticks.references import load_references
from tests.support.histories import NOW, SYSTEM, Made, history, normal

GOODPUT = "pingpong_uncontended_0_1_1gib_goodput"
LATENCY = "pingpong_uncontended_0_1_8b_latency"


def calibrated(metrics: list[Made], **options: object) -> Calibration:
    return calibrate(history(metrics), SYSTEM, now=NOW, **options)  # type: ignore[arg-type]


def two(runs: int = 20) -> list[Made]:
    return [
        Made(GOODPUT, normal(1, runs, centre=400)),
        Made(LATENCY, normal(2, runs, centre=20, spread=0.05), better="lower", unit="us"),
        Made(GOODPUT, normal(3, runs, centre=300), test="PingPong %transport=mpi"),
    ]


def test_a_second_mode_belongs_to_the_spread() -> None:
    rng = np.random.default_rng(2)
    values = rng.standard_normal((500, 60)) + 6 * (rng.random((500, 60)) < 0.3)
    found = centre_and_spread(values)
    assert np.median(found.spread) == pytest.approx(values.std(), rel=0.1)


@pytest.mark.parametrize("runs", [8, 9, 12, 20, 60])
def test_bounds_cover_what_they_claim(runs: int) -> None:
    values = np.random.default_rng(runs).standard_normal((40_000, runs + 1))
    found = centre_and_spread(values[:, :-1])
    for rate in (0.05, 0.01, 0.001):
        beyond = np.mean(values[:, -1] > found.centre + prediction_factor(runs, rate) * found.spread)
        assert beyond == pytest.approx(rate, abs=max(0.1 * rate, 4 * np.sqrt(rate / 40_000)))


def test_scores_are_those_of_the_same_probability() -> None:
    reach = prediction_factor(10, 0.01) / np.sqrt(1 + 1 / 10)
    score = normal_score(np.asarray([reach, -reach, 0.0, 1e9]), 10)
    assert score == pytest.approx([2.3263, -2.3263, 0, score[3]], abs=1e-3)
    assert 5 < score[3] <= 38
    assert np.isnan(normal_score(np.asarray([1.0]), FEWEST - 1)).all()


def test_too_few_runs_are_refused_with_how_many_it_needs() -> None:
    few = calibrated(two(FEWEST - 1))
    assert few.references == ()
    assert {each.reason for each in few.refused} == {"not enough runs for a useful limit: 1 more"}
    assert all(each.is_healthy for each in few.refused)
    assert len(calibrated(two(FEWEST)).references) >= 2
    with pytest.raises(UserError, match=r"lies between 0 and 0\.5"):
        calibrated(two(), false_alarms=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("runs", [8, 20])
def test_a_healthy_session_is_hardly_ever_beyond_a_bound(kind: str, runs: int) -> None:
    """300 metrics at once, none of which may be beyond its bound: 1% of sessions of 1,000 may have one."""
    metrics, sessions = 300, 100
    kinds = np.repeat(np.arange(metrics // 10), 10)
    red = []
    for system in range(5):
        rng = np.random.default_rng([runs, system])
        values = 0.005 * runs_of(kind, rng, metrics, runs + sessions)
        found = bounds(values[:, :runs], kinds, kinds % 2, 0.01)
        assert np.isfinite(found.reach).mean() > 0.9
        red.append((values[:, runs:] > (found.centre + found.reach)[:, None]).any(axis=0).mean())
    assert np.mean(red) <= 0.01


#: Of metrics of twenty runs whose spread is known.
TWENTY = np.array([20.0]), np.array([np.inf])


def tail_of(metrics: Floats) -> Tail:
    known = Prior(np.ones(1), np.array([1e9]))
    deviations = [deviations_of(runs, known, 0) for runs in metrics]
    return joined_tail(deviations, [np.arange(each.size) for each in deviations])


def test_a_command_says_how_many_runs_show_what_is_rare() -> None:
    few = calibrated(two(FEWEST))
    assert few.runs_needed == 13  # of as many sessions and one more, one is 7.5%
    said = "\n".join(calibration_lines(few))
    assert f"{len(few.references)} of them have few runs" in said
    assert calibrated(two(13)).runs_needed == 13


def test_thousands_of_deviations_tell_a_light_tail_from_a_heavy_one() -> None:
    def factor(kind: str, metrics: int) -> float:
        values = runs_of(kind, np.random.default_rng(1), metrics, 20)
        return float(tail_of(values).factor(0.005 / MANY_METRICS, *TWENTY)[0])

    assert factor("normal", MANY_METRICS) < 6 < factor("normal", 100)
    # Of t with four degrees of freedom one in 200,000 lies 27.8 away, 19.6 standard deviations.
    assert factor("heavy-tailed", MANY_METRICS) > 19.6


@pytest.mark.parametrize("of_launches", [False, True])
def test_rare_dips_leave_bounds_beneath_them(of_launches: bool) -> None:
    """1% of the metrics, or of the launches, lose 30 spreads: votes tell them from a loss of eight."""
    rng = np.random.default_rng(3)
    dips = rng.random((1 if of_launches else MANY_METRICS, 20)) < (0.1 if of_launches else 0.01)
    values = rng.standard_normal((MANY_METRICS, 20)) + 30 * dips
    assert dips.any()
    rates = FALSE_ALARMS * ALONE / MANY_METRICS, ALONE * FALSE_ALARMS
    assert tail_of(values).factor_of_voted(*rates, *TWENTY)[0] < 6
    # So many metrics that votes would not tell: the bound is beyond them.
    many = rng.standard_normal((MANY_METRICS, 20)) + 30 * (rng.random((MANY_METRICS, 20)) < 0.05)
    assert tail_of(many).factor_of_voted(*rates, *TWENTY)[0] > 20


def test_votes_tell_apart_what_bounds_leave_to_them() -> None:
    by_chance = MANY_METRICS * bdtrc(launches.MOST_LAUNCHES // 2, launches.MOST_LAUNCHES, VOTED)
    assert by_chance == pytest.approx(launches.FALSE_ALARMS, rel=0.1)


def test_what_varied_little_by_chance_has_the_bound_of_its_kind() -> None:
    made = [Made(f"pingpong_uncontended_{rank}_15_1gib_goodput", normal(rank, 12)) for rank in range(15)]
    reaches = [-each.lower for each in calibrated(made).references]
    assert min(reaches) > 0.7 * np.median(reaches)


def test_a_metric_that_failed_or_varies_too_much_is_refused() -> None:
    found = calibrated([Made("slow", normal(1, 20), verdict="FAIL"), Made("wild", normal(1, 20, spread=0.5))])
    assert [each.reason.split(":")[0] for each in found.refused] == [
        "failed in 20 of 20 runs",
        "no useful limit",
    ]
    assert [each.is_healthy for each in found.refused] == [False, True]


@pytest.mark.parametrize("seed", range(2))
def test_rare_dips_end_no_calibration(seed: int) -> None:
    """So deep that the tail of eight runs has no end that a number can hold."""
    rng = np.random.default_rng(seed)
    values = 400 * np.exp(0.002 * rng.standard_normal((924, FEWEST))) * np.where(
        rng.random((924, FEWEST)) < 0.02, 0.92, 1
    )  # fmt: skip
    found = calibrated([Made(f"pingpong_{pair}_1gib_goodput", row.tolist()) for pair, row in enumerate(values)])
    assert len(found.references) + len(found.refused) == 924
    assert all(each.is_healthy for each in found.refused)


def test_runs_of_two_versions_have_no_one_value() -> None:
    frame = history(two(40), software={20: {"nccl": "2.29.1"}})
    with pytest.raises(UserError, match=r"more than one software, nccl: 2\.28\.3 -> 2\.29\.1: choose with --runs"):
        calibrate(frame, SYSTEM, now=NOW)
    found = calibrate(frame, SYSTEM, now=NOW, selection="software:nccl=2.29.1")
    assert found.runs == 40  # two tests, twenty sessions
    with pytest.raises(UserError, match="more than one tuning"):
        calibrate(history(two(40), tuning={20: {"profile": "x"}}), SYSTEM, now=NOW)
    # A new revision of the suite changes no measurement.
    revisions = {0: {"nccl": "1", "suite": "abc"}, 20: {"nccl": "1", "suite": "def"}}
    assert calibrate(history(two(40), software=revisions), SYSTEM, now=NOW).references


def attributes(transport: str) -> dict[str, str | int]:
    return {"$partition": "sim:gpu", "$environ": "openmpi", "transport": transport}


def test_references_on_a_full_disk_leave_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, link = tmp_path / "checkout.yaml", tmp_path / "sim.yaml"
    link.symlink_to(own)
    write(link, "PingPong: {}\n")
    assert link.is_symlink()
    assert own.read_text() == "PingPong: {}\n"

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"sim.yaml: cannot be written: No space left on device"):
        write(link, "Other: {}\n")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["checkout.yaml", "sim.yaml"]
    assert own.read_text() == "PingPong: {}\n"


def test_the_judge_reads_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "reference_values" / "sim.yaml"
    found = calibrated(two())
    text = updated_text(path, found, "fabricheck calibrate --system sim")
    assert diff(path, text).startswith("--- a/reference_values/sim.yaml\n+++ b/reference_values/sim.yaml\n")
    assert not path.exists()
    write(path, text)
    references = load_references(path).of("PingPong").lookup(attributes("ccl"))
    goodput, latency = references[GOODPUT], references[LATENCY]
    assert goodput.value == pytest.approx(400, rel=0.02)
    assert goodput.lower is not None and latency.upper is not None
    spread = np.log(np.asarray(two()[0].values, dtype=np.float64)).std(ddof=1)
    factor = prediction_factor(20, FALSE_ALARMS * ALONE / MANY_METRICS)  # more than any of twenty sessions shows
    wider = persistence_of(np.log(np.asarray([two()[0].values], dtype=np.float64))).widening
    assert goodput.lower == pytest.approx(np.expm1(-factor * spread * wider), rel=0.02)
    assert latency.upper > 0.1
    assert "sim-2026-01-20: measured, 2026-01-20: 40 runs in 20 sessions" in goodput.provenance
    assert load_references(path).of("PingPong").lookup(attributes("mpi"))[GOODPUT].value == pytest.approx(300, rel=0.02)
    assert diff(path, updated_text(path, found, "fabricheck calibrate --system sim")) == ""


def test_the_rest_of_a_file_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "sim.yaml"
    path.write_text(
        """# Of the acceptance.
$sources:
  old: {kind: vendor, source: data sheet}
$provenance:
  Other: old
  PingPong: old
$uncalibrated:
  Collectives: not yet
Other:
  $index: [n]
  1: {x: [1, -0.1, null, Gb/s]}  # kept
PingPong:
  $index: ['$partition', '$environ', transport]
  sim:gpu:
    openmpi:
      ccl:
        gone_goodput: [7, -0.1, null, Gb/s]
"""
    )
    tests = [*two(), Made("allreduce_uncontended_all4_1gib_goodput", normal(4, 20), test="Collectives %transport=ccl")]
    text = updated_text(path, calibrated(tests), "fabricheck calibrate --system sim")
    assert "# Of the acceptance." in text
    assert "# kept" in text
    assert "$uncalibrated" not in text
    write(path, text)
    references = load_references(path)
    assert set(references.tests) == {"Other", "PingPong", "Collectives"}
    ccl = references.of("PingPong").lookup(attributes("ccl"))
    assert ccl["gone_goodput"].provenance.startswith("old")
    assert ccl[GOODPUT].provenance.startswith("sim-2026-01-20")
    assert references.of("Other").lookup({"n": 1})["x"].provenance.startswith("old")


def test_a_file_of_another_system_or_index_is_refused_and_left_alone(tmp_path: Path) -> None:
    head = "$sources: {a: {kind: vendor, source: b}}\n$provenance: {PingPong: a}\nPingPong:\n"
    reference = "{x: [1, -0.1, null, Gb/s]}\n"
    path = tmp_path / "sim.yaml"
    path.write_text(
        f"{head}  $index: ['$partition', '$environ', transport]\n  daint:gpu:\n    e:\n      ccl: {reference}"
    )
    with pytest.raises(UserError, match=r"sim\.yaml: PingPong has references of daint:gpu, another system than sim"):
        updated_text(path, calibrated(two()), "c")
    path.write_text(f"{head}  $index: [transport]\n  ccl: {reference}")
    with pytest.raises(UserError, match=r"is indexed by transport and not by \$partition"):
        updated_text(path, calibrated(two()), "c")
    path.write_text("PingPong: 1")
    with pytest.raises(UserError, match=r"sim\.yaml:1"):
        updated_text(path, calibrated(two()), "c")
    assert path.read_text() == "PingPong: 1"


@pytest.mark.parametrize(
    ("correlation", "test", "lasts"),
    [(0.0, "PingPong", False), (0.7, "PingPong", True), (0.0, "FleetNetwork %transport=ccl", True)],
)
def test_where_another_launch_says_nothing_new_bounds_are_for_one(correlation: float, test: str, lasts: bool) -> None:
    """Launches share a level, or there is no other: the first has to be right."""
    values = 400 * np.exp(0.005 * autocorrelated(correlation)(np.random.default_rng(1), 30, 20))
    made = [
        Made(f"pingpong_uncontended_0_{pair}_1gib_goodput", row.tolist(), test=test) for pair, row in enumerate(values)
    ]
    first, once = (
        [each.lower for each in calibrated(made, **more).references] for more in ({}, {"false_alarms": 0.01})
    )
    assert len(first) == len(once) == 30
    assert (first == once) is lasts
    assert all(a >= b for a, b in zip(first, once, strict=True))
    wider = calibrated(made).once.get("Gb/s", 1.0)
    assert lasts or [wider * np.log1p(each) for each in first] == pytest.approx(np.log1p(once), rel=0.02)
