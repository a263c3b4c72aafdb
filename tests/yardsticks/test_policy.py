from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.results.fabricbench import read_run
from fabricheck.yardsticks.policy import FloorRule, LatencyRule, Policy, load_policy, scope_of
from tests.support.result_files import CUDA


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    return path


def test_the_first_rule_that_matches_counts(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
floors:
  - {transport: ccl, operations: [pingpong], scope: node, fraction: 0.1, source: a}
  - {transport: mpi, fraction: 0.2, source: b}
  - {scope: network, fraction: 0.3, source: c}
  - {fraction: 0.4, source: d}
""",
    )
    policy = load_policy(path)
    run = read_run(CUDA)
    pair, group = run.samples[0], run.samples[-1]
    assert scope_of(run, pair) == "node"
    apart = replace(run, ranks=(replace(run.ranks[0], host="nid002"), *run.ranks[1:]))
    assert scope_of(apart, pair) == "network"
    found = [policy.floor(*each) for each in ((run, pair), (run, group), (apart, pair))]
    assert [each.source if each else None for each in found] == ["a", "d", "c"]
    assert Policy().floor(run, pair) is None


def test_rules_of_latency_match_transport_and_port() -> None:
    rule = LatencyRule(limit_us=10, minimum_us=1, source="x", transport="ccl", backend="hip")
    asked = (("ccl", "hip"), ("ccl", "cuda"), ("mpi", "hip"))
    assert [rule.matches(transport=by, backend=on) for by, on in asked] == [True, False, False]
    assert rule.limit_for("pingpong", 2) == 10
    assert rule.limit_for("allreduce", 4) == 60
    shared = LatencyRule(limit_us=10, minimum_us=1, source="x", shared_devices=True)
    assert shared.matches(transport="copy", backend="cuda", shared_devices=True)
    assert not shared.matches(transport="copy", backend="cuda", shared_devices=False)


def test_a_floor_rule_matches_each_axis_by_itself() -> None:
    rule = FloorRule(fraction=0.5, source="x", operations=("allreduce",))
    assert rule.matches(transport="ccl", operations="allreduce", scope="node")
    assert not rule.matches(transport="ccl", operations="alltoall", scope="node")
    host = FloorRule(fraction=0.5, source="x", devices=False)
    assert host.matches(transport="mpi", devices=False)
    assert not host.matches(transport="mpi", devices=True)
    together = FloorRule(fraction=0.5, source="x", schedule="contended")
    assert together.matches(host_memory="pinned", schedule="contended")
    assert not together.matches(host_memory="pinned", schedule="uncontended")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "policy.yaml:1: a policy is a map"),
        ("colour: red", "policy.yaml:1: colour"),
        ("confidence: 1", "policy.yaml:1: confidence"),
        ("confidence: .nan", "policy.yaml:1: confidence"),
        ("confidence: '0.95'", "policy.yaml:1: confidence"),
        ("implausible_factor: 1", "policy.yaml:1: implausible_factor"),
        ("floors:\n  - fraction: 1.1\n    source: x", r"policy.yaml:2: floors\[0\].fraction"),
        ("floors:\n  - fraction: 0.5", r"floors\[0\].source: is missing"),
        ("floors:\n  - {fraction: 0.5, source: ''}", r"floors\[0\].source"),
        ("floors:\n  - {fraction: 0.5, source: x, transport: tcp}", r"floors\[0\].transport"),
        ("floors:\n  - {fraction: 0.5, source: x, operations: [ping]}", r"floors\[0\].operations\[0\]"),
        ("latencies:\n  - {limit_us: 0, minimum_us: 1, source: x}", r"latencies\[0\].limit_us"),
        ("source: me", "is this file"),
        ("confidence: 0.9\nconfidence: 0.95", "policy.yaml:2: confidence: is given twice"),
        ("{", "not valid YAML"),
    ],
)
def test_a_bad_policy_is_the_users_mistake(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        load_policy(written(tmp_path, text))
    assert str(error.value).splitlines() == [str(error.value)]
