"""The titles of the OSU Micro-Benchmarks, and what each of them measures (OMB 5 to 7)."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class OsuTest:
    """What a title means.

    `pair`: between two ranks; `per_rank`: the size is a share, and a buffer has one a rank; `rate`: the table has MB/s;
    `overlaps`: a non-blocking collective, alone and beside a computation.
    """

    program: str
    operation: str
    rate: bool = False
    pair: bool = False
    per_rank: bool = False
    overlaps: bool = False


@dataclass(frozen=True)
class OsuTitle:
    test: OsuTest
    library: str
    accelerator: str
    version: str | None


_PAIRS = {
    "Latency Test": OsuTest("osu_latency", "pingpong", pair=True),
    "Multi-threaded Latency Test": OsuTest("osu_latency_mt", "pingpong", pair=True),
    "Multi-process Latency Test": OsuTest("osu_latency_mp", "pingpong", pair=True),
    "Bandwidth Test": OsuTest("osu_bw", "unidirectional", rate=True, pair=True),
    "Bi-Directional Bandwidth Test": OsuTest("osu_bibw", "bidirectional", rate=True, pair=True),
    "Multiple Bandwidth / Message Rate Test": OsuTest("osu_mbw_mr", "unidirectional", rate=True),
}
# The words of the title, the name of the program, what it is, and whether the size is a share of each rank.
_COLLECTIVES = {
    "All-to-All Personalized Exchange": ("alltoall", "alltoall", True),
    "All-to-All": ("alltoall", "alltoall", True),
    "All-to-Allv Personalized Exchange": ("alltoallv", "alltoallv", True),
    "All-to-Allv": ("alltoallv", "alltoallv", True),
    "All-to-Allw Personalized Exchange": ("alltoallw", "alltoallw", True),
    "All-to-Allw": ("alltoallw", "alltoallw", True),
    "Allgather": ("allgather", "allgather", True),
    "Allgatherv": ("allgatherv", "allgatherv", True),
    "Allreduce": ("allreduce", "allreduce", False),
    "Reduce_scatter": ("reduce_scatter", "reduce_scatter", False),
    "Broadcast": ("bcast", "broadcast", False),
    "Reduce": ("reduce", "reduce", False),
    "Gather": ("gather", "gather", True),
    "Gatherv": ("gatherv", "gatherv", True),
    "Scatter": ("scatter", "scatter", True),
    "Scatterv": ("scatterv", "scatterv", True),
}
# A window of puts or gets is a stream, as that of sends is; but it is another operation.
_ONE_SIDED = {
    "latency test": ("latency", "", False),
    "bandwidth test": ("bw", "_stream", True),
    "bi-directional bandwidth test": ("bibw", "_bidirectional", True),
}

_TITLE = re.compile(
    r"# OSU (?:(?P<library>MPI|NCCL|RCCL|XCCL)|MPI_(?P<call>Put|Get))"
    r"(?:-(?P<accelerator>CUDA|ROCM|OPENACC|MANAGED|SYCL))?"
    r" (?P<words>.*?)(?: v(?P<version>[0-9]+(?:\.[0-9]+)*))?",
    re.ASCII,
)
_COLLECTIVE = re.compile(
    r"(?P<immediate>Non-blocking )?(?P<name>\S.*?)(?P<persistent> Persistent)? Latency Test", re.ASCII
)


def read_osu_title(line: str) -> OsuTitle | None:
    """What the first line of an output says; None where it is of a benchmark that cannot be read."""
    match = _TITLE.fullmatch(line)
    if match is None:
        return None
    test = _one_sided(match["call"], match["words"]) if match["call"] else _of_words(match["words"])
    if test is None:
        return None
    return OsuTitle(test, match["library"] or "MPI", match["accelerator"] or "none", match["version"])


def _of_words(words: str) -> OsuTest | None:
    match = _COLLECTIVE.fullmatch(words)
    if words in _PAIRS or match is None or match["name"] not in _COLLECTIVES:
        return _PAIRS.get(words)
    name, operation, per_rank = _COLLECTIVES[match["name"]]
    immediate = match["immediate"] is not None
    program = f"osu_{'i' if immediate else ''}{name}{'_persistent' if match['persistent'] else ''}"
    return OsuTest(program, operation, per_rank=per_rank, overlaps=immediate)


def _one_sided(call: str, words: str) -> OsuTest | None:
    kind = _ONE_SIDED.get(words.lower())
    if kind is None:
        return None
    name = call.lower()
    return OsuTest(f"osu_{name}_{kind[0]}", f"{name}{kind[1]}", rate=kind[2], pair=True)
