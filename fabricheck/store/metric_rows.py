"""metrics.parquet: a row for each metric of each run of a session, written and read by the model `MetricRow`."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import GenericAlias
from typing import Annotated, Any, Literal, get_type_hints

import numpy as np
import numpy.typing as npt
import polars as pl
from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError

from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.case import Case
from fabricheck.records.judgement import Judgement
from fabricheck.records.metrics import metrics_of
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict, worst
from fabricheck.results.fabricbench_format import parse_utc
from fabricheck.statistics.iterations import median_interval
from fabricheck.statistics.robust import MAD_OF_NORMAL
from fabricheck.store.session import StoredModel, Text
from fabricheck.topology.components import components_of

#: In the place of a verdict: nothing was there to judge the metric by, and nothing is wrong with its value.
UNJUDGED = "UNJUDGED"

_TEXTS_BY_NAME = TypeAdapter(dict[str, str])


def _is_texts_by_name(text: str) -> str:
    _TEXTS_BY_NAME.validate_json(text)
    return text


TextsByName = Annotated[str, AfterValidator(_is_texts_by_name)]


class MetricRow(StoredModel):
    """A metric of a run."""

    session: Text
    """ReFrame's uuid of the session"""
    run_id: Text
    """the id that the benchmark drew for the run"""
    started: datetime
    """when the run began, by its header"""
    system: Text
    """as in `site_configs/`"""
    partition: Text
    """its name alone"""
    environment: Text
    """of ReFrame"""
    test: Text
    """unique name with parameters; repetitions of `--repeat` share it"""
    metric: Text
    """[name](metrics.md)"""
    unit: Text
    """`Gb/s` or `us`"""
    better: Literal["higher", "lower"]
    value: float
    """median of the iterations"""
    low: float
    """lower end of its nonparametric 95% interval ([what it covers](methodology.md#an-iteration))"""
    high: float
    """upper end"""
    count: int
    """iterations"""
    deviation: float | None
    """spread within the run: 1.4826 x median absolute deviation"""
    verdict: Literal["PASS", "DEGRADED", "FAIL", "INCOMPLETE", "INVALID", "UNJUDGED"]
    """the worst of the metric's own verdict and of what concerns its run as a whole (a wrong transport, a file that was
    cut off). `UNJUDGED`: a sound value that nothing was there to judge; it counts as a measurement"""
    nodes: list[Text]
    """sorted host names"""
    software: TextsByName
    """JSON: versions by name, sorted: libraries and drivers from the header, `module NAME` from the job script, `suite`
    (git revision), `fabricheck`, `ReFrame`, what `--session-extras NAME=VALUE` gave (firmware, for example), and for
    runs on the host that ReFrame ran on its `kernel` and the `firmware` of its InfiniBand adapters"""
    tuning: TextsByName
    """JSON: variables in effect by name, without those that the launcher sets, and the `profile`"""
    components: list[Text]
    """what the data pass: `node`, `node:device`, `node:device-device` for a link; from the widest paths of the
    topology, and the NIC of each GPU between nodes (without GPUs, the interfaces that sent the data). Switches between
    nodes are unknown. `compare` and `watch` add the software that the data pass, as `library=NCCL`, from `test` and
    `software`"""
    tags: list[Text]
    """of the test"""
    reason: Text | None
    """of the metric's own verdict: its yardstick and how far it is from it, one line"""


def _list_of(kind: object) -> TypeAdapter[Any]:
    values: Any = GenericAlias(list, (kind,))
    return TypeAdapter(values, config=ConfigDict(strict=True))


_POLARS: Mapping[object, pl.DataType] = {
    float: pl.Float64(),
    float | None: pl.Float64(),
    int: pl.Int64(),
    datetime: pl.Datetime("us", "UTC"),
    list[str]: pl.List(pl.String),
}
_KINDS = get_type_hints(MetricRow)
_MODELS = get_type_hints(MetricRow, include_extras=True)
#: The types of the columns, in their order.
SCHEMA: Mapping[str, pl.DataType] = {name: _POLARS.get(_KINDS[name], pl.String()) for name in MetricRow.model_fields}
#: Of the texts that have a form: reads the different ones of a column.
_FORMS: Mapping[str, TypeAdapter[Any]] = {
    name: _list_of(kind) for name, kind in _MODELS.items() if SCHEMA[name] == pl.String() and kind != Text
}
#: The columns that `history` gives; `rehearsal` is of the session.
HISTORY: Mapping[str, pl.DataType] = {
    **{name: kind for name, kind in SCHEMA.items() if name != "reason"},
    "rehearsal": pl.Boolean(),
}


@dataclass(frozen=True)
class JudgedCase:
    """A judged run and the test case that it belongs to; `software` and `tuning` are canonical JSON."""

    case: Case
    judged: RunJudgement
    software: str
    tuning: str


def run_id_of(run: Run) -> str:
    """The id that the benchmark drew; of a run without one, the digest of its content."""
    own = run.header.get("run_id") if run.header else None
    if own:
        return str(own)
    digest = hashlib.sha256(json.dumps([run.path, run.header, run.footer]).encode("ascii"))
    for samples in run.samples:
        digest.update(samples.times_ns.tobytes())
    return digest.hexdigest()[:32]


def started_of(run: Run, otherwise: datetime) -> datetime:
    """When the run began, by its header; without one, `otherwise`."""
    text = run.header.get("started_utc") if run.header else None
    return parse_utc(text) if isinstance(text, str) else otherwise


def metrics_table(measured: Sequence[JudgedCase], session: str, started: datetime) -> pl.DataFrame:
    """The rows of a session, in the order of its runs and of their plans."""
    rows = [row.model_dump() for run in measured for row in _rows_of(run, session, started)]
    return pl.DataFrame(rows, schema=dict(SCHEMA))


def _rows_of(measured: JudgedCase, session: str, started: datetime) -> Iterator[MetricRow]:
    case, judged, run = measured.case, measured.judged, measured.judged.run
    system, _, partition = case.partition.partition(":")
    whole = verdict_of_whole(case, judged)
    values = {metric.name: metric.values for metric in metrics_of(run)}
    run_id, began, nodes = run_id_of(run), started_of(run, started), sorted({rank.host for rank in run.ranks})
    for metric in judged.judgements:
        samples, measurements = metric.samples, values[metric.name]
        low, high = median_interval(measurements, 0.95, in_order=samples.in_order, rank_error=samples.rank_error)
        yield MetricRow.model_validate(
            {
                "session": session,
                "run_id": run_id,
                "started": began,
                "system": system,
                "partition": partition,
                "environment": case.environment,
                "test": case.name_without_repeat,
                "metric": metric.name,
                "unit": metric.unit,
                "better": metric.better,
                "value": metric.value,
                "low": low,
                "high": high,
                "count": measurements.size,
                "deviation": _deviation(measurements),
                "verdict": _verdict_of_row(metric, whole),
                "nodes": nodes,
                "software": measured.software,
                "tuning": measured.tuning,
                "components": [component.key for component in components_of(run, samples, judged.topology)],
                "tags": list(case.tags),
                "reason": metric.reason,
            }
        )


def _deviation(values: npt.NDArray[np.float64]) -> float:
    """The median absolute deviation, as the standard deviation of a normal distribution."""
    return float(np.median(np.abs(values - np.median(values)))) / MAD_OF_NORMAL


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


def to_parquet(table: pl.DataFrame) -> bytes:
    """The table as a Parquet file, compressed with Zstandard."""
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


def from_parquet(content: bytes) -> pl.DataFrame:
    """The columns of HISTORY in a Parquet file, whatever else it has; ValueError where one is not of `MetricRow`."""
    columns = [name for name in HISTORY if name in SCHEMA]
    try:
        present = pl.read_parquet_schema(io.BytesIO(content))
        odd = next((name for name in columns if present.get(name) != SCHEMA[name]), None)
        if odd is not None:
            raise ValueError(f"its columns are not those of this format ({odd})")
        rows = pl.scan_parquet(io.BytesIO(content)).select(pl.len()).collect().item()
        if rows > len(content):  # what was measured differs from row to row, and takes some bytes of each
            raise ValueError(f"has {rows:,} rows in {len(content):,} bytes, which cannot be measurements")
        table = pl.read_parquet(io.BytesIO(content), columns=columns)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise ValueError(f"is not a Parquet file: {str(error).splitlines()[0]}") from None
    for column in table:
        _check_values(column)
    return table


def _check_values(column: pl.Series) -> None:
    """Raises ValueError where a value of a column is none that `MetricRow` has."""
    if isinstance(column.dtype, pl.Datetime) and not column.dt.year().is_between(1970, 9999).all():
        raise ValueError(f"has a time in {column.name} that is invalid")
    missing = column.null_count() > 0
    if isinstance(column.dtype, pl.List):
        missing = missing or (column.list.drop_nulls().list.len() != column.list.len()).any()
    if missing and column.name != "deviation":
        raise ValueError(f"has a row without a {column.name}")
    if column.name not in _FORMS:
        return
    try:
        _FORMS[column.name].validate_python(column.unique(maintain_order=True).to_list())
    except ValidationError as error:
        raise ValueError(f"has a row without a valid {column.name}: {error.errors()[0]['msg']}") from None
