"""What a vendor's benchmark printed, in the records that fabricbench's results are in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fabricheck.records.finding import Finding
from fabricheck.records.run import Samples


@dataclass(frozen=True)
class Remark:
    """A line of the text that says why a result is what it is: a path, a variable, or a warning of the library."""

    line: int
    kind: Literal["path", "variable", "library"]
    text: str


@dataclass(frozen=True)
class VendorOutput:
    """One output of a vendor tool, read and guarded. With `problems` it may still hold samples worth seeing.

    `tool`: `osu_latency`, `all_reduce_perf`, `IMB-MPI1 PingPong`; `version` as the tool prints it, or None. `ranks`:
    how many took part, None where the tool does not state. `facts`: what else the tool said of the run (datatype,
    validation, devices, allow-listed environment variables); nothing that docs/vendor-tools.md does not name.
    `transport`, `access`: as in the header of a result file, or `nic` where the data crossed a network alone, with
    their `memory`. `hosts`, `devices`: of each rank, as far as the text names them. `variables`: those of libraries
    that the text says are set. `missing`: the options of `fabricheck judge` without which it cannot be read.
    """

    tool: str
    version: str | None
    path: str
    ranks: int | None
    facts: Mapping[str, str]
    samples: tuple[Samples, ...]
    problems: tuple[Finding, ...]
    transport: str = "ccl"
    access: str = "write"
    memory: Literal["", "gpu", "host"] = ""
    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()
    missing: str = ""
