"""What the values in the tables of an entry have to be, so that whoever reads them need not ask.

A table whose checksum is right may still have been written by another program, or by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import polars as pl
from pydantic import TypeAdapter

from fabricheck.records.burn_in import Product
from fabricheck.records.finding import Finding
from fabricheck.records.node_state import States
from fabricheck.records.operations import LOADS, OPERATIONS
from fabricheck.records.run import Rank, Run, Samples
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench_format import FooterModel, HeaderModel, with_todays_words
from fabricheck.results.node_state import states_of_json
from fabricheck.results.strict_json import BadLineError, validate

#: In the place of a verdict: nothing was there to judge the metric by, and nothing is wrong with its value.
UNJUDGED = "UNJUDGED"

_MAY_BE_NULL = frozenset(
    [
        *("result", "phase", "result_reason", "groups", "deviation", "own_verdict", "reason", "nominal", "expected"),
        *("ceiling", "floor_fraction", "expectation_source"),
        *("reference", "reference_lower", "reference_upper", "reference_provenance"),
    ]
)
_VERDICTS = {"verdict": {*(each.value for each in Verdict), UNJUDGED}, "better": {"higher", "lower"}}
_RANKS = TypeAdapter(tuple[Rank, ...])


def check_table(table: pl.DataFrame) -> None:
    """Raises ValueError where a column has no value, or one that is never written there."""
    for column in table:
        if isinstance(column.dtype, pl.List) and (column.list.drop_nulls().list.len() != column.list.len()).any():
            raise ValueError(f"has a list in {column.name} with a value missing")
        if column.null_count() and column.name not in _MAY_BE_NULL:
            raise ValueError(f"has a row without {column.name}")
        if isinstance(column.dtype, pl.Datetime) and not column.dt.year().is_between(1970, 9999).all():
            raise ValueError(f"has a time in {column.name} that is invalid")
        known = _VERDICTS.get(column.name)
        if known is not None and (odd := set(column) - known):
            raise ValueError(f"has {min(odd)!r} for {column.name}")
        if column.name in ("software", "tuning"):
            for text in column.unique():
                if not all(isinstance(each, str) for each in _object(text, column.name).values()):
                    raise ValueError(f"has {column.name} that is not text")


def record_of(text: str) -> Run:
    """The run in a row of runs, without its samples, which are in a table of their own. Raises ValueError for none."""
    record = _object(text, "record")
    try:
        header, footer = with_todays_words(record["header"]), record["footer"]
        for model, value in ((HeaderModel, header), (FooterModel, footer)):
            if value:
                validate(model, value)
        return Run(
            path=_text(record["path"]),
            header=header,
            ranks=_RANKS.validate_python(record["ranks"]),
            samples=(),
            footer=footer,
            problems=tuple(map(_finding, record["problems"])),
            # Up to version 0.1 nobody asked the nodes.
            states=states_of_json(record["states"]) if "states" in record else States(),
            product=_product(record, header) if "multiplied_by" in record else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError, BadLineError) as error:
        raise ValueError(f"its record is not of this format: {_first_line(error)}") from None


def _product(record: Mapping[str, Any], header: Mapping[str, Any]) -> Product:
    """What a burn-in multiplied: by its plan, and by which library of each rank."""
    by, plan = tuple(map(_text, record["multiplied_by"])), header["plan"]["burn_in"]
    if len(by) != len(record["ranks"]):
        raise ValueError(f"it has {len(by)} libraries that multiply, and {len(record['ranks'])} ranks")
    return Product(plan["product"], plan["order"], by)


def _finding(row: object) -> Finding:
    """A problem of a run; up to version 0.1 it was its verdict and its message."""
    if isinstance(row, list):
        verdict, message = row
        return Finding("recorded", Verdict(verdict), _text(message))
    if not isinstance(row, dict):
        raise TypeError("a problem is an object")
    return Finding.from_json(row)


def attributes_of(text: str) -> dict[str, Any]:
    """The attributes of a test case. Raises ValueError where it is not a JSON object."""
    return _object(text, "attributes")


def check_judgement(text: str) -> None:
    """Raises ValueError where a text is not a judgement of a run."""
    judgement = _object(text, "judgement")
    try:
        _text(judgement["verdict"])
        for names, rows in ((("verdict", "message"), "problems"), (("name", "verdict", "reason"), "metrics")):
            for row in judgement[rows]:
                for name in names:
                    _text(row[name])
    except (KeyError, TypeError) as error:
        raise ValueError(f"its judgement is not of this format: {_first_line(error)}") from None


def check_samples(samples: Samples, run: Run) -> None:
    """Raises ValueError where a row of samples was not measured; that of a sound run by ranks that it has not."""
    times = samples.times_ns
    if samples.operation not in {*OPERATIONS, *LOADS}:
        raise ValueError(f"there is no operation {samples.operation!r}")
    least = [
        (samples.bytes, 1),
        (samples.warmup, 0),
        (samples.round, -1),
        (samples.wrong_bytes, -1),
        (samples.kept_of, 0),
    ]
    if any(value < smallest for value, smallest in least) or not times.size or times.min() < 1:
        raise ValueError(f"a row of {samples.operation} has an impossible number")
    if not samples.ranks or (not run.problems and set(samples.ranks) - {each.rank for each in run.ranks}):
        raise ValueError(f"a row of {samples.operation} names ranks that the run does not have")


def _object(text: str, name: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ValueError(f"its {name} is not a JSON object")
    return content


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} where text is expected")
    return value


def _first_line(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error).splitlines()[0]
