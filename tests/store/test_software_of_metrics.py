"""Software is a component: what an upgrade cost is blamed on it, and what a part lost is not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from itertools import permutations, product

import polars as pl
import pytest

from fabricheck.history.compare import Comparison, compare
from fabricheck.history.text import comparison_lines, to_json, watch_lines
from fabricheck.history.watch import WatchResult, watch
from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.store.software_of_metrics import software_crossed
from tests.support import nights as recorded
from tests.support.histories import NOW, SYSTEM, Made, history, normal
from tests.support.nights import nights, over_ccl

NIGHTS, UPGRADE = 29, 26
NCCL = Component(Kind.LIBRARY, "NCCL")
DRIVER = Component(Kind.DRIVER, "CUDA driver")
OLD = {"CUDA": "12.9", "CUDA driver": "575", "NCCL": "2.28.3", "Open MPI": "5.0.8", "suite": "a"}


def names(found: Finding) -> list[str]:
    return [each.key for each in found.components]


def both(frame: pl.DataFrame, system: str = recorded.SYSTEM, since: str = "01-27") -> tuple[WatchResult, Comparison]:
    before = date.fromisoformat(f"2026-{since}") - timedelta(days=1)
    found = compare(frame, system, f"2026-01-01..{before}", f"2026-{since}..", now=NOW)
    return watch(frame, system, now=NOW), found


def findings(frame: pl.DataFrame, system: str = recorded.SYSTEM, since: str = "01-27") -> list[Finding]:
    watched, compared = both(frame, system, since)
    assert watched.open_incidents and compared.findings
    return [*(each.finding for each in watched.open_incidents), *compared.findings]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_upgrade_of_nccl_is_blamed_and_no_gpu(seed: int) -> None:
    """Three nights of recorded ones, with a newer NCCL and 4.5% less of what it moves; copies and MPI are untouched."""
    frame = nights(NIGHTS, seed=seed, lost=0.045, since=UPGRADE, hit=over_ccl, software={"NCCL": "2.29.1"})
    watched, compared = both(frame)
    (incident,) = watched.open_incidents
    (suspect,) = compared.findings
    for each in (incident.finding, suspect):
        assert each.code == "slow-library"
        assert each.components == (Component(Kind.LIBRARY, "NCCL", version="2.29.1"),)
        assert all("transport=ccl" in metric for metric in each.metrics)
        assert each.measured is not None and each.expected is not None
        assert each.measured / each.expected == pytest.approx(0.955, abs=0.015)
    said = "\n".join([*watch_lines(watched), *comparison_lines(compared)])
    assert "NCCL 2.29.1: " in said and "NCCL 2.28.3" in said
    shown = json.loads(to_json(watched))["incidents"][0]["finding"]
    assert shown["components"] == [{"kind": "library", "name": "NCCL", "version": "2.29.1"}]


def test_a_library_whose_version_did_not_change_is_named_for_a_setting() -> None:
    (incident,) = watch(nights(NIGHTS, lost=0.045, since=UPGRADE, hit=over_ccl), recorded.SYSTEM, now=NOW).incidents
    assert incident.finding.components == (Component(Kind.LIBRARY, "NCCL", version="2.28.3"),)
    assert "NCCL or a setting of it" in incident.next_step


def over_mpi(test: str, metric: str, components: list[str]) -> bool:
    return "transport=mpi" in test and metric.endswith("goodput")


def test_an_upgrade_of_mpi_is_blamed() -> None:
    """Every run has an MPI library, if only to start its ranks; what it moves alone is its."""
    frame = nights(NIGHTS, lost=0.3, since=UPGRADE, hit=over_mpi, software={"Open MPI": "5.0.12"})
    for each in findings(frame):
        assert each.components == (Component(Kind.MPI, "Open MPI", version="5.0.12"),)
        assert each.code == "slow-library"


def test_what_all_lost_when_driver_and_nccl_changed_is_of_the_driver() -> None:
    """NCCL does not move what copies lost, too."""
    new = {"NCCL": "2.29.1", "CUDA driver": "590.1"}
    for each in findings(nights(50, lost=0.045, since=47, software=new), since="02-17"):
        assert each.components == (Component(Kind.DRIVER, "CUDA driver", version="590.1"),)


def test_driver_and_nccl_that_changed_in_one_night_are_named_together_where_nothing_tells_them_apart() -> None:
    new = {"NCCL": "2.29.1", "CUDA driver": "590.1"}
    frame = nights(NIGHTS, lost=0.045, since=UPGRADE, hit=over_ccl, software=new)
    watched, compared = both(frame.filter(pl.col("test").str.contains("transport=ccl")))
    (incident,) = watched.open_incidents
    (suspect,) = compared.findings
    for each in (incident.finding, suspect):
        assert {(one.name, one.version) for one in each.components} == {("NCCL", "2.29.1"), ("CUDA driver", "590.1")}
        assert each.code == "slow-library"
    for text in (incident.next_step, suspect.message):
        assert "cannot be told apart" in text and "NCCL 2.28.3" in text


@pytest.mark.parametrize(("module", "told"), [("nccl", False), ("aws-ofi-nccl", True)])
def test_a_module_that_changed_with_nccl_may_be_guilty(module: str, told: bool) -> None:
    """The module of NCCL itself is no other."""
    new = {"NCCL": "2.29.1", f"module {module}": "1.9"}
    _, compared = both(nights(NIGHTS, lost=0.045, since=UPGRADE, hit=over_ccl, software=new))
    (suspect,) = compared.findings
    assert (f"module {module} changed, too" in suspect.message) is told and "NCCL 2.28.3" in suspect.message


def node(
    slow: Sequence[str] = (), *, movers: Sequence[str] = ("ccl", "copy", "mpi"), nodes: Sequence[str] = ("n0",)
) -> list[Made]:
    """Pairs of four GPUs of each node by three movers, and each GPU's copies to the host, over 60 sessions; from s050
    on what crosses something `slow` and is moved by one of `movers` loses 5%."""
    found = []
    for seed, (host, mover, (a, b)) in enumerate(product(nodes, ("ccl", "copy", "mpi"), permutations(range(4), 2))):
        parts = [host, *(f"{host}:{part}" for gpu in (a, b) for part in (f"gpu{gpu}", f"gpu{gpu}-nvswitch"))]
        parts.append(f"{host}:nvswitch")
        drop = 0.05 if mover in movers and not {*slow}.isdisjoint(parts) else 0.0
        found.append(made(f"pingpong_{host}_{a}_{b}", f"PingPong %transport={mover}", seed, drop, parts))
    for seed, (host, gpu) in enumerate(((host, gpu) for host in nodes for gpu in range(4)), start=1000):
        parts = [host, f"{host}:cpu0", f"{host}:gpu{gpu}", f"{host}:cpu0-gpu{gpu}"]
        drop = 0.05 if "host" in movers and not {*slow}.isdisjoint(parts) else 0.0
        found.append(made(f"device_to_host_{host}_{gpu}", "HostCopies", seed, drop, parts))
    return found


def made(metric: str, test: str, seed: int, drop: float, parts: Sequence[str]) -> Made:
    values = normal(seed, 60, spread=0.006, drop=drop, onset=50)
    return Made(f"{metric}_goodput", values, test=test, components=parts, nodes=parts[:1])


def of_node(metrics: Sequence[Made], **new: str) -> list[Finding]:
    frame = history(metrics, software={0: OLD, 50: {**OLD, **{name.replace("_", " "): new[name] for name in new}}})
    mpi = pl.col("test").str.contains("transport=ccl")
    without = pl.col("software").str.replace('"NCCL": "[^"]*", ', "")
    return findings(frame.with_columns(software=pl.when(mpi).then("software").otherwise(without)), SYSTEM, "02-20")


@pytest.mark.parametrize("new", [{}, {"NCCL": "2.29.1"}, {"NCCL": "2.29.1", "CUDA_driver": "580"}])
def test_one_gpu_of_four_is_blamed_whatever_changed_that_night(new: dict[str, str]) -> None:
    """Also where it is slow by NCCL alone: NCCL is as fast as ever over the other GPUs."""
    for movers in (("ccl",), ("ccl", "copy", "mpi")):
        for each in of_node(node(["n0:gpu2"], movers=movers), **new):
            assert {*names(each)} <= {"n0:gpu2", "n0:gpu2-nvswitch"} and names(each)


def test_a_gpu_whose_copies_to_the_host_are_fast_is_tied_with_its_link() -> None:
    """Its port of that link may be at fault."""
    for each in of_node(node(["n0:gpu2"])):
        assert (each.code, names(each)) == ("slow-gpu", ["n0:gpu2", "n0:gpu2-nvswitch"])
    for each in of_node(node(["n0:gpu2"], movers=("ccl", "copy", "mpi", "host"))):
        assert (each.code, names(each)) == ("slow-gpu", ["n0:gpu2"])


def test_copies_to_the_host_that_are_slow_since_a_new_driver_accuse_no_part_alone() -> None:
    """Copies between GPUs are fast with it, but a driver moves them otherwise."""
    for each in of_node(node(["n0"], movers=("host",)), CUDA_driver="580"):
        assert {*names(each)} == {"n0:cpu0", DRIVER.key}
        assert each.code == "slow-part"
    for each in of_node(node(["n0"], movers=("host",))):
        assert names(each) == ["n0:cpu0"]


def test_slow_parts_of_two_nodes_are_two_incidents_although_they_share_their_software() -> None:
    found = of_node(node(["n0:gpu1", "n1:gpu3"], nodes=("n0", "n1", "n2")))
    assert {tuple(names(each)) for each in found} == {("n0:gpu1", "n0:gpu1-nvswitch"), ("n1:gpu3", "n1:gpu3-nvswitch")}


def test_a_node_of_several_is_blamed_as_a_node() -> None:
    for each in of_node(node(["n1"], movers=("ccl", "copy", "mpi", "host"), nodes=("n0", "n1", "n2"))):
        assert (each.code, names(each)) == ("slow-node", ["n1"])


@pytest.mark.parametrize("gpu", [1, 2])
def test_an_old_hiccup_does_not_swallow_the_next_fault(gpu: int) -> None:
    """A copy from GPU 1 to the host is slow for three nights; seven nights later GPU 2, or GPU 1 itself, loses 5%."""
    metrics = []
    for each in node([f"n0:gpu{gpu}"], movers=("ccl", "copy", "mpi", "host")):
        values = [*each.values]
        if each.metric == "device_to_host_n0_1_goodput":
            values[40:43] = [0.7 * value for value in values[40:43] if value is not None]
        metrics.append(replace(each, values=values))
    found = watch(history(metrics, software={0: OLD}), SYSTEM, now=NOW)
    old, new = found.incidents
    assert (names(old.finding), old.open, old.raised.session) == (["n0:cpu0-gpu1"], False, "s040")
    assert (names(new.finding), new.open) == ([f"n0:gpu{gpu}"], True)
    assert min(each.first_bad.session for each in new.alerts) >= "s049"


def test_which_software_the_data_of_a_run_pass() -> None:
    def crossed(test: str, **more: str) -> set[str]:
        return {each.key for each in software_crossed(test, json.dumps({**OLD, "kernel": "6.1", **more}))}

    gpu = {"library=CUDA", "driver=CUDA driver", "kernel=kernel"}
    assert crossed("PingPong %transport=ccl") == {*gpu, "library=NCCL"}
    assert crossed("PingPong %transport=mpi") == {*gpu, "library=NCCL", "mpi=Open MPI"}
    assert crossed("OsuPairs %benchmark=osu_bw", osu_bw="7.5") == {*gpu, "library=NCCL", "mpi=Open MPI"}
    assert software_crossed("PingPong %transport=ccl", json.dumps(OLD))[NCCL] == "2.28.3"
    assert crossed("T", nccl="1", **{"module cuda": "12"}) == {*gpu, "library=NCCL"}
