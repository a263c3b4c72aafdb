"""Stored sessions come back as they were, and whatever should not be in a store is refused by one line."""

from __future__ import annotations

import hashlib
import json
import tarfile
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabricheck.errors import UserError
from fabricheck.history.series import check_history
from fabricheck.judge.judge import NO_EXPECTATION, judge_run
from fabricheck.records.case import CheckJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.statistics.constants import FORMAT
from fabricheck.statistics.iterations import median_interval
from fabricheck.store import folders
from fabricheck.store.folders import FILES, METRICS, OLD_FILES, SUMS, SessionFolder
from fabricheck.store.metric_rows import HISTORY, SCHEMA, UNJUDGED, to_parquet
from fabricheck.store.reading import count_values, entries_of, history, verify
from fabricheck.store.session import read_record
from fabricheck.store.writing import append
from tests.support.effort import effort
from tests.support.findings import bad_finding, note
from tests.support.nights import RESULTS, SYSTEM
from tests.support.result_files import Line
from tests.support.sessions import FIRST_NIGHT, NOW, add, case, result_file, session_of


def only_line(error: pytest.ExceptionInfo[UserError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


# Sessions


@pytest.mark.parametrize("text", ["", "not JSON", '{"record":"header"}', "\ud800".encode("utf-8", "surrogatepass")])
def test_files_that_cannot_be_judged_are_runs_without_metrics(root: Path, store: Path, text: str | bytes) -> None:
    file = root / "broken.jsonl"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    new = session_of(root, 0, [file])
    record = read_record(append(store, new, NOW).entry)
    assert (record.verdict, len(record.runs), record.metrics) == (new.verdict.value, 1, 0)
    assert new.verdict is not Verdict.PASS
    with pytest.raises(UserError, match="has no metric of local yet"):
        history(store, system="local")


def test_texts_that_no_file_can_hold_are_stored_as_their_escapes(root: Path, store: Path) -> None:
    half = "\ud800"
    odd = case(name=f"T {half}", environment=half, partition=f"local:{half}", tags=(half,))
    problem = bad_finding(Verdict.FAIL, half)
    new = replace(session_of(root, 0, [result_file(root, 0)]), cases=(odd,), host=half, level=half, problems=[problem])
    record = read_record(append(store, new, NOW).entry)
    assert (record.host, record.level, record.problems[0].message) == ("\\ud800",) * 3
    row = history(store, system="local").row(0, named=True)
    assert (row["environment"], row["partition"], row["tags"]) == ("\\ud800", "\\ud800", ["\\ud800"])


# History


def test_history_is_what_was_judged(root: Path, store: Path) -> None:
    for night in (1, 0):  # in whatever order they were stored
        _, judged = add(root, store, night, runs=2)
    found = history(store, system="local")
    assert dict(found.schema) == dict(HISTORY)
    assert found.height == 2 * 2 * 2
    assert found["started"].is_sorted()
    first = found.row(0, named=True)
    metric = next(each for each in judged[0].judgements if each.name == first["metric"])
    values = metric.samples.goodput_gbps if metric.better == "higher" else metric.samples.latency_us
    assert first["started"] == FIRST_NIGHT + timedelta(minutes=1)
    assert (first["low"], first["high"]) == median_interval(values)
    centre = float(np.median(values))
    assert first["deviation"] == pytest.approx(1.4826 * float(np.median(np.abs(values - centre))), rel=1e-4)
    assert (first["value"], first["count"]) == (centre, len(values))
    assert first["session"] == "00000000-0000-4000-8000-000000000000"
    assert (first["partition"], first["environment"], first["system"]) == ("default", "openmpi", "local")
    assert (first["unit"], first["better"], first["verdict"]) == (metric.unit, metric.better, metric.verdict.value)
    assert (first["nodes"], first["components"]) == (["nid001"], ["nid001"])
    assert first["tags"] == ["acceptance", "nightly"]
    assert json.loads(first["software"])["suite"] == "0123abcd"
    assert json.loads(first["tuning"])["profile"] == "default"


@pytest.mark.parametrize(
    ("changes", "problems", "expected"),
    [
        ({}, (), {"PASS"}),
        # the wrong transport: ReFrame's check refused it, though its numbers are fine
        ({"result": "fail", "phase": "sanity", "judged": CheckJudgement(Verdict.INVALID)}, (), {"INVALID"}),
        ({"result": "fail", "phase": "run", "reason": None, "folder": None}, (), {"INCOMPLETE"}),
        # the check saw a slow metric that is none by the files of now
        ({"result": "fail", "phase": "performance", "judged": CheckJudgement(Verdict.DEGRADED)}, (), {"DEGRADED"}),
    ],
)
def test_what_concerns_a_run_concerns_each_of_its_metrics(
    root: Path, store: Path, changes: dict[str, Any], problems: tuple[Finding, ...], expected: set[str]
) -> None:
    file = result_file(root, 0)
    append(store, session_of(root, 0, [file], cases=[case(**changes)]), NOW)
    assert set(history(store, system="local")["verdict"]) == expected


def test_a_slow_metric_does_not_blame_the_others(root: Path, store: Path) -> None:
    def slow(lines: list[Line]) -> None:
        line = max((each for each in lines if "times_ns" in each), key=lambda each: int(each["bytes"]))
        line["times_ns"] = [1000 * time for time in line["times_ns"]]

    failed = case(result="fail", phase="performance", judged=CheckJudgement(Verdict.FAIL))
    new = session_of(root, 0, [result_file(root, 0, change=slow)], cases=[failed])
    append(store, new, NOW)
    assert sorted(history(store, system="local")["verdict"]) == ["FAIL", "PASS"]


def test_what_nothing_could_judge_was_measured_all_the_same(root: Path, store: Path) -> None:
    unjudged = case(result="fail", phase="performance", judged=CheckJudgement(Verdict.INCOMPLETE))
    new = session_of(root, 0, [result_file(root, 0)], cases=[unjudged])
    judged = judge_run(new.judged[0].run, lambda *_: NO_EXPECTATION, {})
    assert judged.verdict is Verdict.INCOMPLETE
    append(store, replace(new, judged=[judged]), NOW)
    found = history(store, system="local")
    assert set(found["verdict"]) == {UNJUDGED}
    assert check_history(found, now=NOW).height == found.height  # calibrate takes them
    assert unjudged.trusts_its_run
    assert not case(result="fail", phase="sanity", judged=CheckJudgement(Verdict.INCOMPLETE)).trusts_its_run


def test_repetitions_are_runs_of_one_test(root: Path, store: Path) -> None:
    files = [result_file(root, 0, number) for number in range(2)]
    cases = [case(name=f"PingPong %transport=mpi %.repeat_no={number}") for number in range(2)]
    append(store, session_of(root, 0, files, cases=cases), NOW)
    assert set(history(store, system="local")["test"]) == {"PingPong %transport=mpi"}


# What is refused


def test_the_same_session_twice(root: Path, store: Path) -> None:
    entry, _ = add(root, store, 0)
    before = {file.name: file.read_bytes() for file in entry.path.iterdir()}
    with pytest.raises(UserError) as error:
        add(root, store, 0)
    assert "is stored already" in only_line(error)
    assert {file.name: file.read_bytes() for file in entry.path.iterdir()} == before


def test_a_run_of_another_session(root: Path, store: Path) -> None:
    add(root, store, 0)
    file = result_file(root, 0)
    with pytest.raises(UserError) as error:
        append(store, session_of(root, 5, [file]), NOW)
    assert "run 00000000000000000000000000000000 is stored already, in" in only_line(error)
    assert len(entries_of(store, "local")) == 1


def test_a_run_twice_in_a_session(root: Path, store: Path) -> None:
    file = result_file(root, 0)
    with pytest.raises(UserError, match=r"has run 0{32} twice: nothing was stored"):
        append(store, session_of(root, 0, [file, file]), NOW)


def test_a_run_that_two_writers_stored_at_once(root: Path, store: Path) -> None:
    entry, _ = add(root, store, 0)
    new = session_of(root, 0, [result_file(root, 0)], session="other")
    append(store.with_name("elsewhere"), new, NOW)
    copy = f"{entry.started}-other"
    (store.with_name("elsewhere") / "local" / copy).rename(store / "local" / copy)
    with pytest.raises(UserError) as error:
        history(store, system="local")
    assert "run 00000000000000000000000000000000 is in" in only_line(error)
    assert verify(store).damage == (str(error.value),)
    said: list[str] = []
    assert history(store, system="local", say=said.append).height == 2
    assert said == [str(error.value)]


def test_another_systems_data(root: Path, store: Path) -> None:
    file = result_file(root, 0)
    with pytest.raises(UserError, match="is a run of another system than local"):
        append(store, session_of(root, 0, [file], cases=[case("hgx-h200")]), NOW)
    assert not store.exists()
    add(root, store, 0)
    with pytest.raises(UserError, match="has no runs of the system 'lumi', only of local"):
        history(store, system="lumi")
    (store / "local").rename(store / "hgx-h200")
    with pytest.raises(UserError, match="has data of the system 'local' and is in the folder of another system"):
        history(store, system="hgx-h200")


def test_clocks_that_are_wrong(root: Path, store: Path) -> None:
    add(root, store, 0)
    new = session_of(root, 1, [result_file(root, 1)])
    with pytest.raises(UserError, match=r"the clock went backwards: it is 2026-11-30T00:00:00Z and .* was stored at"):
        append(store, new, NOW - timedelta(days=1))
    with pytest.raises(UserError, match=r"began at 2026-09-02T02:01:00Z and it is 2026-09-02T01:00:00Z: wrong clock"):
        append(store.with_name("another"), new, FIRST_NIGHT + timedelta(hours=23))
    with pytest.raises(UserError, match="before it began"):
        append(store, replace(new, ended=new.started - timedelta(hours=1)), NOW)
    assert len(entries_of(store, "local")) == 1
    append(store, new, NOW - timedelta(seconds=30))  # clocks of two machines are never the same


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a b", "x" * 200])
def test_names_that_are_no_folders(root: Path, store: Path, name: str) -> None:
    with pytest.raises(UserError, match="cannot be the name of a session"):
        append(store, session_of(root, 0, [result_file(root, 0)], session=name), NOW)
    assert not store.exists()


def test_no_store_a_foreign_one_and_an_empty_one(root: Path, store: Path) -> None:
    def reading() -> str:
        with pytest.raises(UserError) as error:
            history(store, system="local")
        return only_line(error)

    assert "there is no store at" in reading()
    store.mkdir()
    assert "is not a store of Fabricheck" in reading()
    (store / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match=r"is not a store, and holds 'thesis\.tex'"):
        add(root, store, 0)
    assert [each.name for each in store.iterdir()] == ["thesis.tex"]
    (store / "thesis.tex").unlink()
    folders.create(store)
    assert "has no runs of the system 'local'" in reading()
    (store / folders.MARKER).write_text('{"fabricheck-store": 3}')
    assert "has the format 3 and this version reads 2" in reading()
    store.rename(store.with_name("gone"))
    store.write_text("a file")
    assert "is not a store of Fabricheck" in reading()


def test_files_that_do_not_belong_there(root: Path, store: Path) -> None:
    entry, _ = add(root, store, 0)
    strangers = [place / "copy of results.xlsx" for place in (store, store / "local", entry.path)]
    for stranger in strangers:
        stranger.touch()
        with pytest.raises(UserError) as error:
            history(store, system="local")
        assert f"{stranger}: does not belong in a store" in only_line(error)
        (line,) = verify(store).damage
        assert line == str(error.value)
        stranger.unlink()
    (store / "local" / ".writing-0123").mkdir()
    (entry.path / ".nfs0123").touch()
    assert history(store, system="local").height == 2
    assert (verify(store).damage, len(verify(store).remarks)) == ((), 1)


# Damage


def damage_of(store: Path, entry: SessionFolder) -> str:
    """The one line that `verify` and `history` have of a damaged entry."""
    (line,) = verify(store).damage
    assert str(entry.path) in line and "\n" not in line
    said: list[str] = []
    history(store, system="local", say=said.append)
    assert said == [line]
    return line


@settings(max_examples=effort(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from([*FILES, SUMS]),
    place=st.floats(0, 1, exclude_max=True),
    bit=st.integers(0, 7) | st.none(),
)
def test_a_single_bit_or_an_end_that_is_missing(
    root: Path, store: Path, name: str, place: float, bit: int | None
) -> None:
    if not store.exists():
        add(root, store, 0)
        add(root, store, 1)
    entry = entries_of(store, "local")[0]
    file = entry.path / name
    content = file.read_bytes()
    position = int(place * (len(content) - 1))  # the newline at the end of the list of checksums says nothing
    changed = bytearray(content)
    if bit is not None:
        changed[position] ^= 1 << bit
    file.write_bytes(bytes(changed) if bit is not None else content[:position])
    try:
        assert damage_of(store, entry)
    finally:
        file.write_bytes(content)
    assert verify(store).damage == ()


@pytest.mark.parametrize("name", [*FILES, SUMS])
def test_a_file_that_is_gone(root: Path, store: Path, name: str) -> None:
    entry, _ = add(root, store, 0)
    add(root, store, 1)
    (entry.path / name).unlink()
    assert f"{name} is missing" in damage_of(store, entry)
    # A new session is not lost for it.
    assert bool(append(store, session_of(root, 2, [result_file(root, 2)]), NOW).remarks) is (name != METRICS)
    assert history(store, system="local", say=lambda _: None)["session"].n_unique() == 2


def test_a_damaged_table_is_not_given_to_the_reader_of_parquet(
    root: Path, store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    entry, _ = add(root, store, 0)
    whole = (entry.path / METRICS).read_bytes()
    for place in range(len(whole) - 1500, len(whole)):  # where Parquet says what is in the file
        (entry.path / METRICS).write_bytes(whole[:place] + bytes([whole[place] ^ 0x11]) + whole[place + 1 :])
        assert count_values(store, "local") == 2
        with pytest.raises(UserError, match="its checksum differs"):
            history(store, system="local")
    assert capfd.readouterr().err == ""  # it panics, with pages of a trace


# Files whose checksums are right, and whose values nobody measured


def forge(entry: SessionFolder, name: str, content: bytes) -> None:
    """Change a file and its checksum with it."""
    (entry.path / name).write_bytes(content)
    sums = "".join(f"{hashlib.sha256((entry.path / file).read_bytes()).hexdigest()}  {file}\n" for file in FILES)
    (entry.path / SUMS).write_text(sums)


#: By column, values of its type that `append` never writes.
ODD: dict[str, tuple[object, ...]] = {
    **{name: (None,) for name in SCHEMA if name not in ("reason", "deviation")},
    "verdict": (None, "FINE"),
    "better": (None, "faster"),
    "system": (None, "lumi"),
    "session": (None, "s"),
    "run_id": (None, "0"),
    "started": (None, datetime(1, 1, 1, tzinfo=timezone.utc)),
    **{name: (None, [None], ["a", None]) for name in ("nodes", "components", "tags")},
    **{name: (None, "{", "[]", '{"nccl": 2}', "[" * 99_999) for name in ("software", "tuning")},
}


def test_values_that_nobody_measured(root: Path, store: Path) -> None:
    entry, _ = add(root, store, 0)
    add(root, store, 1)
    table = pl.read_parquet(entry.path / METRICS)
    for column, value in [(name, value) for name, values in ODD.items() for value in values]:
        rows = table.rows(named=True)
        rows[0][column] = value
        forge(entry, METRICS, to_parquet(pl.DataFrame(rows, schema=dict(SCHEMA))))
        assert METRICS in damage_of(store, entry), (column, value)


def test_columns_that_are_gone_or_of_another_type(root: Path, store: Path) -> None:
    entry, _ = add(root, store, 0)
    add(root, store, 1)
    table = pl.read_parquet(entry.path / METRICS)
    for column in HISTORY.keys() & SCHEMA.keys():
        for changed in (table.drop(column), table.with_columns(pl.lit(True).alias(column))):
            forge(entry, METRICS, to_parquet(changed))
            assert column in damage_of(store, entry)


def test_files_of_another_entry_with_right_checksums(root: Path, store: Path) -> None:
    entry, _ = add(root, store, 0)
    other, _ = add(root, store, 1, runs=2)
    originals = {name: (entry.path / name).read_bytes() for name in FILES}
    for name in FILES:
        for content in ((other.path / name).read_bytes(), b"{}", b"[", b"PAR1 is how a Parquet file begins, and PAR1"):
            forge(entry, name, content)
            assert damage_of(store, entry)
        forge(entry, name, originals[name])
    fewer = pl.read_parquet(entry.path / METRICS).head(1)
    forge(entry, METRICS, to_parquet(fewer))
    assert damage_of(store, entry)


# Stores of format 1


def test_a_store_of_format_1_is_read_and_goes_on_as_one_of_today(root: Path, tmp_path: Path) -> None:
    with tarfile.open(RESULTS) as archive:
        archive.extractall(tmp_path, filter="data")
    store = tmp_path / "store"
    assert json.loads((store / folders.MARKER).read_text()) == {"fabricheck-store": 1}
    found, tables = history(store, system=SYSTEM), pl.read_parquet(store / SYSTEM / "2*" / METRICS)
    columns = [name for name in HISTORY if name != "rehearsal"]
    assert found.select(columns).sort("run_id", "metric").equals(tables.select(columns).sort("run_id", "metric"))
    assert (verify(store).metrics, verify(store).damage) == (found.height, ())
    # Nothing reads the other files of its entries, whatever they hold.
    first, second = entries_of(store, SYSTEM)[:2]
    for name in OLD_FILES:
        (first.path / name).unlink(missing_ok=True)
        (second.path / name).write_bytes(b"x")
    assert history(store, system=SYSTEM).equals(found)
    add(root, store, 0)
    assert json.loads((store / folders.MARKER).read_text()) == {"fabricheck-store": FORMAT}
    assert history(store, system=SYSTEM).equals(found)


def test_a_session_without_a_single_run_is_stored(root: Path, store: Path) -> None:
    problems = [bad_finding(Verdict.INCOMPLETE, "no measurement ran")]
    new = session_of(root, 0, [result_file(root, 0)])
    entry = append(store, replace(new, cases=(), judged=(), problems=problems, verdict=Verdict.INCOMPLETE), NOW).entry
    record = read_record(entry)
    assert (record.verdict, record.runs, record.metrics) == ("INCOMPLETE", [], 0)
    assert record.problems[0].message == "no measurement ran"
    assert verify(store).damage == ()


def test_findings_are_kept_beside_problems(root: Path, store: Path) -> None:
    entry, _ = add(root, store, 0, problems=[bad_finding(Verdict.FAIL, "a part is slow")], findings=[note("it scales")])
    record = read_record(entry)
    assert [(each.verdict, each.message) for each in record.problems] == [("FAIL", "a part is slow")]
    assert [each.message for each in record.findings] == ["it scales"]
