from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabricheck import __version__
from fabricheck.cli import COMMANDS
from fabricheck.records.verdict import EXIT_CODES
from tests.support.commands import run
from tests.support.result_files import CUDA, HOST, Line, lines_of, settle, write
from tests.support.words import LONGEST

REFERENCES = """
$sources:
  run1: {kind: vendor, source: made up}
$provenance: {Ping: run1, Pong: run1}
Ping:
  $index: ['$partition', transport, num_tasks]
  here:gpu:
    mpi:
      2:
        pingpong_uncontended_0_1_1mib_goodput: [GOODPUT, -0.05, 0.05, Gb/s]
        pingpong_uncontended_0_1_8b_latency: [0.41, -0.5, 0.1, us]
Pong:
  $index: [transport]
  mpi:
    pingpong_uncontended_0_1_1mib_goodput: [1000, -0.05, 0.05, Gb/s]
"""


@pytest.fixture
def references(tmp_path: Path) -> Callable[[float], list[str]]:
    def write_references(goodput: float) -> list[str]:
        path = tmp_path / "refs.yaml"
        path.write_text(REFERENCES.replace("GOODPUT", str(goodput)))
        return ["--references", str(path), "--test", "Ping", "--key", "$partition=here:gpu"]

    return write_references


def changed(tmp_path: Path, name: str, change: Callable[[list[Line]], object]) -> Path:
    lines = lines_of(HOST)
    change(lines)
    return write(tmp_path / name, lines)


def wrong_data(lines: list[Line]) -> None:
    lines[2]["wrong_bytes"] = 4
    settle(lines)


def test_each_verdict_has_its_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], references: Callable[[float], list[str]]
) -> None:
    wrong = changed(tmp_path, "wrong.jsonl", wrong_data)
    cut = changed(tmp_path, "cut.jsonl", lambda lines: lines.pop())
    other = changed(tmp_path, "other.jsonl", lambda lines: lines[0].update(format=99))
    assert run("judge", HOST, *references(98)) == 0
    assert run("judge", HOST, *references(110)) == 1
    assert run("judge", wrong, *references(98)) == 3
    assert run("judge", cut, *references(98)) == 4
    assert run("judge", other, *references(98)) == 5
    assert sorted([*EXIT_CODES.values(), 2]) == list(range(6))
    assert run("judge", HOST, cut, HOST, *references(98)) == 4
    assert run("judge", HOST, wrong, cut, other, *references(98)) == 5
    assert capsys.readouterr().err == ""


def test_nothing_to_judge_against_never_passes() -> None:
    assert run("judge", HOST) == 4


AS_PRINTED = "PingPong %transport=ccl @hgx-h200:gpu+openmpi"


def test_a_run_is_judged_by_the_model_of_its_system(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("judge", CUDA, "--system", "hgx-h200", "--test", AS_PRINTED) in (0, 1)
    assert "pingpong_contended_0_1_1gib_goodput" in capsys.readouterr().out

    def slow(lines: list[Line]) -> None:
        lines[-2]["times_ns"] = [100 * each for each in lines[-2]["times_ns"]]
        settle(lines)

    lines = lines_of(CUDA)
    slow(lines)
    assert run("judge", write(tmp_path / "slow.jsonl", lines), "--system", "hgx-h200", "--test", AS_PRINTED) == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ["none.jsonl"],
        *([str(HOST), "--system", "nowhere"], [str(HOST), "--references", "none.yaml"]),
        [str(HOST), "--system", "local", "--references", "hgx-h200.yaml"],
        *([str(HOST), "--policy", "none.yaml"], [str(HOST), "--key", "transport"]),
        *([str(HOST), "--test", "Ping %transport=ccl"], [str(HOST), "--key", "num_tasks=4"]),
    ],
    ids=" ".join,
)
def test_a_users_mistake_is_one_line_that_names_it(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert run("judge", *arguments) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith("fabricheck: ")
    assert re.split("[ %=]", arguments[-1])[-1 if "%" in arguments[-1] else 0] in line
    assert captured.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        *(["run", "--list"], ["expected"], ["validate"], ["doctor"]),
        *(["judge", str(HOST)], ["judge", str(HOST), "--html", "x.html"]),
        *(["reproduce", "sc24-3", "--from", str(HOST)], ["init"]),
    ],
    ids=" ".join,
)
def test_a_name_of_300_characters_is_a_system_that_there_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """No file can have such a name, and the file system says so in place of "there is none"."""
    (tmp_path / "site_configs").mkdir()
    monkeypatch.setenv("FABRICHECK_SITES", str(tmp_path))
    name = 300 * "x"
    assert run(*arguments, "--system", name) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    says = (
        rf"(there is )?no (system|topology of) '{name}'|unknown system '{name}'|'{name}' cannot be the name of a system"
    )
    assert re.match(f"fabricheck: ({says})", line)
    assert captured.out == ""


def test_the_test_class_has_to_be_said_where_there_are_two(
    capsys: pytest.CaptureFixture[str], references: Callable[[float], list[str]]
) -> None:
    assert run("judge", HOST, *references(98)[:2]) == 2
    assert "give --test, one of Ping, Pong" in capsys.readouterr().err
    assert run("judge", HOST, *references(98)[:4]) == 2
    assert "give $partition" in capsys.readouterr().err


def test_json_holds_everything(
    capsys: pytest.CaptureFixture[str], references: Callable[[float], list[str]], tmp_path: Path
) -> None:
    cut = changed(tmp_path, "cut.jsonl", lambda lines: lines.pop())
    assert run("judge", HOST, cut, "--json", *references(110)) == 4

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is not JSON")

    whole, incomplete = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert (whole["verdict"], incomplete["verdict"]) == ("DEGRADED", "INCOMPLETE")
    assert {each["code"] for each in whole["problems"]} <= {"slow-pair"}
    assert incomplete["problems"][0]["verdict"] == "INCOMPLETE"
    metric = whole["metrics"][0]
    assert (metric["name"], metric["verdict"]) == ("pingpong_uncontended_0_1_1mib_goodput", "DEGRADED")
    assert metric["reference"]["value"] == 110
    assert metric["interval"][0] <= metric["value"] <= metric["interval"][1]
    assert metric["iterations"] == 8


def test_the_first_line_names_a_fail_that_incomplete_outranks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Metrics without a baseline share one line."""
    # Two hosts that NCCL_HOSTID made of one; here each has a GPU of its own.
    text = (HOST.parent / "two_nodes_nccl_collectives.jsonl").read_text()
    file = tmp_path / "result.jsonl"
    file.write_text(text.replace("GPU-651d87c2", "GPU-0", 1))
    run("judge", str(file))
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("INCOMPLETE, and 5 of 12 metrics FAIL  ")
    assert [each.split()[1:3] for each in lines if "INCOMPLETE" in each] == [["6", "of"]]
    metrics = [each for each in lines if "_latency: " in each]
    assert sum(each.split()[0] in ("PASS", "FAIL") for each in metrics) == 6
    assert max(map(len, lines)) <= LONGEST


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert __version__ in capsys.readouterr().out
    assert run("--help") == 0
    out = capsys.readouterr().out
    for command in COMMANDS:
        assert command.name in out
    assert run("judge", "--help") == 0
    out = capsys.readouterr().out
    for verdict, status in EXIT_CODES.items():
        assert f"{status} {verdict.value}" in " ".join(out.split())


def test_help_imports_no_command() -> None:
    """`fabricheck --help` answers at once on a login node."""
    modules = sorted({command.module for command in COMMANDS} | {"numpy", "scipy", "pydantic", "networkx"})
    code = (
        "import sys\nfrom fabricheck.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([each for each in {modules!r} if each in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    "words", [["up", "--system", "lumi"], ["fault", "slow", "--help"], ["exec", "--", "sinfo"], []]
)
def test_without_the_lab_emulate_says_how_to_get_it(words: list[str]) -> None:
    hidden = "import sys; sys.modules['fabricheck_lab'] = None; from fabricheck.cli import main; main()"
    job = subprocess.run([sys.executable, "-c", hidden, "emulate", *words], capture_output=True, text=True, check=False)
    assert (job.returncode, job.stdout) == (2, "")
    (line,) = job.stderr.splitlines()
    assert "make lab" in line


def test_checks_import_nothing_that_judges() -> None:
    """ReFrame lists them, and starts them in jobs, without tables of numbers and graphs."""
    modules = ["scipy", "networkx", "polars", "fabricheck.judge.system", "fabricheck.session.suite_run"]
    say = f"print([each for each in {modules!r} if each in sys.modules])"
    code = f"import sys, fabricheck.rfm\n{say}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
