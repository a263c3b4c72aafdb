"""Figures of papers: which measurements each shows, and the paper's values beside what was measured here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fabricheck.errors import UserError
from fabricheck.judge.expectations import expect_from_topology
from fabricheck.judge.published import Published, load_published
from fabricheck.judge.system import SystemJudge
from fabricheck.records.metrics import SMALLEST_GOODPUT_BYTES, UNITS, Quantity
from fabricheck.records.run import Run, Samples
from fabricheck.units import format_size


@dataclass(frozen=True)
class PaperFigure:
    """A figure or table. `operations`: what it shows, inside a node or between nodes. `tests`: which tests measure
    that. `cited`: how the sources of its values in reference_values/published begin."""

    title: str
    operations: tuple[str, ...]
    between_nodes: bool
    tests: str
    cited: tuple[str, ...]


_SC24, _SCHIEFFER = "De Sensi et al., SC24, §", "Schieffer et al., 2024, §"
FIGURES = {
    "sc24-3": PaperFigure(
        "Transfers between two GPUs of a node", ("pingpong",), False, "PingPong", (f"{_SC24}III-C", f"{_SC24}III-D")
    ),
    "sc24-5": PaperFigure("Alltoall in a node", ("alltoall",), False, "Collectives", (f"{_SC24}IV",)),
    "sc24-6": PaperFigure("Allreduce in a node", ("allreduce",), False, "Collectives", (f"{_SC24}IV",)),
    "sc24-7": PaperFigure("Transfers between two nodes", ("pingpong",), True, "NodePairs", (f"{_SC24}V-A",)),
    "sc24-8": PaperFigure("Pairs of nodes by distance", ("pingpong",), True, "NodePairs", (f"{_SC24}V-B",)),
    "sc24-9": PaperFigure("Alltoall over nodes", ("alltoall",), True, "NetworkCollectives", (f"{_SC24}V-C",)),
    "sc24-10": PaperFigure("Allreduce over nodes", ("allreduce",), True, "NetworkCollectives", (f"{_SC24}V-D",)),
    "schieffer-7": PaperFigure(
        "Peer copies over size", ("unidirectional",), False, "PeerCopies", (f"{_SCHIEFFER}V-A2",)
    ),
    "commbench-table3": PaperFigure(
        "Copies inside one GPU", ("local_copy",), False, "LocalCopies", ("CommBench, ICS 24, Table 3",)
    ),
}


@dataclass
class FigureRow:
    """What one transport measured at one size between so many ranks: the medians of its pairs or groups, in `unit`,
    and the shares of what the model expects there."""

    transport: str
    ranks: int
    bytes: int
    unit: str
    medians: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)


def rows_of(figure: PaperFigure, runs: Iterable[Run], judge: SystemJudge) -> list[FigureRow]:
    """Return what complete runs measured of a figure, by transport, number of ranks and size.

    Raises UserError for devices and hosts that the topology does not have.
    """
    rows: dict[tuple[str, int, int], FigureRow] = {}
    for run in runs:
        if run.footer is None or run.problems:
            continue
        expect = expect_from_topology(run, judge.topology, judge.policy) if judge.topology is not None else None
        for samples in run.samples:
            if not _is_shown(figure, run, samples):
                continue
            quantity: Quantity = "goodput" if samples.bytes >= SMALLEST_GOODPUT_BYTES else "latency"
            values = samples.goodput_gbps if quantity == "goodput" else samples.latency_us
            key = (str(run.header["transport"]), len(samples.ranks), samples.bytes)
            row = rows.setdefault(key, FigureRow(*key, UNITS[quantity]))
            row.medians.append(float(np.median(values)))
            expected = expect(samples, quantity).expected if expect is not None else None
            if expected:
                row.shares.append(row.medians[-1] / expected)
    return [rows[key] for key in sorted(rows)]


def _is_shown(figure: PaperFigure, run: Run, samples: Samples) -> bool:
    hosts = {rank.host for rank in run.ranks if rank.rank in samples.ranks}
    is_right = samples.wrong_bytes == 0 and samples.schedule != "contended"
    return is_right and samples.operation in figure.operations and (len(hosts) > 1) == figure.between_nodes


def papers_values(figure: PaperFigure, folder: Path) -> Iterator[tuple[str, Published]]:
    """Return the system and each published value of a figure, from the files of a folder. Raises UserError."""
    for file in sorted(folder.glob("*.yaml")):
        for value in load_published(file):
            if value.source.startswith(figure.cited):
                yield file.stem, value


def lines_of(
    figure: PaperFigure, rows: Sequence[FigureRow], published: Iterable[tuple[str, Published]]
) -> Iterator[str]:
    """Yield the table of a figure: here, with the share of what is expected, then the paper's values.

    Raises UserError where nothing of the figure was measured.
    """
    if not rows:
        raise UserError(f"nothing here is of this figure: run the test {figure.tests}, and give its result files")
    yield f"{figure.title}: here"
    for row in rows:
        least, most = min(row.medians), max(row.medians)
        number = f"{least:.4g}" if least == most else f"{least:.4g} to {most:.4g}"
        share = f"{np.median(row.shares):.0%} of expected" if row.shares else "no model"
        yield f"  {row.transport:8} {row.ranks:3} ranks {format_size(row.bytes):>7}  {number} {row.unit}, {share}"
    yield "the paper"
    for system, value in published:
        number = " to ".join(f"{end:g}" for end in dict.fromkeys(value.ends))
        relation = {"is": "", "from_to": ""}.get(value.relation, f"{value.relation.replace('_', ' ')} ")
        yield f"  {system:12} {value.what}: {relation}{number} {value.unit} ({value.conditions}; {value.source})"
