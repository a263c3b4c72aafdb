"""What was stored comes back as it was, and what should not be in a store is refused."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabricheck.errors import UserError
from fabricheck.history import folders, store_tables
from fabricheck.history.folders import FILES, METRICS, SAMPLES, SESSION, SUMS
from fabricheck.history.reading import entries_of, history, stored_runs
from fabricheck.history.series import check_history
from fabricheck.history.session import read_record
from fabricheck.history.values import UNJUDGED
from fabricheck.history.writing import append
from fabricheck.judge.judge import NO_EXPECTATION, judge_run
from fabricheck.judge.statistics import median_interval
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.case import CheckJudgement
from fabricheck.records.finding import Finding
from fabricheck.records.run import Run, Samples
from fabricheck.records.verdict import Verdict
from tests.support.effort import effort
from tests.support.findings import bad_finding, note
from tests.support.result_files import CUDA, HOST, Line
from tests.support.sessions import FIRST_NIGHT, NOW, add, case, result_file, session_of


def assert_same(a: Run, b: Run) -> None:
    for each in fields(Run):
        if each.name != "samples":
            assert getattr(a, each.name) == getattr(b, each.name), each.name
    assert len(a.samples) == len(b.samples)
    for one, other in zip(a.samples, b.samples, strict=True):
        for each in fields(Samples):
            if each.name != "times_ns":
                assert getattr(one, each.name) == getattr(other, each.name)
                assert type(getattr(one, each.name)) is type(getattr(other, each.name))
        assert one.times_ns.dtype == other.times_ns.dtype == np.int64
        assert one.times_ns.tolist() == other.times_ns.tolist()
        assert not other.times_ns.flags.writeable


def only_line(error: pytest.ExceptionInfo[UserError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


# The way there and back


def test_runs_come_back_exactly(root: Path, store: Path) -> None:
    entry, judged = add(root, store, 0, runs=3)
    found = list(stored_runs(entry))
    assert len(found) == 3
    for before, after in zip(judged, found, strict=True):
        assert_same(before.run, after.run)
        assert after.judgement == store_tables.judgement_bytes(before)
        assert after.run_id == before.run.header["run_id"]
        assert after.case == case(judged=CheckJudgement(Verdict.PASS))


def cut(lines: list[Line]) -> None:
    lines[1]["wrong_bytes"] = 3


@pytest.mark.parametrize("text", ["", "not JSON", '{"record":"header"}', "\ud800".encode("utf-8", "surrogatepass")])
def test_files_that_cannot_be_judged_come_back_too(root: Path, store: Path, text: str | bytes) -> None:
    file = root / "broken.jsonl"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    new = session_of(root, 0, [file])
    assert new.verdict is not Verdict.PASS
    entry = append(store, new, NOW).entry
    (found,) = stored_runs(entry)
    assert_same(new.judged[0].run, found.run)
    assert found.judgement == store_tables.judgement_bytes(new.judged[0])
    with pytest.raises(UserError, match="has no metric of local yet"):
        history(store, system="local")


def test_texts_that_no_file_can_hold_are_stored_as_their_escapes(root: Path, store: Path) -> None:
    half = "\ud800"
    odd = case(name=f"T {half}", environment=half, partition=f"local:{half}", result=half, phase=half, tags=(half,))
    new = replace(session_of(root, 0, [result_file(root, 0)]), cases=(odd,))
    (found,) = stored_runs(append(store, new, NOW).entry)
    assert (found.case.result, found.case.phase, found.case.tags) == ("\\ud800",) * 2 + (("\\ud800",),)


def test_a_run_with_wrong_bytes_and_gpus_comes_back(root: Path, store: Path) -> None:
    file = result_file(root, 0, source=CUDA, change=cut)
    new = session_of(root, 0, [file], system="hgx-h200")
    (found,) = stored_runs(append(store, new, NOW).entry)
    assert_same(new.judged[0].run, found.run)
    assert found.run.ranks[3].device is not None


_text = st.text(max_size=20) | st.just("\ud800")
_int64 = st.integers(1, (1 << 63) - 1)


@settings(max_examples=effort(60), deadline=None)
@given(
    header=st.sampled_from([{}, json.loads(HOST.read_text().splitlines()[0])]),
    lines=st.lists(
        st.tuples(st.lists(_int64, min_size=1, max_size=5), _int64, st.lists(st.integers(0, 9), min_size=2)),
        max_size=4,
    ),
    problems=st.lists(
        st.tuples(st.sampled_from([*Verdict][1:]), _text), min_size=1, max_size=2
    ),  # nobody knows its ranks
    path=_text,
)
def test_any_run_comes_back(
    header: dict[str, Any],
    lines: list[tuple[list[int], int, list[int]]],
    problems: list[tuple[Verdict, str]],
    path: str,
) -> None:
    samples = tuple(
        Samples(
            *("pingpong", "transfers", "contended", 2, tuple(ranks), size, 1, "fixed", -1, np.array(times)),
            kept_of=size % 3,
            rank_error=size / 7 if size % 3 else 0.0,
        )
        for times, size, ranks in lines
    )
    run = Run(path, header, (), samples, None, tuple(bad_finding(*each) for each in problems))
    judged = RunJudgement(run, Verdict.INVALID, run.problems, ())
    measured = [store_tables.JudgedCase(case(), judged, "{}", "{}")]
    table = store_tables.runs_table(measured, "s", FIRST_NIGHT)
    runs = store_tables.from_parquet(store_tables.to_parquet(table), store_tables.RUNS)
    kept = store_tables.from_parquet(
        store_tables.to_parquet(store_tables.samples_table(measured)), store_tables.SAMPLES
    )
    (found,) = store_tables.stored_runs(runs, kept)
    assert_same(run, found.run)


# History


def test_history_is_what_was_judged(root: Path, store: Path) -> None:
    for night in (1, 0):  # in whatever order they were stored
        _, judged = add(root, store, night, runs=2)
    found = history(store, system="local")
    assert dict(found.schema) == dict(store_tables.HISTORY)
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


@pytest.mark.parametrize("verdict", [Verdict.DEGRADED, Verdict.INVALID, Verdict.INCOMPLETE])
def test_a_run_that_was_stored_before_checks_left_judgements_is_what_its_reason_says(
    root: Path, verdict: Verdict
) -> None:
    words = f"performance error: {verdict.value}: it is slow"
    failed = case(result="fail", phase="sanity", reason=words, judged=CheckJudgement(verdict))
    (judged,) = session_of(root, 0, [result_file(root, 0)], cases=[failed]).judged
    measured = [store_tables.JudgedCase(failed, judged, "{}", "{}")]
    now, kept = store_tables.runs_table(measured, "s", FIRST_NIGHT), store_tables.samples_table(measured)
    before = now.with_columns(attributes=pl.lit(json.dumps(dict(failed.attributes))))
    for table in (now, before):
        (found,) = store_tables.stored_runs(table, kept)
        assert found.case.verdict is verdict
        assert found.case.trusts_its_run is (verdict is Verdict.DEGRADED)
        assert found.case.attributes == failed.attributes


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
    assert check_history(found, "local", now=NOW).height == found.height  # calibrate takes them
    assert unjudged.trusts_its_run
    assert not case(result="fail", phase="sanity", judged=CheckJudgement(Verdict.INCOMPLETE)).trusts_its_run


def test_repetitions_are_runs_of_one_test(root: Path, store: Path) -> None:
    files = [result_file(root, 0, number) for number in range(2)]
    cases = [case(name=f"PingPong %transport=mpi %.repeat_no={number}") for number in range(2)]
    append(store, session_of(root, 0, files, cases=cases), NOW)
    assert set(history(store, system="local")["test"]) == {"PingPong %transport=mpi"}


def test_tables_are_readable_without_this_program(root: Path, store: Path) -> None:
    for night in range(3):
        add(root, store, night)
    table = pl.read_parquet(store / "local" / "2*" / METRICS)
    assert table["session"].n_unique() == 3
    record = json.loads((entries_of(store, "local")[0].path / SESSION).read_text())
    assert record["system"] == "local"


def test_no_time_zone_data_is_needed_to_store_and_read(
    root: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zoneinfo

    monkeypatch.setattr(zoneinfo, "ZoneInfo", None)
    add(root, store, 0)
    assert history(store, system="local").height == 2


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
    (store.with_name("elsewhere") / "local" / f"{entry.started}-other").rename(
        store / "local" / f"{entry.started}-other"
    )
    with pytest.raises(UserError) as error:
        history(store, system="local")
    assert "appears twice, in sessions 00000000-0000-4000-8000-000000000000 and other" in only_line(error)


def test_another_systems_data(root: Path, store: Path) -> None:
    file = result_file(root, 0)
    with pytest.raises(UserError, match="is a run of another system than local"):
        append(store, session_of(root, 0, [file], cases=[case("hgx-h200")]), NOW)
    assert not store.exists()
    add(root, store, 0)
    with pytest.raises(UserError, match="has no runs of the system 'lumi', only of local"):
        history(store, system="lumi")
    (store / "local").rename(store / "hgx-h200")
    with pytest.raises(UserError, match=r"holds metrics of session .* of local"):
        history(store, system="hgx-h200")
    with pytest.raises(UserError, match="has data of the system 'local' and is in the folder of another system"):
        read_record(entries_of(store, "hgx-h200")[0])


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
    (store / folders.MARKER).write_text('{"fabricheck-store": 2}')
    assert "has the format 2 and this version reads 1" in reading()
    store.rename(store.with_name("gone"))
    store.write_text("a file")
    assert "is not a store of Fabricheck" in reading()


def test_files_that_do_not_belong_there(root: Path, store: Path) -> None:
    entry, _ = add(root, store, 0)
    for place in (store, store / "local", entry.path):
        stranger = place / "copy of results.xlsx"
        stranger.touch()
        with pytest.raises(UserError) as error:
            history(store, system="local")
        assert f"{stranger}: does not belong in a store" in only_line(error)
        stranger.unlink()
    (store / "local" / ".writing-0123").mkdir()
    (entry.path / ".nfs0123").touch()
    assert history(store, system="local").height == 2


@pytest.mark.parametrize("name", [METRICS, SUMS])
@pytest.mark.parametrize("damage", ["cut", "empty", "missing", "another", "flipped"])
def test_damage_is_refused(root: Path, store: Path, name: str, damage: str) -> None:
    entry, _ = add(root, store, 0)
    other, _ = add(root, store, 1)
    file = entry.path / name
    content = file.read_bytes()
    place = content.find(METRICS.encode()) - 10 if name == SUMS else 20  # the checksum that is compared
    other_byte = ord("1" if content[place] == ord("0") else "0")  # of a checksum another digit
    flipped = bytes([*content[:place], other_byte, *content[place + 1 :]])
    changed = {"cut": content[:-1], "empty": b"", "another": (other.path / name).read_bytes(), "flipped": flipped}
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(changed[damage])
    if (name, damage) == (SUMS, "cut"):  # the last newline of a list of lines says nothing
        file.write_bytes(content[:-2])
    with pytest.raises(UserError) as error:
        history(store, system="local")
    assert str(entry.path) in only_line(error)
    # A new session is not lost for it, and the damage is named.
    new = session_of(root, 2, [result_file(root, 2)])
    appended = append(store, new, NOW)
    assert appended.entry.path.exists()
    assert bool(appended.remarks) == (name == SUMS and damage != "flipped")


def test_samples_that_are_gone_are_said_to_be(root: Path, store: Path) -> None:
    entry, _ = add(root, store, 0)
    (entry.path / SAMPLES).unlink()
    with pytest.raises(UserError, match=r"samples\.parquet is missing"):
        list(stored_runs(entry))
    assert history(store, system="local").height == 2
    assert set(FILES) > {each.name for each in entry.path.iterdir()} - {SUMS}


def test_a_session_without_a_single_run_is_stored(root: Path, store: Path) -> None:
    problems = [bad_finding(Verdict.INCOMPLETE, "no measurement ran")]
    new = session_of(root, 0, [result_file(root, 0)])
    entry = append(store, replace(new, cases=(), judged=(), problems=problems, verdict=Verdict.INCOMPLETE), NOW).entry
    record = read_record(entry)
    assert (record.verdict, record.runs, record.metrics) == ("INCOMPLETE", [], 0)
    assert record.problems[0].message == "no measurement ran"
    assert list(stored_runs(entry)) == []


def test_findings_are_kept_beside_problems(root: Path, store: Path) -> None:
    entry, _ = add(root, store, 0, problems=[bad_finding(Verdict.FAIL, "a part is slow")], findings=[note("it scales")])
    record = read_record(entry)
    assert [(each.verdict, each.message) for each in record.problems] == [("FAIL", "a part is slow")]
    assert [each.message for each in record.findings] == ["it scales"]


def test_a_session_of_format_1_is_read(root: Path, store: Path) -> None:
    """It had findings among the problems, as PASS."""
    entry, _ = add(root, store, 0)
    content = json.loads((entry.path / SESSION).read_text())
    assert content.pop("findings") == []
    content["format"] = 1
    content["problems"] = [
        {"verdict": "PASS", "message": "it scales"},
        {"verdict": "FAIL", "message": "a part is slow"},
    ]
    record = read_record(entry, json.dumps(content).encode())
    assert [(each.verdict, each.message) for each in record.problems] == [("FAIL", "a part is slow")]
    assert [each.message for each in record.findings] == ["it scales"]


def test_times_are_in_utc(root: Path, store: Path) -> None:
    add(root, store, 0)
    assert history(store, system="local").schema["started"] == pl.Datetime("us", "UTC")
