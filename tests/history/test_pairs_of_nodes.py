"""Metrics between two nodes, others each session: what nodes differ by is taken out of the noise, as of single ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from fabricheck.commands.history import calibrate as command
from fabricheck.history.by_node import nodes_of
from fabricheck.history.calibrate import calibrate
from fabricheck.judge.system import SystemJudge
from fabricheck.records.judgement import Reference
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.store.writing import append
from fabricheck.yardsticks.node_levels import level_on
from tests.support.effort import effort
from tests.support.histories import NOW, SYSTEM, Made, history
from tests.support.result_files import Line
from tests.support.sessions import NOW as STORED
from tests.support.sessions import case, make_suite, result_file, session_of

METRIC = "unidirectional_contended_0_1_2mib_goodput"
NOISE = 0.002

Pairs = Sequence[tuple[str, str]]


def drawn(names: Sequence[str], runs: int, seed: int = 5) -> list[tuple[str, str]]:
    """The two nodes of each session, each pair as often as any other."""
    pairs = list(itertools.combinations(names, 2))
    order = np.random.default_rng(seed).permutation(np.arange(runs) % len(pairs))
    return [pairs[each] for each in order]


def fleet(count: int, *, spread: float = 0.02, seed: int = 2) -> dict[str, float]:
    own = spread * np.random.default_rng(seed).standard_normal(count)
    return {f"nid{number:03}": float(each) for number, each in enumerate(own)}


def made(own: Mapping[str, float], pairs: Pairs, *, noise: float = NOISE, seed: int = 1) -> pl.DataFrame:
    """One run a session between the nodes of its pair, in jobs that have a node more."""
    levels = np.array([sum(own[node] for node in pair) for pair in pairs])
    values = 400 * np.exp(levels + noise * np.random.default_rng(seed).standard_normal(len(pairs)))
    return history([Made(METRIC, values.tolist())]).with_columns(
        nodes=pl.Series([[*pair, "other"] for pair in pairs]), components=pl.Series([list(pair) for pair in pairs])
    )


def test_differences_of_both_nodes_add_up() -> None:
    own = fleet(12)
    found = nodes_of(made(own, drawn(list(own), 198)))
    assert found is not None
    middle = np.median(list(own.values()))
    assert found.differences == {node: pytest.approx(each - middle, abs=0.006) for node, each in own.items()}
    assert found.spread == pytest.approx(np.std(list(own.values()), ddof=1), rel=0.1)
    assert np.log(found.rows["value"].to_numpy()).std() == pytest.approx(NOISE, rel=0.15)
    # Each node has 33 runs, and a run two of them.
    assert found.error == pytest.approx(2 / 33, rel=0.1)
    assert (found.count, found.ends) == (12, 2)


def test_one_run_that_is_far_off_is_no_difference_of_its_nodes() -> None:
    own = fleet(8)
    pairs = drawn(list(own), 112)
    frame = made(own, pairs)
    wild = frame.with_columns(value=pl.when(pl.int_range(pl.len()) == 7).then(200.0).otherwise("value"))
    before, after = nodes_of(frame), nodes_of(wild)
    assert before is not None and after is not None
    assert after.differences == pytest.approx(before.differences, abs=0.001)


@pytest.mark.parametrize(
    "pairs",
    [
        [("nid000", "nid001"), ("nid002", "nid003"), ("nid004", "nid005")] * 9,  # the same two always meet
        [("nid000", "nid001"), ("nid000", "nid002"), ("nid000", "nid003")] * 9,  # one node is always there
    ],
)
def test_pairs_that_do_not_tell_their_nodes_apart_have_levels_as_pairs(pairs: Pairs) -> None:
    own = fleet(6)
    found = nodes_of(made(own, pairs))
    assert found is not None
    levels = {f"{a}+{b}": own[a] + own[b] for a, b in pairs}
    middle = np.mean(list(levels.values()))
    assert found.differences == {pair: pytest.approx(each - middle, abs=0.003) for pair, each in levels.items()}
    assert np.log(found.rows["value"].to_numpy()).std() == pytest.approx(NOISE, rel=0.25)


@pytest.mark.parametrize(
    "pairs",
    [
        drawn(list(fleet(30)), 60),  # each node four times
        [("nid000", "nid001")] * 40,
        [(f"nid{n:03}", f"nid{n + 1:03}") for n in range(29)],  # no pair twice
    ],
)
def test_where_nothing_tells_what_nodes_differ_by_all_stays_as_it_was(pairs: Pairs) -> None:
    assert nodes_of(made(fleet(30), pairs)) is None


@pytest.mark.parametrize("seen", [2, 1, 0])
def test_a_healthy_pair_is_within_its_bounds_however_many_of_its_nodes_were_seen(seen: int) -> None:
    beyond = 0
    for seed in range(effort(60)):
        own = fleet(12, seed=seed)
        pairs = drawn(list(own)[:10], 90, seed)
        (found,) = calibrate(made(own, pairs, seed=seed), SYSTEM, now=NOW).references
        assert found.nodes is not None
        nodes = {
            name: Reference(value, found.nodes.lower, found.nodes.upper, found.unit, "")
            for name, value in found.nodes.values
        }
        reference = Reference(found.value, found.lower, found.upper, found.unit, "", nodes)
        pair = frozenset([*list(nodes)[:seen], *list(own)[10 : 12 - seen]])
        level = level_on(reference, pair)
        value = 400 * np.exp(sum(own[node] for node in pair) + NOISE * np.random.default_rng(seed).standard_normal())
        assert level.lower is not None and level.upper is not None
        beyond += not level.lower <= value / level.value - 1 <= level.upper
    assert beyond == 0


def test_each_node_that_is_not_known_adds_as_much_to_the_variance() -> None:
    known = Reference(404.0, -0.01, 0.01, "Gb/s", "run1; of a")
    reference = Reference(400.0, -0.05, 0.05, "Gb/s", "run1", {"a": known, "b": known, "c+d": known})
    both, one = level_on(reference, frozenset("ab")), level_on(reference, frozenset("az"))
    assert both.value == pytest.approx(400 * 1.01**2)
    assert both.lower == pytest.approx(-0.01)
    assert both.upper == pytest.approx(0.01)
    assert both.provenance == "run1; of a, b"
    assert one.value == pytest.approx(404.0)
    assert np.log1p(one.lower or 0) ** 2 == pytest.approx((np.log(0.99) ** 2 + np.log(0.95) ** 2) / 2)
    assert level_on(reference, frozenset("cd")) is known
    for pair in ("yz", "cz"):
        assert level_on(reference, frozenset(pair)) is reference


# Six nodes that differ by up to 2%, any two of them in a session.
DIFFERENCES = dict(zip([f"nid{n:03}" for n in range(1, 7)], [0.02, -0.02, 0.015, -0.015, 0.01, -0.01], strict=True))


def between(pair: Sequence[str]) -> Callable[[list[Line]], None]:
    """A run between two nodes, whose iterations vary by a tenth of what those of the synthetic file do."""

    def change(lines: list[Line]) -> None:
        for rank, node in zip(lines[0]["ranks"], pair, strict=True):
            rank.update(host=node, local_rank=0)
        for line in lines:
            if "times_ns" in line:
                middle = float(np.median(line["times_ns"]))
                line["times_ns"] = [round(middle + 0.1 * (time - middle)) for time in line["times_ns"]]

    return change


def test_a_run_is_held_to_the_levels_of_both_its_nodes(tmp_path: Path) -> None:
    root, store = make_suite(tmp_path / "suite"), tmp_path / "store"
    rng = np.random.default_rng(3)

    def result(folder: Path, night: int, pair: Sequence[str], factor: float) -> Path:
        own = float(np.exp(-sum(DIFFERENCES[node] for node in pair)))
        return result_file(folder, night, factor=own * factor, change=between(pair))

    for night, pair in enumerate(drawn(list(DIFFERENCES), 45)):
        file = result(root / "results", night, pair, float(np.exp(0.001 * rng.standard_normal())))
        append(store, session_of(root, night, [file]), STORED)
    references = root / "reference_values" / "local.yaml"
    words = ["--system=local", "--false-alarms=0.01", f"--store={store}", f"--references={references}", "--write"]
    assert CliRunner().invoke(command, words).exit_code in (0, 4)
    judge = SystemJudge.of("local", root)
    for loss, verdict in ((0.0, Verdict.PASS), (0.03, Verdict.DEGRADED)):
        for pair in list(itertools.combinations(DIFFERENCES, 2))[::5]:
            run = read_run(result(root / "judged" / f"{'-'.join(pair)}-{loss}", 99, pair, 1 + loss))
            judged = judge.judge(run, "PingPong", case().attributes).judgements
            assert {each.verdict for each in judged if each.unit == "Gb/s"} == {verdict}
