"""Whether a core copies host memory as fast as it did: the cause where all is slow that crosses that memory."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fabricheck.judge.evidence import short_name
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component
from fabricheck.records.finding import Finding
from fabricheck.records.operations import HOST_PATHS
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.wholefile import open_file

# Two healthy runs of a minute differed by 20% (2 H100, 2026-11-26), and one whose host paths lost 15 to 23% by 57%
# (H200, 2026-11: 63 and 27 GB/s).
_LEAST = 2 / 3
# Sessions that are looked at, the values that are enough, and the largest result file of one test.
_EARLIER, _ENOUGH, _MOST_BYTES = 5, 3, 1 << 28


def find_slow_copies(folder: Path, system: str, judged: Sequence[RunJudgement]) -> Iterator[Finding]:
    """The nodes on which one core's copy is slow, where all that is slow in a session crosses host memory.

    By the headers of its runs and of the last sessions of the system, whose folders are beside `folder`.
    """
    slow = [(run.run, metric) for run in judged for metric in run.judgements if metric.verdict is not Verdict.PASS]
    if not slow or not all(_crosses_host(run, metric.samples.operation) for run, metric in slow):
        return
    now = _by_node(run.run.header for run in judged)
    earlier = _by_node(_headers(folder, system))
    for node in sorted({short_name(run.ranks[0].host) for run, _ in slow if run.ranks} & now.keys()):
        others = [copy for other, copies in now.items() if other != node for copy in copies]
        if len(earlier.get(node, ())) >= _ENOUGH:
            usual, where = statistics.median(earlier[node]), "in earlier sessions"
        elif others:
            usual, where = statistics.median(others), "on other nodes"
        else:
            usual, where = max(now[node]), "earlier in this session"
        own = min(now[node])
        if own < _LEAST * usual:
            text = f"one core copies host memory at {own / 8:.3g} GB/s; {where}: {usual / 8:.3g} GB/s"
            at = (Component.of_node(node),)
            yield Finding("host-memory-slow", Verdict.PASS, text, at, measured=own, expected=usual, unit="Gb/s")


def _crosses_host(run: Run, operation: str) -> bool:
    return operation in HOST_PATHS or run.header.get("transport") == "staging" or not run.on_gpus


def _by_node(headers: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """What one core copied in each run, in Gb/s, by the node of its rank 0."""
    rates: dict[str, list[float]] = {}
    for header in headers:
        try:
            rates.setdefault(short_name(header["ranks"][0]["host"]), []).append(float(header["host_copy_gbps"]))
        except (KeyError, IndexError, TypeError, ValueError):  # of a vendor's tool, or damaged
            continue
    return rates


def _headers(folder: Path, system: str) -> Iterator[Mapping[str, Any]]:
    """Of the result files of the sessions before that of `folder`."""
    before = sorted(each for each in folder.parent.glob(f"{system}-*") if each.name < folder.name)
    for file in (file for each in before[-_EARLIER:] for file in each.glob("*/**/result.jsonl")):
        try:
            with open_file(file, _MOST_BYTES) as stream:
                yield json.loads(stream.readline())
        except (OSError, ValueError, RecursionError):
            continue
