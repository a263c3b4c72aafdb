"""What a node's firmware, kernel, limits and log say: each fault has a code, and a healthy machine has none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabricheck.errors import UserError
from fabricheck.judge.judge import judge_run
from fabricheck.judge.node_rules import NodeRule
from fabricheck.judge.node_state import evidence_of, evidence_of_node, with_problems_of_nodes
from fabricheck.records.finding import Finding
from fabricheck.records.finding_texts import CATALOGUE
from fabricheck.records.judgement import Expectation
from fabricheck.records.node_state import GpuLink, KernelEvent, NodeState
from fabricheck.records.verdict import Verdict
from fabricheck.suite import config_rows, suite_root
from fabricheck.topology.model import Cpu, Gpu, Link, Topology
from tests.support.states import gpu, nic, node, run_with

IB = nic("mlx5_0", kind="infiniband", rate_gbps=400.0)
HEALTHY = {
    "ACS redirect": "off",
    "IOMMU": "passthrough",
    "relaxed ordering": "on",
    "peer memory": "nvidia_peermem",
    "NVIDIA kernel module": "proprietary",
    "NUMA balancing": "off",
    "locked memory": "unlimited",
    "/dev/shm": "1 GiB or more",
    "IMEX channels": "0",
}


def state(settings: Mapping[str, str], **more: Any) -> NodeState:
    return node("nid001", **{"nics": (IB,), **more, "settings": {**HEALTHY, **settings}})


def codes(one: NodeState, topology: Topology | None = None) -> set[tuple[str, str | int, Verdict | None]]:
    return {(each.code, each.part, each.verdict) for each in evidence_of_node(one, topology)}


def of_gpus(**settings: str) -> tuple[Any, ...]:
    return tuple(gpu(index, settings={**gpu().settings, **settings}) for index in (0, 1))


def event(code: str, part: str, at_s: float, **more: Any) -> KernelEvent:
    return KernelEvent("xid", part, at_s, "as the log has it", code=code, **more)


CASES: dict[str, tuple[NodeState, set[tuple[str, str | int, Verdict | None]]]] = {
    "healthy": (state({}), set()),
    "ACS on": (state({"ACS redirect": "on: 0000:1a:00.0"}), {("acs-on", "", None)}),
    "IOMMU": (state({"IOMMU": "translating"}), {("iommu-on", "", None)}),
    "relaxed ordering": (state({"relaxed ordering": "off: 0000:18:00.0"}), {("relaxed-ordering-off", "", None)}),
    "no peer memory": (state({"peer memory": "none"}), {("no-peer-memory", "", None)}),
    "the open module gives DMA-BUF": (state({"peer memory": "none", "NVIDIA kernel module": "open"}), set()),
    "Omni-Path's driver reaches GPUs itself": (
        state({"peer memory": "none"}, nics=(replace(IB, name="hfi1_0", driver="hfi1"),)),
        set(),
    ),
    "no RDMA port": (state({"peer memory": "none", "locked memory": "64 KiB"}, nics=(nic(),)), set()),
    "AMD's driver gives DMA-BUF": (
        state(
            {"peer memory": "none", "NVIDIA kernel module": ""},
            gpus=(gpu(0, name="AMD Instinct MI300X", links=()),),
        ),
        set(),
    ),
    "NUMA balancing": (state({"NUMA balancing": "on"}), {("numa-balancing-on", "", None)}),
    "locked memory": (state({"locked memory": "8192 KiB"}), {("memlock-limited", "", None)}),
    "a container's /dev/shm": (state({"/dev/shm": "64 MiB"}), {("shm-small", "", None)}),
    "fabric manager not there": (
        state({}, gpus=of_gpus(fabric="in progress")),
        {("fabric-not-ready", index, Verdict.DEGRADED) for index in (0, 1)},
    ),
    "fabric with an error": (
        state({}, gpus=(of_gpus(fabric="completed")[0], of_gpus(fabric="completed, error 20")[1])),
        {("fabric-not-ready", 1, Verdict.DEGRADED), ("nodes-differ", 1, Verdict.DEGRADED)},
    ),
    "a domain without IMEX": (
        state({}, gpus=of_gpus(fabric="completed", **{"NVLink domain 8f3a": "clique 1"})),
        {("imex-off", "", None)},
    ),
    "a domain with IMEX": (
        state({"IMEX channels": "1"}, gpus=of_gpus(fabric="completed", **{"NVLink domain 8f3a": "clique 1"})),
        set(),
    ),
    "a reset before": (
        state({}, events=(event("gpu-reset", "0000:c1:00.0", 5.0),)),
        {("gpu-reset", "0000:c1:00.0", Verdict.PASS)},
    ),
    "a port that was plugged in": (
        state({}, events=(event("nic-flaps", "eth0", 5.0, network=True),)),
        {("nic-flaps", "eth0", None)},
    ),
    "a fatal event that nothing recovered": (
        state({}, events=(event("gpu-link-errors", "0000:01:00.0", 5.0, severity="fatal"),)),
        {("gpu-link-errors", 1, Verdict.DEGRADED)},
    ),
    "the same, recovered": (
        state({}, events=(event("gpu-link-errors", "0000:01:00.0", 5.0, severity="fatal", recovered=True),)),
        {("gpu-link-errors", 1, Verdict.PASS)},
    ),
    "a lost GPU": (
        state({}, events=(event("gpu-missing", "0000:df:00.0", 5.0, severity="fatal"),)),
        {("gpu-missing", "0000:df:00.0", Verdict.DEGRADED)},
    ),
    "a GPU that was lost, and responds": (
        state({}, events=(event("gpu-missing", "0000:01:00.0", 5.0, severity="fatal"),)),
        {("gpu-missing", 1, Verdict.PASS)},
    ),
    "an error of a program": (state({}, events=(event("gpu-xid", "0000:01:00.0", 5.0, severity="program"),)), set()),
    "corrected errors": (
        state({}, events=(event("pcie-errors", "0000:01:00.0", 5.0, severity="corrected"),)),
        {("pcie-errors", 1, None)},
    ),
    "uncorrected errors of XGMI": (
        state({}, gpus=(gpu(0), gpu(1, counters={"ecc_uncorrected": 0, "ecc_uncorrected_xgmi_wafl": 3}))),
        {("gpu-link-errors", 1, Verdict.DEGRADED)},
    ),
    "pages that wait for a reset": (
        state({}, gpus=(gpu(0), gpu(1, rows_pending=True))),
        {("gpu-memory-errors", 1, Verdict.DEGRADED)},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_node_by_itself(case: str) -> None:
    one, wanted = CASES[case]
    assert codes(one) == wanted


def test_every_rule_has_a_row_of_the_catalogue_and_a_step() -> None:
    assert all(CATALOGUE[rule.code].steps for rule in config_rows("node_rules.yaml", NodeRule))


@pytest.mark.parametrize("field", ["of", "needs", "verdict"])
def test_a_word_that_would_keep_a_rule_from_ever_applying_is_refused(field: str, tmp_path: Path) -> None:
    text = re.sub("(?m)^#.*", "", (suite_root() / "config/node_rules.yaml").read_text(encoding="utf-8"))
    (tmp_path / "rules.yaml").write_text(re.sub(rf"\b{field}: [\w ]+", f"{field}: one GPU", text, count=1), "utf-8")
    with pytest.raises(UserError, match=rf"^\S+rules.yaml:\d+: \[0\].{field}: input should be .*$") as refused:
        config_rows.__wrapped__(str(tmp_path / "rules.yaml"), NodeRule)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("severity", "verdict"),
    [
        ("fatal", Verdict.DEGRADED),
        ("error", Verdict.DEGRADED),
        ("program", Verdict.DEGRADED),
        ("corrected", None),
        ("ended", Verdict.INCOMPLETE),
    ],
)
def test_what_the_kernel_logs_during_a_test(severity: str, verdict: Verdict | None) -> None:
    old, new = (event("gpu-xid", "0000:00:00.0", at, severity=severity) for at in (1.0, 100.0))
    before, after = node("nid001", events=(old,)), node("nid001", "after", events=(old, new))
    evidence = evidence_of(run_with([before], [after]), None)
    (during,) = [each for each in evidence if "during" in each.text]
    assert (during.code, during.part, during.verdict) == ("gpu-xid", 0, verdict)
    # What a program did, and what was ended, was of an earlier job.
    assert len(evidence) == (1 if severity in ("program", "ended") else 2)


def test_a_wrong_path_has_beside_it_what_the_node_says() -> None:
    before = [node(host, nics=(IB,), settings={**HEALTHY, "peer memory": "none"}) for host in ("a", "b")]
    after = [replace(each, when="after") for each in before]
    alone = judge_run(run_with(before, after), lambda *_: Expectation(100, 100, 120, 0.5, "made"), {})
    wrong = replace(alone, problems=(Finding("path-forbidden", Verdict.INVALID, "the data took NET/IB/0"),))
    (problem,) = with_problems_of_nodes(wrong, None).problems
    assert problem.code == "path-forbidden" and "nvidia_peermem" in problem.message


def topology(technology: str = "PCIe 5 x16", nvlinks: int = 18) -> Topology:
    gpus = tuple(Gpu(f"gpu{at}", at, "H200") for at in (0, 1))
    links = [Link((each.name, "numa0"), technology, 1, 512.0, "a test") for each in gpus]
    links += [Link(("gpu0", "gpu1"), "NVLink4", nvlinks, 200.0, "a test")] if nvlinks else []
    return Topology("made-up", "a test", gpus, (Cpu("numa0"),), links=tuple(links))


DOWN = {("gpu-links-down", 1, Verdict.DEGRADED)}


@pytest.mark.parametrize("told", [(), tuple(GpuLink(at, False) for at in range(18))])
def test_a_gpu_of_which_no_link_is_there(told: tuple[GpuLink, ...]) -> None:
    one = state({}, gpus=(gpu(0), gpu(1, links=told)))
    assert codes(one, topology()) == DOWN
    assert codes(one) == DOWN
    none = state({}, gpus=(gpu(0, links=()), gpu(1, links=())))
    assert codes(none, topology("PCIe 5 x16", 0)) == set()
    assert codes(none, topology()) == {*DOWN, ("gpu-links-down", 0, Verdict.DEGRADED)}


def marks(text: str) -> tuple[GpuLink, ...]:
    return tuple(GpuLink(at, mark == "U") for at, mark in enumerate(text))


@pytest.mark.parametrize("known", [None, topology(nvlinks=0)], ids=["", "with a topology"])
@pytest.mark.parametrize(
    ("of_gpus", "wanted"),
    [
        (("UUUUUUU", "UUUUUUU"), set()),
        (("UUUUUUU", "UUDUUUU"), DOWN),
        (("UUUUUUU", "DDDDDDD"), DOWN),
        (("DDDDDDD", "DDDDDDD"), {("gpu-links-down", at, Verdict.PASS) for at in (0, 1)}),
    ],
)
def test_links_of_amd(of_gpus: tuple[str, str], wanted: set[Any], known: Topology | None) -> None:
    gpus = tuple(gpu(at, name="AMD Instinct MI300X", links=marks(text)) for at, text in enumerate(of_gpus))
    assert codes(state({}, gpus=gpus), known) == wanted


@pytest.mark.parametrize(
    ("most", "own", "known", "verdict"),
    [
        (5, 5, topology(), ()),
        (4, 5, None, (None,)),
        (4, 5, topology(), (Verdict.DEGRADED,)),
        (4, 5, topology("PCIe 4 x16"), (None,)),
    ],
)
def test_a_slot_that_limits_pcie(most: int, own: int, known: Topology | None, verdict: tuple[Any, ...]) -> None:
    slow = gpu(1, pcie_generation=most, pcie_most_generation=most, pcie_own_generation=own)
    found = codes(state({}, gpus=(gpu(0, pcie_own_generation=5), slow)), known)
    assert found == {("pcie-reduced", 1, each) for each in verdict}


def test_errors_of_nvlink5_are_fields_of_their_own() -> None:
    before = (GpuLink(0, True, {"effective_errors": 5, "recoveries_failed": 0}),)
    after = (GpuLink(0, True, {"effective_errors": 9, "recoveries_failed": 1}),)
    run = run_with([node("a", gpus=(gpu(0, links=before),))], [node("a", "after", gpus=(gpu(0, links=after),))])
    found = {(each.code, each.verdict) for each in evidence_of(run, None)}
    assert found >= {("gpu-link-errors", Verdict.DEGRADED), ("gpu-link-errors", None)}
