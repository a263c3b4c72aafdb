"""Stored runs judged again: bit by bit the same while nothing changed, and every change said."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.history import store_tables
from fabricheck.history.reading import stored_runs
from fabricheck.history.replay import ReplayedSession, replay
from fabricheck.history.writing import append
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.results.fabricbench import read_run
from fabricheck.results.node_state import FOLDER
from tests.support.burn_ins import burn_in_lines, windows_of, write_burn_in
from tests.support.result_files import CUDA, Line
from tests.support.sessions import NOW, add, case, result_file, session_of
from tests.support.states import gpu, node

REFERENCES = """
$sources:
  run1: {kind: vendor, source: made up}
$provenance: {PingPong: run1}
PingPong:
  $index: [transport]
  mpi:
    pingpong_uncontended_0_1_1mib_goodput: [GOODPUT, -0.05, 0.05, Gb/s]
"""


def references(file: Path, goodput: float) -> Path:
    file.write_text(REFERENCES.replace("GOODPUT", str(goodput)))
    return file


def goodput_of(judged: RunJudgement) -> float:
    return next(each.value for each in judged.judgements if each.name == "pingpong_uncontended_0_1_1mib_goodput")


def changes_of(sessions: list[ReplayedSession]) -> list[tuple[str, str, str]]:
    return [
        (change.metric, change.before, change.after)
        for session in sessions
        for run in session.runs
        for change in run.changes
    ]


def cut(lines: list[Line]) -> None:
    lines[1]["wrong_bytes"] = 3


def test_what_nodes_said_is_kept_with_the_run(root: Path, store: Path) -> None:
    file = result_file(root / "asked", 0, source=CUDA)
    ranks = read_run(file).ranks
    assert ranks[0].device is not None
    hot = gpu(0, bus_id=ranks[0].device.bus_id[-12:], throttle=("hw_thermal_slowdown",))
    (file.parent / FOLDER).mkdir()
    for when in ("before", "after"):
        state = node(ranks[0].host, when, gpus=(hot,))
        (file.parent / FOLDER / f"{when}.json").write_text(json.dumps(dataclasses.asdict(state)))
    new = session_of(root, 0, [file], system="hgx-h200")
    (judged,) = new.judged
    assert any("GPU 0: is throttled: hardware thermal slowdown" in each.message for each in judged.problems)
    entry = append(store, new, NOW).entry
    (stored,) = stored_runs(entry)
    assert stored.run.states == judged.run.states
    assert stored.run.states.after[ranks[0].host].gpus == (hot,)
    (done,) = replay(store, root, system="hgx-h200")
    assert not done.changed


def test_what_a_burn_in_showed_is_kept_without_its_windows(root: Path, store: Path) -> None:
    lines = burn_in_lines(together=20)
    windows_of(lines)[7]["products"]["wrong_words"][1] = 1
    root.joinpath("load").mkdir()
    new = session_of(root, 0, [write_burn_in(root / "load", lines)], system="hgx-h200")
    append(store, new, NOW)
    (entry,) = replay(store, root, system="hgx-h200")
    assert not entry.changed
    assert [problem.code for problem in new.judged[0].problems] == ["wrong-arithmetic"]


def test_nothing_changed_and_so_not_a_byte(root: Path, store: Path) -> None:
    _, judged = add(root, store, 0, runs=2)
    references(root / "reference_values" / "local.yaml", goodput_of(judged[0]))
    add(root, store, 1, runs=2)  # with a reference
    append(store, session_of(root, 2, [result_file(root, 2, source=CUDA, change=cut)], system="hgx-h200"), NOW)
    (root / "broken.jsonl").write_text("")
    append(store, session_of(root, 3, [root / "broken.jsonl"]), NOW)
    for night, name in ((1, "local"), (2, "hgx-h200"), (3, "local")):
        (done,) = replay(store, root, system=name, sessions=[f"{night:08d}"])
        assert (done.other, done.pruned, done.changed) == ((), False, False)
        for run, stored in zip(done.runs, stored_runs(done.entry), strict=True):
            assert run.changes == ()
            assert store_tables.judgement_bytes(run.judged) == stored.judgement == run.stored.judgement
    assert sum(len(each.runs) for each in replay(store, root)) == 6


def test_another_reference(root: Path, store: Path, tmp_path: Path) -> None:
    _, judged = add(root, store, 0)
    value = goodput_of(judged[0])
    sessions = list(replay(store, root, references=references(tmp_path / "new.yaml", 2 * value)))
    (whole, metric) = changes_of(sessions)
    assert whole == ("", "PASS", "DEGRADED")
    assert metric[0] == "pingpong_uncontended_0_1_1mib_goodput"
    assert [text.partition(":")[0] for text in metric[1:]] == ["PASS", "DEGRADED"]
    assert sessions[0].other == ("references",)
    # One that it keeps changes the reason, and that is said too.
    sessions = list(replay(store, root, references=references(tmp_path / "new.yaml", value)))
    ((name, before, after),) = changes_of(sessions)
    assert [text.partition(":")[0] for text in (before, after)] == ["PASS", "PASS"] and before != after
    assert name == "pingpong_uncontended_0_1_1mib_goodput"
    assert next(iter(stored_runs(sessions[0].entry))).judgement == store_tables.judgement_bytes(judged[0])


def test_another_policy(root: Path, store: Path, tmp_path: Path) -> None:
    add(root, store, 0)
    policy = tmp_path / "strict.yaml"
    text = (root / "config" / "policy.yaml").read_text()
    assert "limit_us: 10000\n" in text
    policy.write_text(text.replace("limit_us: 10000\n", "limit_us: 0.03\n"))
    sessions = list(replay(store, root, policy=policy))
    assert sessions[0].other == ("policy",)
    assert any(after.startswith("FAIL: ") for _, _, after in changes_of(sessions))
    # The same in the suite itself.
    (root / "config" / "policy.yaml").write_text(policy.read_text())
    again = list(replay(store, root))
    assert again[0].other == ("policy",)
    assert changes_of(again) == changes_of(sessions)


def test_another_topology_is_said_where_it_changes_no_verdict(root: Path, store: Path) -> None:
    add(root, store, 0)
    file = root / "site_configs" / "local" / "topology.yaml"
    file.write_text(file.read_text() + "# a comment\n")
    (session,) = replay(store, root)
    assert (session.other, session.changed) == (("topology",), False)


def test_a_judgement_that_was_changed_in_the_store_is_seen(root: Path, store: Path) -> None:
    from tests.history.test_upkeep import forge

    entry, judged = add(root, store, 0)
    table = store_tables.from_parquet(entry.read("runs.parquet"), store_tables.RUNS)
    text = table["judgement"][0].replace(str(judged[0].judgements[0].value), "1.5", 1)
    assert text != table["judgement"][0]
    import polars as pl

    changed = table.with_columns(pl.Series("judgement", [text]))
    forge(entry, "runs.parquet", store_tables.to_parquet(changed))
    ((name, before, after),) = changes_of(list(replay(store, root)))
    assert (name, "value 1.5" in before) == (judged[0].judgements[0].name, True)
    assert str(judged[0].judgements[0].value) in after


def test_sessions_by_id_by_its_beginning_and_not_there(root: Path, store: Path) -> None:
    for night in (10, 11, 20):
        add(root, store, night)
    assert len(list(replay(store, root, sessions=["00000020"]))) == 1
    assert len(list(replay(store, root, sessions=["00000020", "00000020-0000-4000-8000-000000000000"]))) == 1
    with pytest.raises(UserError, match="2 sessions begin with '0000001'"):
        list(replay(store, root, sessions=["0000001"]))
    with pytest.raises(UserError, match="no session '5'; the latest are 00000010-"):
        list(replay(store, root, sessions=["5"]))


def test_references_of_another_system(root: Path, store: Path) -> None:
    add(root, store, 0)
    other = references(root / "reference_values" / "hgx-h200.yaml", 100)
    with pytest.raises(UserError, match="these are the references of hgx-h200, and the runs are of local"):
        list(replay(store, root, references=other))
    append(store, session_of(root, 2, [result_file(root, 2, source=CUDA)], system="hgx-h200"), NOW)
    with pytest.raises(UserError, match="give --system"):
        list(replay(store, root, references=other))
    # They were there when it was stored.
    assert [each.other for each in replay(store, root, system="hgx-h200", references=other)] == [()]


def test_damage_is_an_error_and_pruned_sessions_are_named(root: Path, store: Path) -> None:
    from fabricheck.history.folders import remove_samples

    entry, _ = add(root, store, 0)
    other, _ = add(root, store, 1)
    remove_samples(entry, "2026-11-21T00:00:00Z")
    (first, second) = replay(store, root)
    assert (first.pruned, first.runs, second.pruned, len(second.runs)) == (True, (), False, 1)
    (other.path / "runs.parquet").write_bytes(b"")
    with pytest.raises(UserError, match=r"runs\.parquet .* was changed"):
        list(replay(store, root))


def test_attributes_choose_the_same_references_again(root: Path, store: Path) -> None:
    file = root / "reference_values" / "local.yaml"
    file.write_text(
        REFERENCES.replace("[transport]", "[$partition, ranks]")
        .replace("  mpi:", "  'local:default':\n   7:")
        .replace("    pingpong", "      pingpong")
        .replace("GOODPUT", "40")
    )
    own = case()
    attributes = {**own.attributes, "ranks": 7, "perfvalues": "{'a': 1}"}
    new = session_of(root, 0, [result_file(root, 0)], cases=[case(attributes=attributes)])
    assert any(each.reference is not None for each in new.judged[0].judgements)
    entry = append(store, new, NOW).entry
    (stored,) = stored_runs(entry)
    assert stored.case.attributes == {**own.attributes, "ranks": 7}
    assert not any(each.changed for each in replay(store, root))
