"""What a vendor's benchmark measured, in the records that fabricbench's results are in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fabricheck.records.finding import Finding
from fabricheck.records.run import Samples


@dataclass(frozen=True)
class VendorOutput:
    """One output of a vendor tool, read and guarded. With `problems` it may still hold samples worth seeing.

    `tool`: `osu_latency`, `all_reduce_perf`, `IMB-MPI1 PingPong`; `version` as the tool prints it, or None. `ranks`:
    how many took part, None where the tool does not say. `facts`: what else the tool said of the run (datatype,
    validation, devices, allow-listed environment variables); nothing that docs/vendor-formats.md does not name.
    """

    tool: str
    version: str | None
    path: str
    ranks: int | None
    facts: Mapping[str, str]
    samples: tuple[Samples, ...]
    problems: tuple[Finding, ...]
