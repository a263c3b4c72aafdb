"""A metric on other nodes each night: what they always differ by is no noise, and no loss."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fabricheck.history.series import check_history, series_of
from fabricheck.history.watch import watch
from tests.support.histories import NOW, SYSTEM, Made, history

NODES, NIGHTS, SLOW = 8, 120, 100


def taking_turns(loss: float = 0.0, nights: int = NIGHTS, *, differ: float = 0.02, a_night: int = 1) -> pl.DataFrame:
    """Nights vary by 0.3%, nodes by `differ`; from night 100 on all lose `loss`."""
    rng = np.random.default_rng(3)
    own = rng.normal(0, differ, NODES)
    there = np.zeros((NODES, NIGHTS), dtype=bool)
    for night in range(NIGHTS):
        there[rng.choice(NODES, a_night, replace=False), night] = True
    values = 400 * np.exp(own[:, None] + rng.normal(0, 0.003, (NODES, NIGHTS)))
    values[:, SLOW:] *= 1 - loss
    made = [
        Made("goodput", [float(v) if t else None for v, t in zip(values[n], there[n], strict=True)][:nights],
             nodes=(f"n{n}",), components=(f"n{n}",))
        for n in range(NODES)
        if there[n, :nights].any()
    ]  # fmt: skip
    frame = history(made)
    return frame.with_columns(run_id=pl.col("run_id") + pl.col("nodes").list.first())


def of(frame: pl.DataFrame) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.asarray(np.log(series_of(check_history(frame, now=NOW)).values[0]))


@pytest.mark.parametrize("a_night", [1, 4])
def test_nodes_that_take_turns_are_no_noise(a_night: int) -> None:
    assert of(taking_turns(a_night=a_night))[60:].std() < 0.006
    assert of(taking_turns(a_night=a_night, differ=0))[60:].std() == pytest.approx(0.003 / a_night**0.5, rel=0.35)


def test_a_loss_of_all_is_found_that_the_nodes_would_have_hidden() -> None:
    assert watch(taking_turns(), SYSTEM, now=NOW).incidents == ()
    (found,) = watch(taking_turns(0.03), SYSTEM, now=NOW).open_incidents
    (alert,) = found.alerts
    assert alert.change == pytest.approx(-0.03, abs=0.007)
    assert found.finding.components == ()


def test_a_session_depends_on_none_of_later() -> None:
    np.testing.assert_allclose(of(taking_turns(nights=80)), of(taking_turns())[:80], rtol=1e-12)


def test_other_nodes_of_a_job_are_no_nodes_of_a_metric() -> None:
    """Metrics inside the first node of jobs of two."""
    frame = taking_turns()
    other = pl.concat_str(pl.lit("other"), pl.int_range(pl.len()))
    jobs = frame.with_columns(nodes=pl.concat_list("nodes", other))
    np.testing.assert_allclose(of(jobs), of(frame))


def test_a_metric_of_one_node_is_what_was_measured() -> None:
    frame = history([Made("goodput", [100.0, 101.0, 99.0] * 10)])
    assert of(frame) == pytest.approx(np.log(frame["value"].to_numpy()))


def with_new_nodes(loss: float = 0.0, *, metrics: int = 1, seed: int = 3, heavy: bool = False) -> pl.DataFrame:
    """One node a night, from night 40 on in three of ten nights one that was never there; nights vary by 0.3%, nodes by
    2%, with `heavy` tails or without. In the last 20 nights the first half of the metrics lose `loss`."""
    rng = np.random.default_rng(seed)
    made = []
    turn = np.where(
        (rng.random(NIGHTS) < 0.3) & (np.arange(NIGHTS) >= 40), np.arange(NIGHTS), rng.choice(NODES, NIGHTS)
    )
    for metric in range(metrics):
        own = 0.02 * (rng.standard_t(3, NIGHTS) / 3**0.5 if heavy else rng.standard_normal(NIGHTS))
        values = 400 * np.exp(own[turn] + rng.normal(0, 0.003, NIGHTS))
        if metric < (metrics + 1) // 2:
            values[SLOW:] *= 1 - loss
        made.append(Made(f"goodput_{metric}", values.tolist()))
    nodes = pl.DataFrame({"session": [f"s{n:03}" for n in range(NIGHTS)], "nodes": [[f"n{n}"] for n in turn.tolist()]})
    return history(made).drop("nodes").join(nodes, on="session", maintain_order="left")


def test_a_loss_is_found_that_the_first_sessions_of_nodes_would_have_hidden() -> None:
    """With these sessions as noise, half of the metrics are found."""
    found = 0
    seeds = range(3, 15)
    for seed in seeds:
        incidents = watch(with_new_nodes(0.018, metrics=18, seed=seed), SYSTEM, now=NOW).incidents
        alerts = [alert for each in incidents for alert in each.alerts]
        found += len({alert.key for alert in alerts if alert.raised.session >= f"s{SLOW}"})
    assert found > 0.6 * len(seeds) * 9


def test_a_node_that_is_new_is_no_loss() -> None:
    frames = [with_new_nodes(metrics=18, seed=seed, heavy=True) for seed in range(9, 15)]
    assert [watch(frame, SYSTEM, now=NOW).incidents for frame in frames] == [()] * 6
