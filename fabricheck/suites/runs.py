"""The output of a vendor tool as a result file like fabricbench's, so that the same guards and the same judge see it.

Where the ranks ran, on which devices, with which libraries and variables no vendor tool says in full. So the job starts
fabricbench first, with the same launcher, ranks and variables, for one tiny message, and its header tells the place.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from fabricheck.records.finding import Finding
from fabricheck.records.run import Run, Samples
from fabricheck.records.vendor_output import VendorOutput
from fabricheck.records.verdict import Verdict
from fabricheck.results.environment import redacted_command
from fabricheck.results.fabricbench_format import FORMAT
from fabricheck.results.fabricbench_records import timed_ns
from fabricheck.results.proof_logs import TransportProof
from fabricheck.suites.benchmarks import BenchmarkRequest
from fabricheck.vendor.nccl_json import clean_nccl_json


@dataclass(frozen=True)
class Job:
    """What is known of the job in which a tool ran: its command, when it began, how long it took, and the proof."""

    command: tuple[str, ...]
    transport: str
    started: datetime
    wall_ns: int
    proof: TransportProof


def choose_samples(output: VendorOutput, asked: BenchmarkRequest) -> tuple[Samples, ...]:
    """The samples that count: out of place where the tool measures both, without the row of 0 B.

    A wrong byte in place is a wrong byte: it is added to the other's. osu_mbw_mr prints the sum of its pairs, so each
    pair has the mean of all.
    """
    measured = [each for each in output.samples if each.bytes > 0]
    in_place = {each.bytes: each.wrong_bytes for each in measured if each.placement == "in-place"}
    chosen = [
        replace(each, wrong_bytes=each.wrong_bytes + max(in_place.get(each.bytes, 0), 0))
        for each in measured
        if each.placement != "in-place"
    ]
    if asked.benchmark.name != "mbw_mr":
        return tuple(chosen)
    pairs: list[dict[str, Any]] = [
        {"schedule": one["schedule"], "round": one["round"], "ranks": tuple(one["ranks"])} for one in asked.series
    ]
    return tuple(replace(each, operation="unidirectional", **pair) for each in chosen for pair in pairs)


def verified_by(samples: Iterable[Samples], checked: VendorOutput) -> tuple[Samples, ...]:
    """`samples` with the wrong bytes that another run of the same benchmark found at the same sizes."""
    verified = {(each.operation, each.bytes): each.wrong_bytes for each in checked.samples}
    return tuple(replace(each, wrong_bytes=verified.get((each.operation, each.bytes), -1)) for each in samples)


def check_output(output: VendorOutput, asked: BenchmarkRequest) -> tuple[Finding, ...]:
    """What keeps an output from being that of the run that was requested, beyond its own problems.

    Sizes that are missing, or were not requested, are found when the result file is read against its plan.
    """
    problems = list(output.problems)
    where = output.path or "the output"
    if output.ranks is not None and output.ranks != asked.ranks:
        problems.append(
            Finding(
                "wrong-ranks",
                Verdict.INVALID,
                f"{where}: {output.tool} ran with {output.ranks} ranks instead of {asked.ranks}",
            )
        )
    expected = {asked.benchmark.operation, *(["multi_pair"] if asked.benchmark.name == "mbw_mr" else [])}
    other = sorted({each.operation for each in output.samples} - expected)
    if other:
        text = f"{output.tool} measured {', '.join(other)} instead of {asked.benchmark.operation}"
        problems.append(Finding("wrong-plan", Verdict.INVALID, f"{where}: {text}"))
    unproven = [each.bytes for each in output.samples if each.wrong_bytes < 0 and each.placement != "in-place"]
    if (asked.check or not asked.benchmark.checks_apart) and unproven:
        text = f"{output.tool} does not confirm its data of {unproven[0]} B"
        problems.append(Finding("not-verified", Verdict.INVALID, f"{where}: {text}: it must run with validation"))
    return tuple(problems)


@dataclass(frozen=True)
class VendorRun:
    """A run of a vendor tool: where it ran (the header of `place`), what was requested and what came of it."""

    place: Run
    asked: BenchmarkRequest
    output: VendorOutput
    samples: tuple[Samples, ...]
    job: Job


def write_result(file: Path, measured: VendorRun, problems: Sequence[Finding] = ()) -> None:
    """Writes the run as a result file (docs/formats.md). One with problems gets an error instead of a footer."""
    run_id = uuid.uuid4().hex
    lines: list[Mapping[str, Any]] = [_header(measured, run_id)]
    lines += [_samples(index, each, measured.asked) for index, each in enumerate(measured.samples)]
    if problems:
        error = {"record": "error", "run_id": run_id, "kind": "library", "message": problems[0].message}
        lines.append({**error, "operation": None, "bytes": None, "missing_ranks": []})
    else:
        lines.append(_footer(measured.samples, measured.job, run_id))
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _header(measured: VendorRun, run_id: str) -> dict[str, Any]:
    place, asked, output, job = measured.place.header, measured.asked, measured.output, measured.job
    iterations = max((each.times_ns.size for each in measured.samples), default=1)
    verified = bool(measured.samples) and all(each.wrong_bytes >= 0 for each in measured.samples)
    host = asked.backend == "host"
    series = asked.series
    return {
        **place,
        "format": FORMAT,
        "run_id": run_id,
        "program": output.tool,
        "version": output.version or "unknown",
        "backend": asked.backend,
        "platform": "host" if host else place["platform"],
        "transport": job.transport,
        "started_utc": job.started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "command": redacted_command(job.command),
        "ranks": [{**each, "device": None} if host else each for each in place["ranks"]],
        "plan": {
            **place["plan"],
            "operations": [asked.benchmark.operation],
            "implementation": series[0]["implementation"],
            "schedules": [series[0]["schedule"]],
            "sizes": list(asked.planned_bytes),
            "warmup": asked.warmup,
            "iterations": {"mode": "fixed", "minimum": iterations, "maximum": iterations, "budget_s": None},
            "datatype": output.facts.get("datatype", "unknown"),
            "verify": "batch" if verified else "off",
            "injected": None,
            "series": series,
        },
        "expected_records": sum(len(each["bytes"]) for each in series),
    }


def _samples(index: int, samples: Samples, asked: BenchmarkRequest) -> dict[str, Any]:
    return {
        "record": "samples",
        "index": index,
        "operation": samples.operation,
        "implementation": asked.series[0]["implementation"],
        "schedule": samples.schedule,
        "round": samples.round,
        "ranks": list(samples.ranks),
        "bytes": samples.bytes,
        "warmup": asked.warmup,
        "stopped": "fixed",
        "wrong_bytes": samples.wrong_bytes,
        "statistic": samples.statistic,
        "times_ns": samples.times_ns.tolist(),
    }


def _footer(samples: Sequence[Samples], job: Job, run_id: str) -> dict[str, Any]:
    timed = timed_ns(samples)
    return {
        "record": "footer",
        "run_id": run_id,
        "status": "complete",
        "records": len(samples),
        "samples": sum(each.times_ns.size for each in samples),
        "wrong_bytes": sum(max(each.wrong_bytes, 0) for each in samples),
        "wall_ns": job.wall_ns,
        "timed_ns": timed,
        "setup_ns": 0,
        "verify_ns": 0,
        "recording_ns": 0,
        "proof": {"paths": dict(job.proof.paths), "evidence": job.proof.evidence, "facts": dict(job.proof.facts)},
    }


def drop_environment(report: Path) -> None:
    """Leaves of a JSON report of nccl-tests, which holds the whole environment, secrets and all, what may be kept.

    That is what `clean_nccl_json` vouches for. JSON that it does not know only loses the environment, so that its
    parser can say what is wrong; a report that is not JSON is emptied, since it may hold the environment too.
    """
    if not report.exists():
        return
    text = report.read_text(errors="replace")
    clean = clean_nccl_json(text)
    if clean is not None:
        report.write_text(clean)
        return
    try:
        content = json.loads(text)
        content.pop("env", None)
    except (ValueError, TypeError, AttributeError, RecursionError):
        report.write_text("")
        return
    report.write_text(json.dumps(content))
