"""Which nodes `--nodes` means, and what is said where it means none."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.fleet.allocation import allocated
from fabricheck.fleet.nodes import choose, partition_of, states_of

STATES = {
    "nid001": "idle",
    "nid002": "allocated",
    "nid003": "drained",
    "nid004": "idle*",
    "nid005": "mixed",
    "nid006": "reserved",
    "nid007": "idle",
    "nid008": "down",
}
WHERE = "site:gpu"


def left(asked: str) -> dict[str, str]:
    return dict(choose(asked, STATES, WHERE).unchecked)


def test_all_are_those_that_can_run_a_job() -> None:
    assert choose("all", STATES, WHERE).nodes == ("nid001", "nid002", "nid005", "nid007")
    assert left("all") == {f"nid00{n}": f"its state in Slurm is {STATES[f'nid00{n}']}" for n in (3, 4, 6, 8)}


@pytest.mark.parametrize(
    ("asked", "nodes"), [("idle", ("nid007", "nid001")), ("idle:1", ("nid007",)), ("idle:9", ("nid007", "nid001"))]
)
def test_idle_are_the_first_of_those_that_do_not_work(asked: str, nodes: tuple[str, ...]) -> None:
    found = choose(asked, dict(reversed(STATES.items())), WHERE)
    assert (found.nodes, found.count) == (nodes, len(nodes))
    assert found.unchecked == {}  # nobody asked for those that work
    assert found.notes == (f"--nodes {asked}: 2 of 8 nodes of site:gpu are idle, and the job uses {len(nodes)}",)
    assert found.wait_s > 0


def test_a_number_is_for_the_scheduler_to_choose_from_all() -> None:
    found = choose("2", STATES, WHERE)
    assert (found.nodes, found.count) == (("nid001", "nid002", "nid005", "nid007"), 2)


def test_a_list_is_taken_in_the_order_of_the_scheduler_and_each_node_once() -> None:
    found = choose("nid007,nid[001-003],nid001", STATES, WHERE)
    assert found.nodes == ("nid001", "nid002", "nid007")
    assert list(found.unchecked) == ["nid003"]
    assert found.notes == ("--nodes nid007,nid[001-003],nid001: nid001 more than once: name each node once",)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("nid[001-002],nid0o3", "nid0o3 is not among the 8 nodes of site:gpu (nid[001-008]); did you mean nid003?"),
        ("nid[001-002],login[1-2]", "login[1-2] are not among the 8 nodes"),
        ("nid[001-", "is not a list of names"),
        ("", "is not a list of names"),
        ("idle:0", "is not among"),
        ("0", "has 4 nodes that can run a job"),
        ("5", "has 4 nodes that can run a job"),
        (
            "nid003,nid008",
            "none of 2 nodes of site:gpu is available: nid003: its state in Slurm is drained; "
            "nid008: its state in Slurm is down",
        ),
    ],
)
def test_a_mistake_is_one_line(asked: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        choose(asked, STATES, WHERE)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_node_of_another_partition_is_no_typo() -> None:
    with pytest.raises(UserError) as caught:
        choose("nid[001-002],nid009", STATES, WHERE, lambda: {"nid009": "cpu"})
    assert str(caught.value).endswith("nid009 is in the partition cpu: all nodes of a run are of one partition")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize(
    ("access", "partition"),
    [
        (["--partition=gpu", "--exclusive"], "gpu"),
        (["--account=a -p gpu"], "gpu"),
        (["--partition gpu"], "gpu"),
        (["--account=a-partition"], ""),
        ([], ""),
    ],
)
def test_the_partition_of_access_options(access: list[str], partition: str) -> None:
    assert partition_of(access) == partition


@pytest.mark.parametrize("scheduler", ["pbs", "flux"])
def test_the_nodes_of_pbs_and_flux_are_those_of_the_job_around(
    scheduler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of a job it says how to get one. The `flux` that answers stands in: none is to be had here."""
    for name in ("PBS_NODEFILE", "FLUX_URI"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match="inside a job"):
        states_of({"scheduler": scheduler})
    (tmp_path / "nodes").write_text("nid001.site\nnid001.site\nnid002.site\n")
    (tmp_path / "flux").write_text('#!/bin/sh\n[ "$*" = "getattr hostlist" ] && echo "nid[001-002].site"\n')
    (tmp_path / "flux").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv(
        *{"pbs": ("PBS_NODEFILE", str(tmp_path / "nodes")), "flux": ("FLUX_URI", "local:///x")}[scheduler]
    )
    states = states_of({"scheduler": scheduler})
    assert states == {"nid001.site": "idle", "nid002.site": "idle"}
    with allocated(choose("1", states, WHERE), {"scheduler": scheduler}, 5) as (job, nodes):
        assert (job, nodes) == ("", ("nid001.site",))
    with pytest.raises(UserError, match="lsf"):
        states_of({"scheduler": "lsf"})
