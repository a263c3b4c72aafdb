"""The runs of a session side by side: who measured the same between the same devices, by another way or setting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fabricheck.records.case import Case
from fabricheck.records.operations import kernel_settings
from fabricheck.records.run import Rank, Run, Samples
from fabricheck.records.verdict import Verdict
from fabricheck.tuning import ACCEPTED

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CaseRun:
    """A run and the test case that it was; texts are empty where nothing states, as for a file that was submitted.

    `test` is the class, `partition` is `system:partition`. `trusted`: ReFrame's check let it count.
    `shortened`: what it left out of its plan to end in time. `slurm_nodes`: the names of all nodes of its partition in
    short form, where Slurm has more than the site describes.
    """

    run: Run
    test: str = ""
    environment: str = ""
    partition: str = ""
    tags: tuple[str, ...] = ()
    trusted: bool = True
    shortened: str = ""
    slurm_nodes: str = ""

    @classmethod
    def of_case(cls, run: Run, case: Case) -> CaseRun:
        """A run of a session: of one that just ended, or of a stored one."""
        shortened = str(case.attributes.get("shortened", ""))
        trusted, nodes = case.trusts_its_run, str(case.attributes.get("slurm_nodes", ""))
        return cls(run, case.test, case.environment, case.partition, case.tags, trusted, shortened, nodes)

    @classmethod
    def of_file(cls, run: Run) -> CaseRun:
        """A run of which only the file is known: its environment is the MPI library that the header names."""
        library = run.header.get("libraries", {}).get("mpi", {})
        return cls(run, environment=" ".join(filter(None, (library.get("name"), library.get("version")))))

    @property
    def transport(self) -> str:
        """The transport that the header states."""
        return str(self.run.header["transport"])

    @property
    def label(self) -> str:
        """Transport and environment, for a line about this run."""
        return ", ".join(filter(None, (self.transport, self.environment)))

    @property
    def is_evidence(self) -> bool:
        """Whether a conclusion may rest on it: a complete run of fabricbench in which nothing else was measured."""
        header = self.run.header
        return (
            self.trusted
            and self.run.footer is not None
            and header.get("program") == "fabricbench"
            and header["plan"].get("injected") is None
            and not any(each.verdict in (Verdict.INVALID, Verdict.INCOMPLETE) for each in self.run.problems)
        )

    @property
    def is_plain(self) -> bool:
        """Each rank has its own device, its buffers there, and writes; NCCL is used by its defaults."""
        plan = self.run.header["plan"]
        special = plan.get("shared_devices") or plan.get("buffers") or kernel_settings(plan)
        return not special and plan.get("access") in (None, "write")


@dataclass(frozen=True)
class SizePoint:
    """One size of one operation between certain devices or, without devices, ranks of certain nodes.

    `places`: of each rank, in order. `hosts`: the nodes of these ranks, each once, in the order of the ranks.
    """

    operation: str
    schedule: str
    bytes: int
    places: tuple[str, ...]
    hosts: tuple[str, ...]
    devices: bool


@dataclass(frozen=True)
class MeasuredGoodput:
    """Goodput in Gb/s of every iteration, shape (iterations,), and by which implementation."""

    gbps: Floats
    implementation: str


@dataclass(frozen=True, eq=False)
class CaseGroup:
    """The runs of one test by one transport, in one environment and with one set of tuning variables.

    `settings`: the variables of `fabricheck.tuning.ACCEPTED` that were set, with their values.
    """

    test: str
    partition: str
    environment: str
    transport: str
    settings: frozenset[tuple[str, str]]
    points: Mapping[SizePoint, MeasuredGoodput]


def groups_of(runs: Iterable[CaseRun]) -> tuple[CaseGroup, ...]:
    """What plain, trusted runs measured, in the order of the runs; the iterations of repeated runs are put together.

    Left out: data that were wrong or not verified, iterations that are not known, and patterns between groups of ranks
    and of matrices, which their operation and ranks alone do not tell.
    """
    points_by_case: dict[tuple[str, str, str, str, frozenset[tuple[str, str]]], dict[SizePoint, list[Samples]]] = {}
    for run in runs:
        if run.is_evidence and run.is_plain:
            key = (run.test, run.partition, run.environment, run.transport, _settings(run.run))
            points = points_by_case.setdefault(key, defaultdict(list))
            ranks = {rank.rank: rank for rank in run.run.ranks}
            for samples in run.run.samples:
                listed = samples.groups is not None or samples.messages
                if is_sound(samples) and not listed:
                    points[_point(samples, ranks)].append(samples)
    return tuple(
        CaseGroup(*key, {point: _together(samples) for point, samples in points.items()})
        for key, points in points_by_case.items()
    )


def match_partners(groups: Iterable[CaseGroup], transport: str, other: str) -> Iterator[tuple[CaseGroup, CaseGroup]]:
    """Each group of `transport` with one of `other` of the same test and partition; of its own environment if it can.

    So a library that does not depend on MPI and was measured in one environment stands beside every MPI library.
    """
    groups = tuple(groups)
    for group in groups:
        if group.transport != transport:
            continue
        fitting = [
            each
            for each in groups
            if (each.transport, each.test, each.partition) == (other, group.test, group.partition)
        ]
        fitting.sort(key=lambda each: each.environment != group.environment)
        if fitting:
            yield group, fitting[0]


def common_points(first: CaseGroup, second: CaseGroup) -> Mapping[SizePoint, tuple[MeasuredGoodput, MeasuredGoodput]]:
    """What both measured, in the order of `first`."""
    return {point: (first.points[point], second.points[point]) for point in first.points if point in second.points}


def is_sound(samples: Samples) -> bool:
    """Whether the data were right and every iteration is known."""
    return samples.wrong_bytes == 0 and samples.statistic == "iterations"


def _settings(run: Run) -> frozenset[tuple[str, str]]:
    environment = run.header.get("environment", {})
    return frozenset((name, value) for name, value in environment.items() if name in ACCEPTED)


def _point(samples: Samples, ranks: Mapping[int, Rank]) -> SizePoint:
    members = [ranks[rank] for rank in samples.ranks]
    return SizePoint(
        operation=samples.operation,
        schedule=samples.schedule,
        bytes=samples.bytes,
        places=tuple(each.device.uuid if each.device else f"{each.host}/{each.local_rank}" for each in members),
        hosts=tuple(dict.fromkeys(each.host for each in members)),
        devices=all(each.device is not None for each in members),
    )


def _together(samples: list[Samples]) -> MeasuredGoodput:
    return MeasuredGoodput(np.concatenate([each.goodput_gbps for each in samples]), samples[0].implementation)
