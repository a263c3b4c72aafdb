"""Result files for tests: the synthetic ones in tests/data/fabricbench, changed in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run

DATA = Path(__file__).resolve().parents[1] / "data" / "fabricbench"
HOST = DATA / "synthetic_host_2ranks.jsonl"
CUDA = DATA / "synthetic_cuda_4ranks.jsonl"
# Every kind of pattern: rounds that were given, groups, striping, messages of a matrix, victims.
PATTERNS = DATA / "host_patterns_4ranks.jsonl"

Line = dict[str, Any]


def lines_of(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write(path: Path, lines: list[Line]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def settle(lines: list[Line]) -> None:
    """Make plan and footer agree with changed times, so that a test plants one defect and not three."""
    samples = [line for line in lines if line["record"] == "samples"]
    for line in samples:
        line["iterations"] = len(line["times_ns"])
    footer = lines[-1]
    footer["records"] = len(samples)
    footer["samples"] = sum(len(line["times_ns"]) for line in samples)
    footer["wrong_bytes"] = sum(max(line["wrong_bytes"], 0) for line in samples)
    rounds: dict[Any, list[list[int]]] = {}
    for number, line in enumerate(samples):
        alone = number if line["round"] < 0 else -1
        key = (line["operation"], line["schedule"], line["round"], line["bytes"], alone)
        rounds.setdefault(key, []).append(line["times_ns"])
    footer["timed_ns"] = sum(max(times) for group in rounds.values() for times in zip(*group, strict=True))
    footer["wall_ns"] = footer["timed_ns"] + 90_000_000


def changed(tmp_path: Path, change: Callable[[list[Line]], object], source: Path = HOST) -> Run:
    lines = lines_of(source)
    change(lines)
    return read_run(write(tmp_path / "changed.jsonl", lines))


def verdicts(run: Run) -> set[Verdict]:
    return {problem.verdict for problem in run.problems}


def said(run: Run) -> str:
    return "\n".join(problem.message for problem in run.problems)
