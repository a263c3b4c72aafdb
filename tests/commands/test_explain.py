"""`fabricheck explain`: of a code all that the catalogue says, of a run each of its findings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.cli import main
from fabricheck.diagnosis.causes import Cause, Diagnosis
from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.finding_texts import CATALOGUE
from fabricheck.records.verdict import Verdict
from fabricheck.report import machine
from fabricheck.report.lines import line
from tests.support.pages import write_json
from tests.support.synthetic import pair_run

GPU = Finding(
    "slow-gpu", Verdict.DEGRADED, "12 metrics are slow", (Component(Kind.GPU, "gpu2", "nid001"),), 90.0, 95.5, "Gb/s"
)
TOLD = Finding("slowdown", Verdict.PASS, "allreduce loses 3% beside others")


def explain(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[object, str, str]:
    """Exit status, output and error output."""
    with pytest.raises(SystemExit) as ended:
        main(["explain", *map(str, arguments)])
    shown = capsys.readouterr()
    return ended.value.code, shown.out, shown.err


def verdict_in(folder: Path, *problems: Finding) -> Path:
    folder.mkdir(parents=True)
    run = pair_run(bad={(2, 1): Verdict.FAIL})
    found = Diagnosis((), problems, (TOLD,), Verdict.FAIL)
    machine.write_json([run], folder / "verdict.json", system="alps", diagnosis=found)
    return folder


@pytest.mark.parametrize("code", CATALOGUE)
def test_a_code_is_explained_whole(capsys: pytest.CaptureFixture[str], code: str) -> None:
    status, out, _ = explain(capsys, code)
    text, entry = " ".join(out.split()), CATALOGUE[code]
    assert status == 0
    assert out.startswith(f"{code}: {entry.alone}\n")
    assert all(" ".join(each.replace("`", "").split()) in text for each in (entry.decides, entry.certainty.value))
    assert all(f"{place}. " in text for place in range(1, len(entry.steps) + 1))


@pytest.mark.parametrize(
    ("given", "near"), [("slow-gup", "slow-gpu"), ("path_forbidden", "path-forbidden"), ("zz", "--list")]
)
def test_an_unknown_code_is_one_line_with_what_is_nearly_it(
    capsys: pytest.CaptureFixture[str], given: str, near: str
) -> None:
    status, out, err = explain(capsys, given)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert near in err


def test_the_list_has_every_code(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = explain(capsys, "--list")
    assert status == 0
    assert {line.split()[0] for line in out.splitlines() if line.startswith("  ")} == set(CATALOGUE)
    assert explain(capsys, "--list", "slow-gpu")[0] == 2


@pytest.mark.parametrize("named", ["folder", "file", "latest"])
def test_a_run_is_explained_finding_by_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("RFM_PREFIX", str(tmp_path))
    for other in ("alps-20261125T020000Z", "alps-20261125T020000Z-9", "alps-2-20261126T020000Z"):
        verdict_in(tmp_path / "runs" / other)
    run = verdict_in(tmp_path / "runs" / "alps-20261125T020000Z-10", GPU)
    given: dict[str, list[str | Path]] = {
        "folder": [run],
        "file": [run / "verdict.json"],
        "latest": ["--system", "alps:gpu"],
    }
    status, out, _ = explain(capsys, *given[named])
    assert status == 0
    assert out.startswith("FAIL: 2 problems and 1 note")
    assert [each.partition(":")[0] for each in out.splitlines() if each[:1].islower()] == [
        "below-floor",
        "slow-gpu",
        "slowdown",
    ]
    assert line(GPU, system="alps", run=str(run)) in out and f"    {GPU.message}\n" in out and TOLD.message in out
    assert f"fabricheck bundle {run} --hide-names" in " ".join(out.split())


def test_the_command_that_runs_a_test_again_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        replace(pair_run(bad={(2, 1): Verdict.FAIL}), test=f"{name} %transport=mpi @alps:gpu+gnu, 4 ranks on nid001")
        for name in ("PingPong", "PeerCopies")
    ]
    write_json(runs, tmp_path / "verdict.json", system="alps")
    status, out, _ = explain(capsys, tmp_path)
    assert status == 0
    assert "run --system alps --name PingPong --name PeerCopies\n" in out and "--name TEST" not in out


def test_what_explains_a_run_is_explained_first_and_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    busy = Finding("node-busy", Verdict.FAIL, "", (Component.of_node("nid001"),))
    folder = tmp_path / "run"
    folder.mkdir()
    run = pair_run(bad={(2, 1): Verdict.FAIL})
    found = Diagnosis((Cause(busy), Cause(GPU)), (GPU,), (TOLD,))
    machine.write_json([run], folder / "verdict.json", system="alps", diagnosis=found)
    status, out, _ = explain(capsys, folder)
    assert status == 0
    assert [each.partition(":")[0] for each in out.splitlines() if each[:1].islower()] == [
        "node-busy",
        "below-floor",
        "slow-gpu",
        "slowdown",
    ]
    assert "top -b -n 1 on nid001" in out


def test_many_findings_of_a_code_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = explain(capsys, verdict_in(tmp_path / "run", *[GPU] * 30))
    assert status == 0
    assert out.count(GPU.message) == 5 and "  and 25 more\n" in out


def test_what_an_earlier_version_wrote_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "verdict.json"
    metric = {"name": "m", "verdict": "FAIL", "reason": "slow", "value": 1.0, "unit": "Gb/s", "yardstick": None}
    old = {
        "system": "alps", "verdict": "FAIL", "problems": [{"verdict": "FAIL", "message": "it is slow"}],
        "findings": [{"message": "it scales"}], "runs": [{"problems": [], "metrics": [metric]}],
    }  # fmt: skip
    file.write_text(json.dumps(old), encoding="utf-8")
    status, out, _ = explain(capsys, file)
    assert status == 0
    assert all(each in out for each in ("it is slow", "it scales", "m: slow"))


@pytest.mark.parametrize(
    "content", ["{}", "[]", '{"system": 1, "verdict": "FAIL", "problems": 3, "runs": [], "findings": []}', "{"]
)
def test_what_is_no_verdict_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    (tmp_path / "verdict.json").write_text(content, encoding="utf-8")
    status, out, err = explain(capsys, tmp_path)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "verdict.json" in err


def test_without_a_run_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RFM_PREFIX", str(tmp_path))
    assert [explain(capsys, *each)[0] for each in ((), ("--system", "alps"), (tmp_path,))] == [2, 2, 2]
