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
from fabricheck.history import calibrate as calibrating
from fabricheck.history.by_node import nodes_of
from fabricheck.history.calibrate import calibrate
from fabricheck.history.writing import append
from fabricheck.judge.node_levels import level_on
from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Judgement, Reference
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.topology.network import fold
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


def test_nodes_that_are_alike_have_no_levels() -> None:
    alike = fleet(8, spread=0.0)
    found = [nodes_of(made(alike, drawn(list(alike), 48), seed=seed)) for seed in range(60)]
    assert sum(each is not None for each in found) <= 1


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


def test_a_run_of_one_node_of_many_is_told_by_what_its_data_passed() -> None:
    own = fleet(8)
    frame = made(own, drawn(list(own), 80))
    single = frame.with_columns(components=pl.col("components").list.slice(0, 1)).with_columns(
        value=400 * pl.col("components").list.first().replace_strict(own).exp()
    )
    found = nodes_of(single)
    assert found is not None
    assert found.ends == 1


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
SEEN = tuple(DIFFERENCES)


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


def factor(pair: Sequence[str]) -> float:
    """How much longer than in the middle a healthy run takes."""
    return float(np.exp(-sum(DIFFERENCES.get(node, 0.0) for node in pair)))


def judged(root: Path, pair: Sequence[str], loss: float = 0.0) -> RunJudgement:
    name = "-".join(pair)
    file = result_file(root / "judged" / f"{name}-{loss}", 99, factor=factor(pair) * (1 + loss), change=between(pair))
    return SystemJudge.of("local", root).judge(read_run(file), "PingPong", case().attributes)


def goodputs(root: Path, pair: Sequence[str], loss: float = 0.0) -> list[Judgement]:
    return [each for each in judged(root, pair, loss).judgements if each.unit == "Gb/s"]


def verdicts(root: Path, pair: Sequence[str], loss: float = 0.0) -> set[Verdict]:
    return {each.verdict for each in goodputs(root, pair, loss)}


def test_a_loss_is_seen_that_the_differences_of_nodes_hid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, store = make_suite(tmp_path / "suite"), tmp_path / "store"
    rng = np.random.default_rng(3)
    for night, pair in enumerate(drawn(list(DIFFERENCES), 45)):
        noise = float(np.exp(0.001 * rng.standard_normal()))
        file = result_file(root / "results", night, factor=factor(pair) * noise, change=between(pair))
        append(store, session_of(root, night, [file]), STORED)
    pairs = list(itertools.combinations(DIFFERENCES, 2))[:: 15 // effort(15)]
    words = [
        "--system=local",
        "--false-alarms=0.01",
        f"--store={store}",
        f"--references={root / 'reference_values' / 'local.yaml'}",
        "--write",
    ]

    with monkeypatch.context() as before:
        before.setattr(calibrating, "nodes_of", lambda rows: None)
        assert CliRunner().invoke(command, words).exit_code in (0, 4)
    assert all(verdicts(root, pair, 0.03) == {Verdict.PASS} for pair in pairs)

    done = CliRunner().invoke(command, words)
    assert done.exit_code in (0, 4), done.output
    for pair in pairs:
        assert verdicts(root, pair) == {Verdict.PASS}
        assert verdicts(root, pair, 0.03) == {Verdict.DEGRADED}
        assert goodputs(root, pair)[0].yardstick.source.endswith(f"; of {pair[0]}, {pair[1]}")  # type: ignore[union-attr]

    # Healthy nodes that were never seen are not red, whatever they differ by; that they were not is said.
    for unseen, own in (("nid008", 0.02), ("nid009", -0.02)):
        monkeypatch.setitem(DIFFERENCES, unseen, own)
        for pair in (("nid001", unseen), ("nid002", unseen), ("nid007", unseen)):
            assert verdicts(root, pair) == {Verdict.PASS}
            said = SystemJudge.of("local", root).compare([judged(root, pair)]).findings
            others = f"ran on {fold([node for node in pair if node not in SEEN])}"
            where = f"{others}, and its references were measured on nid[001-006]"
            assert any(where in each.message for each in said), pair
