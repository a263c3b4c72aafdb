"""What a setting changes: the statistics against known truths, and the folder of rounds that a job leaves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fabricheck.diagnosis.rounds import RoundLaunch, Sides, launches, require_alike, write_sides
from fabricheck.diagnosis.tuning_effect import (
    Effect,
    EffectKind,
    TuningResult,
    effects_of,
    find_tuning_effects,
    read_comparison,
)
from fabricheck.errors import UserError
from fabricheck.judge.policy import Policy
from fabricheck.judge.statistics import robust_mean
from fabricheck.records.finding import Finding
from fabricheck.records.run import Run, Samples
from fabricheck.records.verdict import Verdict
from tests.support.result_files import HOST, Line, changed, lines_of, settle, write

MIB = 1 << 20
SIDES = Sides("NCCL_PROTO=LL", 4, {"NCCL_PROTO": None}, {"NCCL_PROTO": "LL"}, "b", "openmpi")


def run_of(times: dict[tuple[str, int, tuple[int, ...]], list[float]]) -> Run:
    samples = [
        Samples(operation, "library", "uncontended", -1, ranks, size, 5, "fixed", 0, np.array(values, dtype=np.int64))
        for (operation, size, ranks), values in times.items()
    ]
    return Run("made.jsonl", {}, (), tuple(samples), None)


def rounds_of(gains: list[float], size: int = MIB, operation: str = "allreduce") -> list[tuple[Run, Run]]:
    """In each round side B is faster by a factor, whatever the machine does meanwhile."""
    drift = [1 + 0.3 * number for number in range(len(gains))]
    return [
        tuple(run_of({(operation, size, (0, 1)): [1e9 * slow / speed] * 9}) for speed in (1.0, gain))  # type: ignore[misc]
        for slow, gain in zip(drift, gains, strict=True)
    ]


def one_effect(gains: list[float], **options: float) -> Effect:
    (effect,) = effects_of(rounds_of(gains), **options)  # type: ignore[arg-type]
    return effect


@pytest.mark.parametrize(
    ("gains", "kind"),
    [
        ([1.12, 1.11, 1.13, 1.12], EffectKind.HELPS),
        ([0.90, 0.91, 0.89, 0.90], EffectKind.HURTS),
        ([1.001, 0.999, 1.002, 0.998], EffectKind.NOTHING),
        ([1.0, 1.0, 1.0, 1.0], EffectKind.NOTHING),
        ([1.011, 1.012, 1.013, 1.012], EffectKind.NOTHING),  # surely more than nothing, and surely too little to matter
        ([1.5, 0.7, 1.2, 0.8], EffectKind.CANNOT_SAY),
        ([1.05, 0.99, 1.04, 1.03], EffectKind.CANNOT_SAY),
    ],
)
def test_what_is_said_of_a_metric(gains: list[float], kind: EffectKind) -> None:
    effect = one_effect(gains)
    assert effect.kind is kind
    assert effect.gain == pytest.approx(math.exp(np.mean(np.log(gains))), rel=1e-6)
    assert effect.interval[0] <= effect.gain <= effect.interval[1]


def test_a_goodput_rises_where_a_latency_falls() -> None:
    gains = [1.25, 1.24, 1.26, 1.25]
    (goodput,) = effects_of(rounds_of(gains))
    (latency,) = effects_of(rounds_of(gains, size=8))
    assert (goodput.quantity, latency.quantity) == ("goodput", "latency")
    assert goodput.kind is latency.kind is EffectKind.HELPS
    assert goodput.change == pytest.approx(0.25, rel=1e-3)
    assert latency.change == pytest.approx(-0.2, rel=1e-3)
    assert latency.change_interval[0] < latency.change < latency.change_interval[1] < 0
    assert str(latency).startswith("allreduce 8B latency -20.0% (-2")


def test_a_setting_that_concerns_one_pair_of_two_is_seen() -> None:
    pairs = ("pingpong", MIB, (0, 1)), ("pingpong", MIB, (1, 0))
    rounds = [
        (run_of({pairs[0]: [1e6 * noise] * 5, pairs[1]: [1e6] * 5}), run_of({pairs[0]: [5e5] * 5, pairs[1]: [1e6] * 5}))
        for noise in (1.0, 1.01, 0.99, 1.0)
    ]
    (effect,) = effects_of(rounds)
    assert effect.kind is EffectKind.HELPS
    assert effect.gain == pytest.approx(math.sqrt(2), rel=0.01)


def test_the_tail_is_compared_by_itself() -> None:
    calm, noisy = [1e6] * 90 + [1.1e6] * 10, [1e6] * 90 + [9e6] * 10
    key = ("allreduce", MIB, (0, 1))
    rounds = [(run_of({key: [each + k for each in noisy]}), run_of({key: calm})) for k in range(4)]
    median, tail = effects_of(rounds, percentiles=(50.0, 99.0))
    assert (median.kind, tail.kind) == (EffectKind.NOTHING, EffectKind.HELPS)
    assert tail.gain == pytest.approx(9 / 1.1, rel=0.01)
    assert tail.name == "allreduce 1MiB goodput at percentile 99"


@pytest.mark.parametrize(
    ("rounds", "said"),
    [
        (rounds_of([1.1]), "2 rounds or more, not 1"),
        ([(run_of({}), run_of({}))] * 2, "different measurements, or none"),
        ([(run_of({("allreduce", 8, (0, 1)): [0.0]}), run_of({("allreduce", 8, (0, 1)): [1.0]}))] * 2, "time of zero"),
    ],
)
def test_what_cannot_be_compared_is_refused(rounds: list[tuple[Run, Run]], said: str) -> None:
    with pytest.raises(UserError, match=said):
        effects_of(rounds)


def normal(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.normal(0, 0.05, shape)


def heavy(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Launches of which some are far off, on either side alike."""
    return 0.02 * random.standard_t(3, shape)


def drifting(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A machine that slows down steadily: in the order A B, B A it costs either side in turn."""
    sign = np.where(np.arange(shape[-1]) % 2, -1, 1)
    return random.normal(0, 0.02, shape) + 0.03 * sign


@pytest.mark.parametrize("noise", [normal, heavy, drifting])
@pytest.mark.parametrize("count", [4, pytest.param(8, marks=pytest.mark.full), 12])
@pytest.mark.parametrize("confidence", [0.95, 0.995])
def test_the_interval_of_a_mean_covers_it_as_often_as_it_says(
    noise: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray], count: int, confidence: float
) -> None:
    trials, truth = 4000, 0.1
    data = truth + noise(np.random.default_rng(20261121), (trials, count))
    bounds = np.array([robust_mean(row, confidence).interval for row in data])
    covered = float(np.mean((bounds[:, 0] <= truth) & (truth <= bounds[:, 1])))
    deviation = math.sqrt(confidence * (1 - confidence) / trials)
    assert covered > confidence - 4 * deviation
    if noise is normal:
        assert covered < confidence + 4 * deviation + (0.3 * (1 - confidence) if count >= 8 else 0)


def test_one_wild_value_of_eight_spoils_nothing() -> None:
    calm = [0.10, 0.11, 0.09, 0.10, 0.11, 0.09, 0.10]
    found = robust_mean([*calm, 6.0])
    assert found.value == pytest.approx(0.1, abs=0.01)
    assert 0.05 < found.interval[0] < found.interval[1] < 0.15
    assert one_effect([math.exp(each) for each in (*calm, -6.0)]).kind is EffectKind.HELPS


@pytest.mark.parametrize("noise", [normal, *(pytest.param(each, marks=pytest.mark.full) for each in (heavy, drifting))])
def test_all_intervals_of_a_comparison_hold_together(
    noise: Callable[[np.random.Generator, tuple[int, ...]], np.ndarray],
) -> None:
    """A setting that nobody reads is said to help or to hurt in one of twenty comparisons at most, of 9 metrics."""
    trials, rounds, metrics = 300, 8, 9
    random = np.random.default_rng(20261122)
    wrong = 0
    for _ in range(trials):
        gains = noise(random, (metrics, rounds))
        made = [
            tuple(
                run_of({("allreduce", 8 << size, (0, 1)): [1e12 / speed**side] for size, speed in enumerate(speeds)})
                for side in (0, 1)
            )
            for speeds in np.exp(gains).T
        ]
        found = effects_of(made)  # type: ignore[arg-type]
        assert len(found) == metrics
        wrong += any(each.kind in (EffectKind.HELPS, EffectKind.HURTS) for each in found)
    assert wrong / trials < 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)


def test_rounds_begin_with_either_side_in_turn() -> None:
    assert [each.name for each in launches(3)] == ["1-a", "1-b", "2-b", "2-a", "3-a", "3-b"]


# --- the folder that a job leaves


def case_with(folder: Path, gain: float = 1.2, sides: Sides = SIDES) -> Path:
    """The folder of a test case with all its rounds as fabricbench would have left them, side B faster by `gain`."""
    folder.mkdir(exist_ok=True)
    write_sides(folder, sides)
    for each in launches(sides.rounds):
        speed = gain if each.side == "b" else 1.0
        write(each.result(folder), lines_with(sides, each, speed))
        each.result(folder).with_suffix(".status").write_text("0\n")
    return folder


def lines_with(sides: Sides, launch: RoundLaunch, speed: float) -> list[Line]:
    lines = lines_of(HOST)
    values = sides.of(launch.side)
    lines[0]["environment"] |= {name: value for name, value in values.items() if value is not None}
    lines[0]["run_id"] = lines[-1]["run_id"] = f"{launch.round:031d}{launch.side}"
    for line in lines:
        if line["record"] == "samples":
            line["times_ns"] = [round(1e3 * time / speed) + launch.round for time in line["times_ns"]]
    settle(lines)
    return lines


def found_in(folder: Path) -> Finding:
    (found,) = find_tuning_effects([folder], Policy())
    return found


def problem_in(folder: Path) -> Finding:
    found = found_in(folder)
    assert found.is_problem
    return found


def comparison(folder: Path) -> TuningResult:
    found = read_comparison(folder, Policy())
    assert found is not None
    return found


def test_a_case_without_rounds_says_nothing(tmp_path: Path) -> None:
    assert read_comparison(tmp_path, Policy()) is None
    assert not list(find_tuning_effects([tmp_path], Policy()))


@pytest.mark.parametrize("gain", [1.0, 1.2])
def test_what_helps_or_does_nothing_is_information(tmp_path: Path, gain: float) -> None:
    assert not found_in(case_with(tmp_path / "case", gain)).is_problem


def test_the_sites_own_tuning_that_hurts_is_degraded(tmp_path: Path) -> None:
    hurts = problem_in(case_with(tmp_path / "case", gain=0.8))
    assert hurts.verdict is Verdict.DEGRADED
    # Another setting than the site's that is worse is none of its faults.
    other = found_in(case_with(tmp_path / "other", gain=0.8, sides=replace(SIDES, site="a")))
    assert not other.is_problem


def test_a_launch_that_is_missing_or_failed_leaves_nothing_to_compare(tmp_path: Path) -> None:
    case = case_with(tmp_path / "lost")
    RoundLaunch(3, "b").result(case).unlink()
    assert problem_in(case).verdict is Verdict.INCOMPLETE
    case = case_with(tmp_path / "failed")
    (case / "rounds" / "3-a.status").write_text("1\n")
    assert problem_in(case).verdict is Verdict.INCOMPLETE
    (case / "rounds" / "3-a.status").unlink()
    assert problem_in(case).verdict is Verdict.INCOMPLETE


def test_a_result_file_that_was_cut_off_leaves_nothing_to_compare(tmp_path: Path) -> None:
    case = case_with(tmp_path / "case")
    file = RoundLaunch(2, "a").result(case)
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    assert problem_in(case).verdict is Verdict.INCOMPLETE
    (case / "rounds" / "sides.json").write_text("{}")
    assert problem_in(case).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: lines[0]["environment"].update(NCCL_ALGO="Ring"),
        lambda lines: lines[0]["libraries"]["mpi"].update(version="9.9"),
        lambda lines: [each.update(host="elsewhere") for each in lines[0]["ranks"]],
    ],
)
def test_launches_differ_in_what_is_compared_and_in_nothing_else(
    tmp_path: Path, change: Callable[[list[Line]], object]
) -> None:
    case = case_with(tmp_path / "case")
    lines = lines_with(SIDES, RoundLaunch(4, "b"), 1.2)
    change(lines)
    write(RoundLaunch(4, "b").result(case), lines)
    assert problem_in(case).verdict is Verdict.INCOMPLETE


def test_runs_are_alike_whatever_the_launcher_says_to_its_ranks(tmp_path: Path) -> None:
    one = changed(tmp_path, lambda lines: lines[0]["environment"].update(OMPI_MCA_ess_base_jobid="1"))
    two = changed(tmp_path, lambda lines: lines[0]["environment"].update(OMPI_MCA_ess_base_jobid="2"))
    assert require_alike([one, two], []) == ()
    three = changed(tmp_path, lambda lines: lines[0]["environment"].update(NCCL_PROTO="LL"))
    assert require_alike([one, three], ["NCCL_PROTO"]) == ()
    assert [each.verdict for each in require_alike([one, three], [])] == [Verdict.INVALID]


def ended(case: Path, **statuses: int) -> Path:
    """Of the first two rounds, how each launch ended."""
    write_sides(case, SIDES)
    for name, status in statuses.items():
        launch = RoundLaunch(int(name[1]), name[0])  # type: ignore[arg-type]
        launch.result(case).with_suffix(".status").write_text(f"{status}\n")
        if status == 0:
            write(launch.result(case), lines_with(SIDES, launch, 1.0))
    return case


def test_a_setting_without_which_nothing_runs_is_needed(tmp_path: Path) -> None:
    found = comparison(ended(tmp_path, a1=139, b1=0, b2=0, a2=139))
    assert found.verdict is Verdict.PASS
    assert found.needed and found.effects == ()


@pytest.mark.parametrize(
    "statuses",
    [{"a1": 139, "b1": 0, "b2": 0, "a2": 0}, {"a1": 139, "b1": 0, "b2": 1}, {"a1": 139, "b1": 0, "b2": 0}, {"a1": 139}],
)
def test_failing_once_or_on_both_sides_is_no_need(tmp_path: Path, statuses: dict[str, int]) -> None:
    assert problem_in(ended(tmp_path, **statuses)).verdict is Verdict.INCOMPLETE
