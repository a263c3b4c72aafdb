"""A share of the generated inputs of tests/fuzz/fuzz.py, and that it finds what it looks for."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click
import pytest

from fabricheck import cli
from fabricheck.topology import model
from tests.fuzz import damage, fuzz
from tests.fuzz.fuzz_targets import ROOT, Copies, Target, not_as_stored, targets
from tests.support.effort import is_full
from tests.support.result_files import HOST

#: The rest is read in a few places only: one kind of each where not everything is tried.
QUICK = (
    *("judge", "judge --system", "judge, a vendor's output", "judge --topology", "judge --references", "report"),
    *("store import of a run", "validate", "drain.py", "explain"),
)


def test_damaged_files_give_no_traceback_no_hang_and_no_wrong_green(tmp_path: Path) -> None:
    with fuzz.the_same_read_once():
        for target in targets(tmp_path):
            if is_full() or target.name in QUICK:
                valid = target.inputs[:: max(1, len(target.inputs) // 3)]
                # What is damaged is taken while it is whole: else nothing behind the first look at it is tried.
                statuses = {fuzz.status_of(target.arguments(each, each), target.program) for each in valid}
                assert statuses & {0, 1, 4}, target.name
                found = fuzz.fuzz(target, 10, 1, tmp_path / "kept")
                assert found.wrong == [], target.name
                assert found.runs == 10 or found.seconds > fuzz.BATCH_S, target.name


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise KeyError('x')", "a mistake in Fabricheck itself: KeyError"),
        ("while True: pass", "more than"),
        ("", "green"),
    ],
)
def test_what_it_looks_for_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str) -> None:
    @click.command()
    def broken() -> None:
        exec(code)

    monkeypatch.setattr(cli.cli, "get_command", lambda *_: broken)
    monkeypatch.setattr(fuzz, "LIMIT_S", 0.2)
    target = Target("judge", [HOST], lambda *_: ["judge"], lambda content, was: content != was)
    found = fuzz.fuzz(target, 3, 1, tmp_path / "kept")
    assert len(found.wrong) == 3 and all(said in each for each in found.wrong)
    assert (tmp_path / "kept" / f"judge_1_0_{HOST.name}").exists()


def test_a_damaged_store_is_not_verified_and_white_space_is_no_damage() -> None:
    assert not not_as_stored(b'\n{"fabricheck-store":  1}\n', b'{"fabricheck-store": 1}')
    assert not not_as_stored(b"00  runs.parquet", b"00  runs.parquet\n")
    for content in (b"", b"{", b"[" * 3000, b'{"fabricheck-store": 2}', b"PAR1"):
        assert not_as_stored(content, b"PAR2")


def test_what_a_command_sets_for_its_children_is_gone_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def made() -> None:
        os.environ["FABRICHECK_SITES"] = "/made" + os.environ.get("FABRICHECK_SITES", "")

    monkeypatch.setattr(cli.cli, "get_command", lambda *_: made)
    before = dict(os.environ)
    assert [fuzz.status_of(["init"]) for _ in range(2)] == [0, 0]
    assert dict(os.environ) == before


def test_no_input_is_given_twice_and_a_seed_gives_the_same_ones(tmp_path: Path) -> None:
    small = tmp_path / "small.json"
    small.write_text("7")
    made: list[bytes] = []

    def program(words: object) -> int:
        made.append((tmp_path / "given").read_bytes())
        return 0

    def arguments(file: Path, _: Path) -> list[str | Path]:
        (tmp_path / "given").write_bytes(file.read_bytes())
        return []

    target, before = Target("x", [small], arguments, program=program), set[bytes]()
    for start in range(2):
        fuzz.fuzz(target, 100, start, tmp_path, before)
    assert len(made) > 100 and len(set(made)) == len(made) and b"7" not in made
    first = made.copy()
    made.clear()
    fuzz.fuzz(target, 100, 0, tmp_path)
    assert made == first[: len(made)]


def test_every_kind_of_damage_comes_from_a_seed() -> None:
    content = b'{"a": 1}\n{"b": [2, "x"]}\n'
    made = damage.damaged_by_seed("0", [(HOST, content)])
    found = {next(made)[1] for _ in range(20000)}
    assert len(found) > 10000
    # Lines lost, doubled and moved, a word in the place of another one, and another number.
    one, other = b'{"a": 1}\n', b'{"b": [2, "x"]}\n'
    assert {one, one + one + other, other + one, b'{"b": 1}\n' + other} <= found
    assert any(re.fullmatch(rb'\{"a": -?\d\d+\}\n' + re.escape(other), content) for content in found)


def test_a_file_is_read_again_where_it_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    text = (ROOT / "site_configs" / "local" / "topology.yaml").read_text()
    with fuzz.the_same_read_once():
        file.write_text(text)
        first = model.load_topology(file)
        assert model.load_topology(file) is first
        file.write_text(text.replace("system: local", "system: other"))
        assert model.load_topology(file).system == "other"


def test_a_copy_has_one_damaged_file_and_nothing_of_the_command_before(tmp_path: Path) -> None:
    source, bad = tmp_path / "source", tmp_path / "bad"
    (source / "in").mkdir(parents=True)
    (source / "a").write_text("a")
    (source / "in" / "b").write_text("b")
    bad.write_text("damaged")
    copies = Copies(source, tmp_path / "copy")

    def seen() -> dict[str, str]:
        return {each.name: each.read_text() for each in (tmp_path / "copy").rglob("*") if each.is_file()}

    copies.having(bad, source / "a")
    assert seen() == {"a": "damaged", "b": "b"}
    copies.having(bad, source / "in" / "b")
    assert seen() == {"a": "a", "b": "damaged"}
    for leave in ("in/b", "a", "new"):
        (tmp_path / "copy" / leave).write_text("by a command")
        copies.having(bad, source / "a")
        assert seen() == {"a": "damaged", "b": "b"}
    (tmp_path / "copy" / "a").unlink()
    copies.having(bad, source / "in" / "b")
    assert seen() == {"a": "a", "b": "damaged"}


def test_a_later_call_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fuzz, "BATCH", 20)
    words = ["--command", "drain.py --waivers", "--keep", str(tmp_path), "--inputs"]
    assert fuzz.main([*words, "20"]) == 0
    assert "| drain.py --waivers | 20 | " in capsys.readouterr().out
    rows = (tmp_path / "batches.jsonl").read_text()
    assert fuzz.main([*words, "40"]) == 0
    assert "| all | 40 | " in capsys.readouterr().out
    later = (tmp_path / "batches.jsonl").read_text()
    assert later.startswith(rows) and later.count("\n") == 2
