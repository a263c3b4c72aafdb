from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fabricheck.errors import UserError
from fabricheck.history.by_node import measured_at_once, nodes_of
from fabricheck.history.calibrate import Calibration, calibrate
from fabricheck.history.references_file import updated_text, write
from fabricheck.history.text import calibration_lines
from fabricheck.statistics.constants import FEWEST
from fabricheck.yardsticks.node_levels import level_on
from fabricheck.yardsticks.references import load_references
from tests.support.histories import NOW, SYSTEM, Made, history

METRIC = "pingpong_uncontended_0_1_1gib_goodput"
NOISE = 0.002


def made(differences: dict[str, float], runs: int = 10, *, noise: float = NOISE, seed: int = 1) -> pl.DataFrame:
    """Sessions that measure each of some nodes, which differ from 400 Gb/s by these shares."""
    rng = np.random.default_rng(seed)
    metrics = [
        Made(METRIC, list(400 * np.exp(difference + noise * rng.standard_normal(runs))), nodes=(f"{node}.site.org",))
        for node, difference in differences.items()
    ]
    frame = history(metrics)
    return frame.with_columns(run_id=pl.col("run_id") + pl.col("nodes").list.first())


def fleet(count: int, *, spread: float = 0.01, seed: int = 2) -> dict[str, float]:
    drawn = np.random.default_rng(seed).standard_normal(count)
    return {f"nid{number:03}": spread * float(each) for number, each in enumerate(drawn)}


def of(frame: pl.DataFrame) -> Calibration:
    return calibrate(frame, SYSTEM, now=NOW)


def test_differences_of_nodes_are_taken_out_of_the_noise() -> None:
    own = fleet(12)
    found = nodes_of(made(own))
    assert found is not None
    middle = np.median(list(own.values()))
    assert found.differences == {node: pytest.approx(each - middle, abs=0.004) for node, each in own.items()}
    assert found.spread == pytest.approx(np.std(list(own.values()), ddof=1), rel=0.2)
    assert np.log(found.rows["value"].to_numpy()).std() == pytest.approx(NOISE, rel=0.15)
    assert found.error == pytest.approx(0.1)
    assert found.count == 12


def test_noise_is_not_taken_for_less_than_it_is_where_nodes_have_few_runs() -> None:
    """Around a centre of three values these vary by a fifth less than they do."""
    own = {**fleet(60), "known": 0.0}
    frame = pl.concat([made(own, 3), made({"known": 0.0}, FEWEST, seed=3).with_columns(run_id=pl.lit("x"))])
    found = nodes_of(frame)
    assert found is not None
    assert set(found.differences) == {"known"}
    assert np.log(found.rows["value"].to_numpy()).std(ddof=1) == pytest.approx(NOISE, rel=0.1)


@pytest.mark.parametrize(
    "frame",
    [
        made(fleet(1)),
        made(fleet(8), FEWEST - 1),  # no node has enough runs for a level
        made(fleet(40), 1),  # each node once: noise and differences are one
        made(fleet(8)).with_columns(nodes=pl.lit(["a", "b"])),  # a pair of nodes
        made(fleet(8)).with_columns(verdict=pl.lit("FAIL")),
    ],
)
def test_where_nothing_tells_what_nodes_differ_by_all_stays_as_it_was(frame: pl.DataFrame) -> None:
    assert nodes_of(frame) is None


def test_nodes_that_are_alike_have_no_levels() -> None:
    alike = [nodes_of(made(fleet(8, spread=0.0), seed=seed)) for seed in range(300)]
    assert sum(each is not None for each in alike) <= 3  # one in a thousand by chance


def test_a_healthy_fleet_is_within_its_bounds_and_so_is_a_node_that_was_never_seen() -> None:
    beyond_own = beyond_any = 0
    for seed in range(200):
        own = fleet(9, seed=seed)
        unseen = own.pop("nid008")
        (found,) = of(made(own, seed=seed)).references
        assert found.nodes is not None
        rng = np.random.default_rng(1000 + seed)
        levels = dict(found.nodes.values)
        for node, difference in own.items():
            share = 400 * np.exp(difference + NOISE * rng.standard_normal()) / levels[node] - 1
            beyond_own += not found.nodes.lower <= share <= found.nodes.upper
        share = 400 * np.exp(unseen + NOISE * rng.standard_normal()) / found.value - 1
        beyond_any += not found.lower <= share <= found.upper
        assert found.lower < found.nodes.lower < found.nodes.upper < found.upper
    assert (beyond_own, beyond_any) == (0, 0)


def test_the_rate_of_false_alarms_counts_each_node_that_a_session_measures() -> None:
    frame = made(fleet(8))
    assert measured_at_once(frame) == 8
    assert measured_at_once(frame.filter(pl.col("session") == "s000").head(3)) == 3


def test_a_node_that_is_not_like_the_others_gets_no_level_and_is_named() -> None:
    own = {**fleet(20, spread=0.003), "slow": -0.2}
    found = of(made(own))
    (reference,) = found.references
    assert reference.nodes is not None
    assert "slow" not in dict(reference.nodes.values)
    (refused,) = found.refused
    assert refused.reason.startswith("slow is at -1")
    assert "its level cannot be a reference; is it healthy?" in refused.reason
    said = "\n".join(calibration_lines(found))
    assert "these bounds hold for nodes without their own level; 20 nodes have their own, " in said


def test_what_was_written_is_read_and_goes_when_nodes_are_alike_again(tmp_path: Path) -> None:
    path = tmp_path / "sim.yaml"
    found = of(made(fleet(8)))
    write(path, updated_text(path, found, "c"))
    (reference,) = (
        load_references(path)
        .of("PingPong")
        .lookup({"$partition": "sim:gpu", "$environ": "openmpi", "transport": "ccl"})
        .values()
    )
    levels = found.references[0].nodes
    assert levels is not None
    assert {node: (each.value, each.lower, each.upper) for node, each in reference.nodes.items()} == {
        node: (value, levels.lower, levels.upper) for node, value in levels.values
    }
    assert level_on(reference, frozenset({"nid999"})) is reference
    write(path, updated_text(path, of(made(fleet(8, spread=0.0))), "c"))
    text = path.read_text()
    assert "nid003=" not in text
    assert updated_text(path, of(made(fleet(8, spread=0.0))), "c") == text


REFERENCES = """
$sources: {run1: {kind: vendor, source: acceptance}}
$provenance: {A: run1}
A:
  $index: [n]
  a: {x: [100, -0.1, null, Gb/s]}
$nodes:
"""


@pytest.mark.parametrize(
    ("levels", "reason"),
    [
        ("  B: {}", r"B: there are no references"),
        ("  A: {a: {y: [n1=1, -0.1, null, Gb/s]}}", r"y: there is no reference at this place"),
        ("  A: {a: {x: [n1=1 n2, -0.1, null, Gb/s]}}", r"x: 'n2' is not NODE=VALUE"),
        ("  A: {a: {x: [n1=1, -0.1, null, us]}}", r"x: is in us, and its reference in Gb/s"),
        ("  A: {a: {x: [n1=1, null, null, Gb/s]}}", r"has no bound on the side where Gb/s gets worse"),
    ],
)
def test_levels_that_mean_nothing_are_refused_with_their_line(tmp_path: Path, levels: str, reason: str) -> None:
    path = tmp_path / "refs.yaml"
    path.write_text(REFERENCES + levels + "\n")
    with pytest.raises(UserError, match=reason) as caught:
        load_references(path)
    assert str(caught.value).startswith(f"{path}:8")
