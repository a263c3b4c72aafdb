"""The tables of an entry, and the way from a judged run to them and back.

`runs.parquet` has a row for each run, `metrics.parquet` for each metric of a run, `samples.parquet` for each line of
samples. What has to come back exactly (header, footer, ranks, problems, the judgement) is JSON in ASCII; all other
columns are there to be read and searched.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from fabricheck.history.robust import MAD_OF_NORMAL
from fabricheck.history.values import (
    UNJUDGED,
    attributes_of,
    check_judgement,
    check_samples,
    check_table,
    record_of,
)
from fabricheck.judge.as_json import run_as_json
from fabricheck.judge.statistics import median_interval
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.case import Case, CheckJudgement
from fabricheck.records.judgement import Judgement
from fabricheck.records.metrics import metrics_of
from fabricheck.records.run import Groups, Run, Samples
from fabricheck.records.verdict import Verdict, worst
from fabricheck.results.check_judgement import judgement_of_old_reason
from fabricheck.results.fabricbench_format import parse_utc
from fabricheck.results.node_state import states_as_json
from fabricheck.topology.components import components_of

# Among the attributes of a test: what its check came to. Before there was such, the reason alone had it.
_VERDICT = "$verdict"
_KEPT_OF, _RANK_ERROR = "order statistics of ", " with a rank error of "

_UTC = pl.Datetime("us", "UTC")
_TEXT, _NUMBER, _COUNT = pl.String(), pl.Float64(), pl.Int64()
_TEXTS = pl.List(pl.String)

# What `history` gives of a metric's row; the types and their order are its promise.
_OF_METRIC: Mapping[str, pl.DataType] = {
    "session": _TEXT,
    "run_id": _TEXT,
    "started": _UTC,
    "system": _TEXT,
    "partition": _TEXT,
    "environment": _TEXT,
    "test": _TEXT,
    "metric": _TEXT,
    "unit": _TEXT,
    "better": _TEXT,
    "value": _NUMBER,
    "low": _NUMBER,
    "high": _NUMBER,
    "count": _COUNT,
    "deviation": _NUMBER,
    "verdict": _TEXT,
    "nodes": _TEXTS,
    "software": _TEXT,
    "tuning": _TEXT,
    "components": _TEXTS,
    "tags": _TEXTS,
}
# `rehearsal` is of the session: whether any of its runs was on emulated GPUs.
HISTORY: Mapping[str, pl.DataType] = {**_OF_METRIC, "rehearsal": pl.Boolean()}
METRICS: Mapping[str, pl.DataType] = {
    **_OF_METRIC,
    "own_verdict": _TEXT,
    "reason": _TEXT,
    "nominal": _NUMBER,
    "expected": _NUMBER,
    "ceiling": _NUMBER,
    "floor_fraction": _NUMBER,
    "expectation_source": _TEXT,
    "reference": _NUMBER,
    "reference_lower": _NUMBER,
    "reference_upper": _NUMBER,
    "reference_provenance": _TEXT,
}
RUNS: Mapping[str, pl.DataType] = {
    "run_id": _TEXT,
    "session": _TEXT,
    "started": _UTC,
    "system": _TEXT,
    "partition": _TEXT,
    "environment": _TEXT,
    "test": _TEXT,
    "test_class": _TEXT,
    "tags": _TEXTS,
    "nodes": _TEXTS,
    "software": _TEXT,
    "tuning": _TEXT,
    "result": _TEXT,
    "phase": _TEXT,
    "result_reason": _TEXT,
    "verdict": _TEXT,
    "attributes": _TEXT,
    "record": _TEXT,
    "judgement": _TEXT,
}
SAMPLES: Mapping[str, pl.DataType] = {
    "run_id": _TEXT,
    "operation": _TEXT,
    "implementation": _TEXT,
    "schedule": _TEXT,
    "round": _COUNT,
    "ranks": pl.List(pl.Int64),
    "bytes": _COUNT,
    "warmup": _COUNT,
    "stopped": _TEXT,
    "wrong_bytes": _COUNT,
    "statistic": _TEXT,
    "placement": _TEXT,
    "groups": pl.List(pl.Int64),
    "messages": pl.List(pl.List(pl.Int64)),
    "times_ns": pl.List(pl.Int64),
}


@dataclass(frozen=True)
class JudgedCase:
    """A judged run and the test case that it belongs to; `software` and `tuning` are canonical JSON."""

    case: Case
    judged: RunJudgement
    software: str
    tuning: str


@dataclass(frozen=True)
class StoredRun:
    """A run as it came back from the store, with its test case, whose files are not kept.

    `judgement` are the bytes of its judgement at the time.
    """

    run_id: str
    session: str
    case: Case
    run: Run
    judgement: bytes

    def __str__(self) -> str:
        return str(self.case)


def judgement_bytes(judged: RunJudgement) -> bytes:
    """The judgement as canonical JSON in ASCII: equal bytes are equal judgements. The platform is in the header."""
    content = {name: value for name, value in run_as_json(judged).items() if name != "platform"}
    return _ascii(content).encode("ascii")


def run_id_of(run: Run) -> str:
    """The id that the benchmark drew; of a run without one, the digest of its content."""
    own = run.header.get("run_id") if run.header else None
    if own:
        return str(own)
    digest = hashlib.sha256(_record(run).encode("ascii"))
    for samples in run.samples:
        digest.update(samples.times_ns.tobytes())
    return digest.hexdigest()[:32]


def started_of(run: Run, otherwise: datetime) -> datetime:
    """When the run began, by its header; without one, `otherwise`."""
    text = run.header.get("started_utc") if run.header else None
    return parse_utc(text) if isinstance(text, str) else otherwise


def runs_table(measured: Sequence[JudgedCase], session: str, started: datetime) -> pl.DataFrame:
    """One row for each run, in their order."""
    rows = [
        {
            **_place(each, session, started),
            "test_class": each.case.test,
            "software": each.software,
            "tuning": each.tuning,
            "result": each.case.result,
            "phase": each.case.phase,
            "result_reason": each.case.reason,
            "verdict": each.judged.verdict.value,
            "attributes": _ascii(
                {
                    **{name: value for name, value in each.case.attributes.items() if name != "perfvalues"},
                    _VERDICT: each.case.verdict.value,
                }
            ),
            "record": _record(each.judged.run),
            "judgement": judgement_bytes(each.judged).decode("ascii"),
        }
        for each in measured
    ]
    return _frame(rows, RUNS)


def metrics_table(measured: Sequence[JudgedCase], session: str, started: datetime) -> pl.DataFrame:
    """One row for each metric of each run, in the order of the runs and of their plans."""
    rows = []
    for run in measured:
        place, whole = _place(run, session, started), verdict_of_whole(run.case, run.judged)
        values = {metric.name: metric.values for metric in metrics_of(run.judged.run)}
        topology = run.judged.topology
        for judged in run.judged.judgements:
            of = judged.samples
            low, high = median_interval(values[judged.name], 0.95, in_order=of.in_order, rank_error=of.rank_error)
            rows.append(
                {
                    **place,
                    "metric": judged.name,
                    "unit": judged.unit,
                    "better": judged.better,
                    "value": judged.value,
                    "low": low,
                    "high": high,
                    "count": values[judged.name].size,
                    "deviation": _deviation(values[judged.name]),
                    "verdict": _verdict_of_row(judged, whole),
                    "software": run.software,
                    "tuning": run.tuning,
                    "components": [one.key for one in components_of(run.judged.run, judged.samples, topology)],
                    **_yardsticks(judged),
                }
            )
    return _frame(rows, METRICS)


def _deviation(values: npt.NDArray[np.float64]) -> float:
    """The median absolute deviation, as the standard deviation of a normal distribution."""
    return float(np.median(np.abs(values - np.median(values)))) / MAD_OF_NORMAL


def samples_table(measured: Sequence[JudgedCase]) -> pl.DataFrame:
    """One row for each line of samples, in the order of the runs and of their files."""
    lines = [(run_id_of(each.judged.run), one) for each in measured for one in each.judged.run.samples]
    return pl.DataFrame(
        {
            "run_id": [run_id for run_id, _ in lines],
            "operation": [one.operation for _, one in lines],
            "implementation": [one.implementation for _, one in lines],
            "schedule": [one.schedule for _, one in lines],
            "round": [one.round for _, one in lines],
            "ranks": [list(one.ranks) for _, one in lines],
            "bytes": [one.bytes for _, one in lines],
            "warmup": [one.warmup for _, one in lines],
            "stopped": [one.stopped for _, one in lines],
            "wrong_bytes": [one.wrong_bytes for _, one in lines],
            "statistic": [_statistic(one) for _, one in lines],
            "placement": [one.placement for _, one in lines],
            "groups": [None if one.groups is None else list(astuple(one.groups)) for _, one in lines],
            "messages": [[list(each) for each in one.messages] for _, one in lines],
            "times_ns": [one.times_ns for _, one in lines],
        },
        schema=SAMPLES,
    )


def _statistic(samples: Samples) -> str:
    """What the times of a line of samples are."""
    return f"{_KEPT_OF}{samples.kept_of}{_RANK_ERROR}{samples.rank_error!r}" if samples.kept_of else samples.statistic


def to_parquet(table: pl.DataFrame) -> bytes:
    """The table as a Parquet file, compressed with Zstandard."""
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def from_parquet(
    content: bytes, schema: Mapping[str, pl.DataType], columns: Iterable[str] | None = None
) -> pl.DataFrame:
    """The table in a Parquet file, or some of its columns; ValueError where it is none or has another schema."""
    try:
        present = pl.read_parquet_schema(io.BytesIO(content))
        if list(present.items()) != list(schema.items()):
            odd = next((name for name in {**schema, **present} if present.get(name) != schema.get(name)), "their order")
            raise ValueError(f"its columns are not those of this format ({odd})")
        rows = pl.scan_parquet(io.BytesIO(content)).select(pl.len()).collect().item()
        if rows > len(content):  # what was measured differs from row to row, and takes some bytes of each
            raise ValueError(f"has {rows:,} rows in {len(content):,} bytes, which cannot be measurements")
        table = pl.read_parquet(io.BytesIO(content), columns=list(columns) if columns is not None else None)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise ValueError(f"is not a Parquet file: {str(error).splitlines()[0]}") from None
    check_table(table)
    return table


def stored_runs(runs: pl.DataFrame, samples: pl.DataFrame) -> Iterable[StoredRun]:
    """The runs of an entry, exactly as they were; ValueError where a record is not one of this format."""
    lines: dict[str, list[Samples]] = {}
    for row, kept in zip(samples.drop("times_ns").iter_rows(named=True), samples["times_ns"], strict=True):
        lines.setdefault(row["run_id"], []).append(_samples(row, kept))
    for row in runs.drop("started").iter_rows(named=True):
        try:
            run = replace(record_of(row["record"]), samples=tuple(lines.get(row["run_id"], ())))
            for series in run.samples:
                check_samples(series, run)
            check_judgement(row["judgement"])
            case = _case(row)
        except ValueError as error:
            raise ValueError(f"cannot be read at run {row['run_id']}: {error}") from None
        yield StoredRun(
            run_id=row["run_id"],
            session=row["session"],
            case=case,
            run=run,
            judgement=row["judgement"].encode("ascii"),
        )


def _samples(row: Mapping[str, Any], kept: pl.Series) -> Samples:
    times = np.array(kept, dtype=np.int64)
    times.flags.writeable = False
    values = {name: value for name, value in row.items() if name not in ("run_id", "ranks", "groups", "messages")}
    # With this word first it names the number of iterations of which `times_ns` are order statistics.
    if values["statistic"].startswith(_KEPT_OF):
        count, _, error = values["statistic"].removeprefix(_KEPT_OF).partition(_RANK_ERROR)
        values |= {"statistic": "iterations", "kept_of": int(count), "rank_error": float(error or 0)}
    groups, messages = row["groups"] if row["groups"] is not None else [0, 0, 0], row["messages"]
    odd = len(groups) != 3 or any(len(each) not in (3, 4) for each in messages)
    if odd or any(None in each for each in (groups, *messages)):
        raise ValueError("has groups or messages that are not triples of numbers")
    return Samples(
        **values,
        ranks=tuple(row["ranks"]),
        times_ns=times,
        groups=None if row["groups"] is None else Groups(*row["groups"]),
        messages=tuple(tuple(each) for each in row["messages"]),
    )


def _case(row: Mapping[str, Any]) -> Case:
    attributes = attributes_of(row["attributes"])
    verdict = attributes.pop(_VERDICT, None)
    judged = judgement_of_old_reason(row["result_reason"]) if verdict is None else CheckJudgement(Verdict(verdict))
    return Case(
        name=row["test"],
        environment=row["environment"],
        partition=f"{row['system']}:{row['partition']}",
        attributes=attributes,
        result=row["result"],
        phase=row["phase"],
        reason=row["result_reason"],
        folder=None,
        is_build=False,
        tags=tuple(row["tags"]),
        judged=judged,
        foreign=verdict is None,  # who named no verdict then, and measured something, failed
    )


def clean(text: str) -> str:
    """`text` as UTF-8 can hold it: names come from elsewhere and may have lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def clean_json(value: Any) -> Any:
    """A JSON value with texts as `clean` makes them."""
    if isinstance(value, dict):
        return {name: clean_json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [clean_json(each) for each in value]
    return clean(value) if isinstance(value, str) else value


def _frame(rows: Sequence[Mapping[str, Any]], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """The table of rows, with texts as `clean` makes them."""
    return pl.DataFrame([{name: clean_json(row[name]) for name in schema} for row in rows], schema=schema)


def _place(measured: JudgedCase, session: str, started: datetime) -> dict[str, Any]:
    run, case = measured.judged.run, measured.case
    system, _, partition = case.partition.partition(":")
    return {
        "session": session,
        "run_id": run_id_of(run),
        "started": started_of(run, started),
        "system": system,
        "partition": partition,
        "environment": case.environment,
        "test": case.name_without_repeat,
        "tags": list(case.tags),
        "nodes": sorted({rank.host for rank in run.ranks}),
    }


def verdict_of_whole(case: Case, judged: RunJudgement) -> Verdict:
    """What the run as a whole adds to the verdict of each of its metrics.

    A failure in ReFrame's performance phase is about metrics, which have verdicts of their own; but where they do not
    show it, it is about them all.
    """
    verdicts = [Verdict.PASS, *(problem.verdict for problem in judged.problems)]
    if case.result != "pass" and (case.phase != "performance" or judged.verdict is Verdict.PASS):
        verdicts.append(case.verdict)
    return worst(verdicts)


def _verdict_of_row(judged: Judgement, whole: Verdict) -> str:
    """The worse verdict; UNJUDGED for a sound value of a sound run that met no yardstick, which is a measurement."""
    if judged.unjudged and whole not in (Verdict.INCOMPLETE, Verdict.INVALID):
        return UNJUDGED
    return worst([judged.verdict, whole]).value


def _yardsticks(judged: Judgement) -> dict[str, Any]:
    expectation, reference = judged.expectation, judged.reference
    return {
        "own_verdict": judged.verdict.value,
        "reason": judged.reason,
        "nominal": expectation.nominal,
        "expected": expectation.expected,
        "ceiling": expectation.ceiling,
        "floor_fraction": float(expectation.floor_fraction),
        "expectation_source": expectation.source,
        "reference": reference.value if reference else None,
        "reference_lower": reference.lower if reference else None,
        "reference_upper": reference.upper if reference else None,
        "reference_provenance": reference.provenance if reference else None,
    }


def _record(run: Run) -> str:
    return _ascii(
        {
            "path": run.path,
            "header": run.header,
            "ranks": [asdict(each) for each in run.ranks],
            "footer": run.footer,
            "problems": [each.as_json() for each in run.problems],
            **({"states": states_as_json(run.states)} if run.states.asked else {}),
            **({"multiplied_by": run.product.by} if run.product is not None else {}),
        }
    )


def _ascii(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
