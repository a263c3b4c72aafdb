"""What `fabricheck judge` says of an output of OMB, nccl-tests, rccl-tests or IMB that nobody ran through the suite."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict, worst
from fabricheck.results.vendor import not_judged, read_vendor_outputs
from fabricheck.results.vendor_output import VendorOutput
from fabricheck.wholefile import open_file

_MOST_NAMED = 3


@dataclass(frozen=True)
class VendorJudgement:
    """An output with the problems that its parser found, and that it proves nothing of where it ran."""

    output: VendorOutput
    problems: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        return worst(each.verdict for each in self.problems)


def judge_vendor_file(file: Path, ranks: int | None, tool: str | None) -> tuple[VendorJudgement, ...]:
    """The outputs of vendor tools in a file; none where it is another file, such as a result of fabricbench."""
    try:
        with open_file(file, sys.maxsize) as stream:
            begin = stream.read(4096)
    except OSError:
        return ()  # whoever reads the result file says why it cannot be read
    if begin.startswith(b"{") and b'"record"' in begin:
        return ()
    outputs = read_vendor_outputs(file, ranks=ranks, tool=tool)
    # What is not read needs no second reason, and wrong data are wrong wherever it ran.
    return tuple(
        VendorJudgement(one, one.problems if _has_reason(one) else (*one.problems, not_judged(one))) for one in outputs
    )


def _has_reason(output: VendorOutput) -> bool:
    return any(each.code == "other-tool" or each.verdict is Verdict.FAIL for each in output.problems)


def without_path(message: str, path: str) -> str:
    """A message under a line that names the file: the place in the file alone, such as `line 47: …`."""
    rest = message.removeprefix(f"{path}:")
    return message if rest == message else f"line {rest}" if rest[:1].isdigit() else rest.lstrip()


def as_json(judged: VendorJudgement) -> dict[str, Any]:
    output = judged.output
    return {
        "file": output.path,
        "tool": output.tool,
        "version": output.version,
        "ranks": output.ranks,
        "facts": dict(output.facts),
        "verdict": judged.verdict.value,
        "problems": [{"verdict": one.verdict.value, "message": one.message} for one in judged.problems],
        "samples": [
            {
                "operation": each.operation,
                "schedule": each.schedule,
                "placement": each.placement,
                "bytes": each.bytes,
                "statistic": each.statistic,
                "times_ns": each.times_ns.tolist(),
                "wrong_bytes": each.wrong_bytes,
            }
            for each in output.samples
        ],
    }


def table(judged: VendorJudgement) -> Iterator[str]:
    output = judged.output
    ranks = f", {output.ranks} ranks" if output.ranks is not None else ""
    version = f" {output.version}" if output.version else ""
    tool, _, benchmarks = output.tool.partition(" ")
    several = benchmarks.count(",") >= _MOST_NAMED
    title = (
        f"{tool}{version}{ranks}, {benchmarks.count(',') + 1} benchmarks"
        if several
        else f"{output.tool}{version}{ranks}"
    )
    yield f"{judged.verdict.value}  {output.path}: {title}"
    for problem in judged.problems:
        yield f"  {problem.verdict.value:10}  {without_path(problem.message, output.path)}"
    for samples in output.samples:
        time = float(samples.one_way_ns.mean()) / 1e3
        words = " ".join(word for word in (samples.operation, samples.placement) if word)
        yield f"  {words:30} {samples.bytes:>14,} B {time:>14,.2f} us {8e-3 * samples.bytes / time:>12,.2f} Gb/s"
