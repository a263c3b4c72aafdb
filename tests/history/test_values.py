"""Tables whose checksums are right and whose values nobody measured: one line that names the file, and no traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fabricheck.errors import UserError
from fabricheck.history import store_tables
from fabricheck.history.folders import METRICS, RUNS, SAMPLES, SessionFolder
from fabricheck.history.reading import count_values, history, stored_runs
from fabricheck.history.upkeep import verify
from tests.history.test_upkeep import forge
from tests.support.sessions import add

SCHEMAS = {RUNS: store_tables.RUNS, METRICS: store_tables.METRICS, SAMPLES: store_tables.SAMPLES}


def forge_value(entry: SessionFolder, name: str, column: str, change: Callable[[Any], Any]) -> None:
    table = pl.read_parquet(entry.path / name)
    rows = table.rows(named=True)
    rows[0][column] = change(rows[0][column])
    forge(entry, name, store_tables.to_parquet(pl.DataFrame(rows, schema=SCHEMAS[name])))


def of_json(change: Callable[[Any], Any]) -> Callable[[str], str]:
    def changed(text: str) -> str:
        value = json.loads(text)
        change(value)
        return json.dumps(value)

    return changed


@pytest.mark.parametrize(
    ("name", "column", "change", "says"),
    [
        (METRICS, "verdict", lambda _: None, "a row without verdict"),
        (METRICS, "verdict", lambda _: "FINE", "has 'FINE' for verdict"),
        (METRICS, "better", lambda _: "faster", "has 'faster' for better"),
        (METRICS, "unit", lambda _: None, "a row without unit"),
        (METRICS, "started", lambda _: datetime(1, 1, 1, tzinfo=timezone.utc), "a time in started that is invalid"),
        (METRICS, "nodes", lambda _: [None], "a list in nodes with a value missing"),
        (METRICS, "components", lambda _: None, "a row without components"),
        (METRICS, "software", lambda _: "{", "software is not a JSON object"),
        (METRICS, "software", lambda _: '{"nccl": 2}', "software that is not text"),
        (RUNS, "record", lambda _: "[" * 99_999, "record is not a JSON object"),
        (RUNS, "record", of_json(lambda run: run["header"]["plan"].pop("series")), "plan.series: Field required"),
        (RUNS, "record", of_json(lambda run: run.update(footer={"record": "footer"})), "run_id: Field required"),
        (RUNS, "record", of_json(lambda run: run.update(problems=[["FINE", ""]])), "not a valid Verdict"),
        (RUNS, "record", of_json(lambda run: run.pop("path")), "it has no 'path'"),
        (RUNS, "record", of_json(lambda run: run.update(ranks=[{"rank": 0}])), "validation errors"),
        (RUNS, "attributes", lambda _: "[]", "attributes is not a JSON object"),
        (RUNS, "judgement", lambda text: text[:-9], "judgement is not a JSON object"),
        (RUNS, "judgement", of_json(lambda run: run["metrics"][0].pop("reason")), "it has no 'reason'"),
        (RUNS, "judgement", of_json(lambda run: run.update(verdict=None)), "where text is expected"),
        (SAMPLES, "bytes", lambda _: 0, "an impossible number"),
        (SAMPLES, "bytes", lambda _: None, "a row without bytes"),
        (SAMPLES, "times_ns", lambda _: [], "an impossible number"),
        (SAMPLES, "times_ns", lambda _: [5, -7], "an impossible number"),
        (SAMPLES, "ranks", lambda _: [0, 7], "ranks that the run does not have"),
        (SAMPLES, "operation", lambda _: "teleport", "no operation 'teleport'"),
        (SAMPLES, "messages", lambda _: [[0, 1]], "not triples of numbers"),
        (SAMPLES, "groups", lambda _: [1, None, 2], "a list in groups with a value missing"),
    ],
)
def test_values_that_nobody_measured(  # noqa: PLR0917
    root: Path, store: Path, name: str, column: str, change: Callable[[Any], Any], says: str
) -> None:
    entry, _ = add(root, store, 0)
    assert verify(store).damage == ()
    forge_value(entry, name, column, change)
    (line,) = verify(store).damage
    assert says in line and str(entry.path) in line
    with pytest.raises(UserError) as error:
        _ = history(store, system="local") if name == METRICS else list(stored_runs(entry))
    assert says in str(error.value) and "\n" not in str(error.value)


def test_messages_keep_their_steps(root: Path, store: Path) -> None:
    entry, _ = add(root, store, 0)
    messages = [[0, 1, 8], [1, 0, 8, 1]]
    forge_value(entry, SAMPLES, "messages", lambda _: messages)
    assert tuple(map(tuple, messages)) in {
        samples.messages for run in stored_runs(entry) for samples in run.run.samples
    }


def test_a_damaged_table_is_not_given_to_the_reader_of_parquet(
    root: Path, store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    entry, _ = add(root, store, 0)
    whole = (entry.path / METRICS).read_bytes()
    for place in range(len(whole) - 1500, len(whole)):  # where Parquet says what is in the file
        (entry.path / METRICS).write_bytes(whole[:place] + bytes([whole[place] ^ 0x11]) + whole[place + 1 :])
        assert count_values(store, "local") == (1, 2)
        with pytest.raises(UserError, match="its checksum differs"):
            history(store, system="local")
    assert capfd.readouterr().err == ""  # it panics, with pages of a trace
