"""What order statistics in place of a whole series change of a judgement."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import median_abs_deviation

from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.order_statistics import as_series, kept_ranks
from fabricheck.records.run import Run, Samples
from fabricheck.results.fabricbench import read_run
from fabricheck.statistics.iterations import median_interval, rank_error_of
from fabricheck.suites.sources import extract

ROOT = Path(__file__).resolve().parents[2]
# Of four H200 (docs/results/h200x4-2026-11-21): pairs, one by one and in rounds, of every transport.
RECORDED = (
    "PingPong-ccl",
    "PingPong-copy",
    "PingPong-mpi",
    "BothDirections-ccl",
    "PeerCopies-kernel-write",
)


def test_the_ranks_are_those_of_fabricbench() -> None:
    """src/tests/test_statistics.cpp has the same."""
    assert kept_ranks(1).tolist() == [0]
    text = (ROOT / "src/tests/test_statistics.cpp").read_text().split("kept_ranks(100),")[1].split("}")[0]
    assert kept_ranks(100).tolist() == [int(each) for each in text.partition("{")[2].split(",")]
    assert len(kept_ranks(1000)) < 50


def test_how_far_the_rank_of_the_median_strays_is_what_fabricbench_says() -> None:
    """src/tests/test_statistics.cpp has the same."""
    assert rank_error_of(np.arange(100, dtype=np.float64)) == 100
    tens = np.arange(200) // 10 * 37 % 101
    assert rank_error_of(tens.astype(np.float64)) == pytest.approx(36.32392, abs=1e-2)


def reduced(samples: Samples) -> Samples:
    """As fabricbench keeps the pairs of a large run."""
    ranks = kept_ranks(samples.times_ns.size)
    if ranks.size == samples.times_ns.size:
        return samples
    times = samples.times_ns
    error = rank_error_of(times.astype(np.float64))
    return replace(samples, times_ns=np.sort(times)[ranks], kept_of=times.size, rank_error=error)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    extract(ROOT / "docs/results/h200x4-2026-11-21/raw.tar.xz", folder)
    return folder / "raw" / "acceptance"


def slowed(run: Run, loss: float) -> Run:
    """The run with the pairs of rank 2 to rank 3 slower by `loss`."""
    samples = (
        replace(each, times_ns=np.rint(each.times_ns / (1 - loss)).astype(np.int64)) if each.ranks == (2, 3) else each
        for each in run.samples
    )
    return replace(run, samples=tuple(samples))


@pytest.mark.full
@pytest.mark.parametrize("name", RECORDED)
def test_every_test_of_the_judge_says_the_same_of_both(name: str, recorded: Path) -> None:
    judge = SystemJudge.of("hgx-h200")
    whole = read_run(recorded / f"{name}.jsonl")
    said = set()
    for loss in (0.0, 0.02, 0.05, 0.4):
        run = slowed(whole, loss)
        kept = replace(run, samples=tuple(map(reduced, run.samples)))
        assert sum(each.kept_of > 0 for each in kept.samples) > len(run.samples) / 3
        one, other = (judge.compare((judge.judge_or_invalid(each, name, {}),)).runs[0] for each in (run, kept))
        assert verdicts(one) == verdicts(other)
        assert [each.verdict for each in one.problems] == [each.verdict for each in other.problems]
        for a, b in zip(one.judgements, other.judgements, strict=True):
            assert a.value == b.value
            width = a.interval[1] - a.interval[0]
            assert b.interval == pytest.approx(a.interval, abs=width / 4 + 1e-9 * a.value)
        said |= set(verdicts(one).values())
    assert len(said) > 1  # the losses are not all beyond doubt


def verdicts(judged: RunJudgement) -> dict[str, str]:
    return {each.name: each.verdict.value for each in judged.judgements}


@given(st.integers(50, 1200), st.floats(0.01, 1.0), st.integers(0, 2**32 - 1))
def test_order_statistics_give_nearly_what_the_whole_series_gives(count: int, width: float, seed: int) -> None:
    times = np.rint(1e6 * np.random.default_rng(seed).lognormal(0.0, width, count)).astype(np.int64)
    series = as_series(np.sort(times)[kept_ranks(count)], count)
    assert np.median(series) == np.median(times)
    least, low, high, most = np.percentile(times, [0, 25, 75, 100])
    assert np.percentile(series, [0, 100]) == pytest.approx([least, most])
    assert np.percentile(series, [25, 75]) == pytest.approx([low, high], abs=0.1 * (high - low))
    assert median_abs_deviation(series) == pytest.approx(median_abs_deviation(times), rel=0.15)
    for confidence in (0.95, 0.999):
        low, high = median_interval(times, confidence)
        reach = (high - low) / 3
        assert median_interval(series, confidence) == pytest.approx((low, high), abs=reach)
