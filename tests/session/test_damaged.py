"""Generated damage over all files that an earlier run or the store has: one line, and everything else goes on."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fabricheck.commands.run import _judge_abandoned
from fabricheck.errors import UserError
from fabricheck.fleet.record import ENDED, EXCLUDED, FOLDER, Fleet, did_not_start
from fabricheck.records.node_state import NodeState
from fabricheck.results.check_judgement import write_judgement
from fabricheck.session.abandoned import RUN, Started, read_abandoned
from fabricheck.session.outcome import judge_session
from fabricheck.session.run_folders import REPORT, VERDICT
from fabricheck.statistics.constants import FORMAT
from fabricheck.store.folders import MARKER
from fabricheck.store.reading import history
from fabricheck.suite import Suite
from tests.fuzz.damage import damaged
from tests.support.effort import effort
from tests.support.sessions import NOW, add, make_suite, reframe_report, result_file
from tests.support.states import node

#: Damaged files of each kind: more of them, which take a tenth of a second each, by the environment.
CASES = effort(100)
#: In place of a value: other types, what is no number, times without a zone, and what is too large for any measurement.
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 7.5, float("nan"), float("inf"), 10**400, "", "x", "\ud800", "x" * 70000, [], {}, [None]),
    *("2026-11-20T00:00:00", "2026-99-99", "yesterday", ["x"], {"x": 1}, "../../x", "--name=all", "9" * 400),
)


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    """All containers in a JSON value, each with one of its keys."""
    for key in content if isinstance(content, dict) else range(len(content)) if isinstance(content, list) else ():
        yield content, key
        yield from places(content[key])


def odd_json(draw: random.Random, content: bytes) -> bytes:
    """One value of a JSON file, or of one of its lines, is missing or another."""
    lines = content.decode().splitlines() if content.count(b"\n{") else [content.decode()]
    number = draw.randrange(len(lines))
    value = json.loads(lines[number])
    if not (known := list(places(value))):
        return content
    container, key = draw.choice(known)
    if draw.random() < 0.3:
        container.pop(key)
    else:
        container[key] = draw.choice(ODD)
    lines[number] = json.dumps(value)
    return "\n".join(lines).encode()


def damage(folder: Path, seed: str) -> Path:
    """Damages one file below a folder; which one, and how, comes from the seed."""
    draw = random.Random(seed)
    file = draw.choice(sorted(each for each in folder.rglob("*") if each.is_file()))
    content = file.read_bytes()
    how = draw.random()
    if how < 0.5 and file.suffix in (".json", ".jsonl"):
        file.write_bytes(odd_json(draw, content))
    elif how < 0.6:
        file.unlink()
    else:
        file.write_bytes(next(damaged(seed, [(file, content)]))[1])
    return file


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return Suite(make_suite(tmp_path_factory.mktemp("suite") / "suite"))


def left_by_a_run(folder: Path, name: str = "local-20261120T030000Z") -> Path:
    """All kinds of files that a run leaves, which ended before it was judged."""
    run = folder / "runs" / name
    test = run / "output" / "local" / "default" / "openmpi" / "PingPong_0a1b2c3d"
    result_file(test, 1).rename(test / "result.jsonl")
    state: NodeState = node("vm")
    (test / "node-state").mkdir()
    (test / "node-state" / "vm.before.json").write_text(json.dumps(asdict(state)))
    write_judgement(test, [did_not_start("vm", "it is slow")])
    (run / RUN).write_text(json.dumps(asdict(Started.now("local", 1, {"tags": ["nightly"]}))))
    (run / REPORT).write_text(reframe_report(run, test))
    launched = {"case": "PingPong", "said": ["PASS"], "counts": "PASS", "folder": "", "node": "", "p": 0.5}
    (run / "launches.json").write_text(json.dumps([launched]))
    fleet = Fleet(run / FOLDER, "local", "default", "all", "", ("vm",), {"vm2": "down"}, began=NOW.isoformat())
    fleet.folder.mkdir()
    fleet.write()
    (fleet.folder / EXCLUDED).write_text(json.dumps(did_not_start("vm", "MPI does not start").as_json()) + "\n")
    (fleet.folder / ENDED).write_text("no time was left")
    return run


def test_what_an_earlier_run_left_is_read_or_refused(tmp_path: Path, suite: Suite) -> None:
    whole = left_by_a_run(tmp_path / "whole")
    assert judge_session(read_abandoned(whole), suite, "local").judged
    for number in range(CASES):
        run = tmp_path / "runs" / whole.name
        shutil.copytree(whole, run)
        file = damage(run, f"run {number}")
        try:
            judge_session(read_abandoned(run), suite, "local")
        except UserError as error:
            assert len(str(error).splitlines()) == 1
        except Exception as error:
            raise AssertionError(f"{number}: {file}: {type(error).__name__}: {error}") from error
        shutil.rmtree(run)


@pytest.mark.parametrize("started", ["2026-11-20T00:00:00", 7, None])
def test_a_damaged_run_stops_neither_the_others_nor_this_one(
    tmp_path: Path, suite: Suite, capsys: pytest.CaptureFixture[str], started: object
) -> None:
    bad, good = left_by_a_run(tmp_path), left_by_a_run(tmp_path, "local-20261121T030000Z")
    (bad / RUN).write_text(json.dumps({**json.loads((bad / RUN).read_text()), "started": started}))
    _judge_abandoned(suite, "local", tmp_path, tmp_path / "store")
    assert not (bad / RUN).exists() and (good / VERDICT).exists()
    said = capsys.readouterr().err.splitlines()
    assert sum(str(bad) in line for line in said) == 1
    _judge_abandoned(suite, "local", tmp_path, tmp_path / "store")
    assert capsys.readouterr().err == ""


def test_a_mistake_of_our_own_in_an_earlier_run_does_not_stop_this_one(
    tmp_path: Path, suite: Suite, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = left_by_a_run(tmp_path)
    monkeypatch.setattr("fabricheck.session.abandoned.read_abandoned", lambda _: 1 // 0)
    _judge_abandoned(suite, "local", tmp_path, None)
    assert not (bad / RUN).exists()
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("content", ["", "{", "[]", '{"fabricheck-store": null}', "\x00\x00"])
def test_a_damaged_marker_is_written_again(tmp_path: Path, suite: Suite, content: str) -> None:
    store = tmp_path / "store"
    add(suite.root, store, 0)
    (store / MARKER).write_text(content)
    assert history(store, system="local").height > 0
    add(suite.root, store, 1)
    assert json.loads((store / MARKER).read_text()) == {"fabricheck-store": FORMAT}
    assert len(set(history(store, system="local")["session"])) == 2
