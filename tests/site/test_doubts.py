"""What a new node has less of than its equals or its data sheet is no nominal value until somebody says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fabricheck.commands.site import init
from fabricheck.site.facts import read_facts
from fabricheck.site.nominal import doubts_of_network
from fabricheck.topology.model import load_topology
from tests.support.captured import capture_of, nic, nvidia_gpus

Gpus = list[dict[str, Any]]


def h100() -> Gpus:
    return nvidia_gpus("NVIDIA H100 80GB HBM3", "sm_90", 8, nvlinks=18)


def dark(gpus: Gpus, *indexes: int, keep: int = 0) -> Gpus:
    for index in indexes:
        gpus[index]["nvlinks"] = gpus[index]["nvlinks"][:keep]
    return gpus


NICS = [nic(f"mlx5_{at}") for at in range(8)]


def test_a_virtual_machine_with_one_gpu_misses_no_links(tmp_path: Path) -> None:
    gpus = dark(nvidia_gpus("NVIDIA H100 80GB HBM3", "sm_90", 1, nvlinks=18), 0)
    assert read_facts(capture_of(tmp_path, numa=2, nvml=gpus)).doubts == ()


def rates(suite: Path, system: str) -> tuple[set[float], set[tuple[int, float]]]:
    topology = load_topology(suite / "site_configs" / system / "topology.yaml")
    return {nic.rate_gbps for nic in topology.nics}, {
        (link.count, link.rate_gbps) for link in topology.links if link.technology.startswith("NVLink")
    }


def test_init_ends_red_and_writes_what_should_be_until_it_is_accepted(suite: Path, tmp_path: Path) -> None:
    kept = capture_of(
        tmp_path / "kept", nvml=dark(h100(), 2, keep=9), nics=[*NICS[:7], nic("mlx5_7", rate="200 Gb/sec (2X NDR)")]
    )

    def run(name: str, *accept: str) -> tuple[int, str]:
        options = [option for code in accept for option in ("--accept", code)]
        done = CliRunner().invoke(init, ["--system", name, "--from", str(kept), *options], catch_exceptions=False)
        return done.exit_code, done.output

    status, output = run("open")
    assert status == 1 and "--accept slow-port" in output and "--accept missing-links" in output
    assert rates(suite, "open") == ({400.0}, {(18, 200.0)})
    status, output = run("half", "slow-port")
    assert status == 1 and "--accept slow-port" not in output
    assert rates(suite, "half")[0] == {400.0, 200.0}
    _, output = run("found", "slow-port", "missing-links")
    assert "repair or confirm" not in output
    assert rates(suite, "found") == ({400.0, 200.0}, {(18, 200.0), (9, 200.0)})


def test_an_unknown_code_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(init, ["--from", str(tmp_path), "--accept", "everything"])
    assert done.exit_code != 0 and "slow-port" in str(done.exception)


def network(change: Callable[[list[dict[str, Any]]], None] = lambda links: None) -> dict[str, Any]:
    links: list[dict[str, Any]] = [
        {"technology": "4xNDR", "rate": "400 Gb/s", "pairs": [["n[1-7]:mlx5_0", "leaf1"]]},
        {"technology": "4xNDR", "count": 4, "rate": "400 Gb/s", "pairs": [["leaf1", "spine1"]]},
    ]
    change(links)
    return {"network": {"nodes": "n[1-8]", "links": links}}


@pytest.mark.parametrize(
    ("slow", "component"),
    [
        ({"technology": "2xNDR", "rate": "200 Gb/s", "pairs": [["n8:mlx5_0", "leaf1"]]}, "n8:mlx5_0-leaf1"),
        ({"technology": "4xHDR", "rate": "200 Gb/s", "pairs": [["leaf1", "spine2"]]}, "leaf1-spine2"),
    ],
)
def test_a_cable_that_is_slower_than_its_equals(slow: dict[str, Any], component: str) -> None:
    assert doubts_of_network(network(), ())[0] == ()
    given = network(lambda links: links.append(slow))
    (doubt,), written = doubts_of_network(given, ())
    assert (doubt.code, doubt.components) == ("slow-cable", (component,))
    assert {link["rate"] for link in written["network"]["links"]} == {"400 Gb/s"}
    assert doubts_of_network(given, ["slow-cable"])[1] == given
