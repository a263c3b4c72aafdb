"""What is DEGRADED is launched again by `fabricheck run`: what stays is red, what passes is not; nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.results.check_judgement import JUDGEMENT, write_judgement
from fabricheck.session.reframe_report import read_session
from fabricheck.store.reading import history
from tests.support.sessions import result_file
from tests.support.toy import ToySuite

pytestmark = [pytest.mark.e2e, pytest.mark.full]

REFERENCES = """\
$sources:
  healthy: {kind: vendor, source: what was measured before}
$provenance:
  Measures: healthy
Measures:
  toy:
    pingpong_uncontended_0_1_1mib_goodput: [98.2, -0.1, 0.1, Gb/s]
"""


def fabricheck_run(toy: ToySuite, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fabricheck", "run", "--system", "toy", "--launches", "3", *options]
    return subprocess.run(command, cwd=toy.suite.root / "checks", capture_output=True, text=True, check=False)


def folder_of(toy: ToySuite) -> Path:
    (folder,) = toy.output.glob("runs/toy-*")
    return folder


def judged(toy: ToySuite, verdict: Verdict) -> Path:
    """What a check of Fabricheck leaves that found one thing."""
    folder = toy.suite.root / verdict.value
    folder.mkdir()
    write_judgement(folder, [Finding("slow-part", verdict, "slow")])
    return folder / JUDGEMENT


def slow_in(toy: ToySuite, *launches: int) -> None:
    """The check says DEGRADED in these launches, counted from 1; its measurement is the same."""
    count = f"echo >> {toy.output}/launched; launch=$(wc -l < {toy.output}/launched)"
    slow = " || ".join(f"test $launch -eq {each}" for each in launches)
    toy.plant("; true", f"; {count}; ! {{ {{ {slow}; }} && cp {judged(toy, Verdict.DEGRADED)} .; }}")


@pytest.mark.parametrize(
    ("slow", "said", "counts"),
    [
        ((1,), "DEGRADED, PASS, PASS", "PASS"),
        # Of two metrics either may be slow by chance in one launch of 500, twice: 2 / 500².
        ((1, 2), "DEGRADED, DEGRADED", "DEGRADED (p = 8e-06, corrected for all metrics of the session)"),
    ],
)
def test_what_is_slow_again_stays_and_all_are_told(
    toy: ToySuite, slow: tuple[int, ...], said: str, counts: str
) -> None:
    slow_in(toy, *slow)
    job = fabricheck_run(toy)
    verdict = counts.partition(" ")[0]
    assert job.returncode == (0 if verdict == "PASS" else 1), job.stdout + job.stderr
    assert "launching again (2 of 3 times at most): Measures @toy:default+none" in job.stdout
    folder = folder_of(toy)
    written = json.loads((folder / "verdict.json").read_text())
    assert written["verdict"] == verdict
    told = f"Measures @toy:default+none: was launched {said.count(',') + 1} times: {said}; the result is {counts}"
    assert [each["message"] for each in written["findings"]].count(told) == 1
    assert len(list(folder.rglob("result.jsonl"))) == said.count(",") + 1
    # Who reads the folder later finds the same.
    later = read_session(folder)
    assert [each.message for each in later.findings] == [told]
    assert [case.verdict.value for case in later.cases] == [verdict]
    assert history(toy.output / "store", system="toy").height == 2


def test_what_only_the_judge_finds_is_launched_again(toy: ToySuite, tmp_path: Path) -> None:
    """The check passes each time; by its references the first launch was slow."""
    (toy.suite.root / "reference_values" / "toy.yaml").write_text(REFERENCES)
    slow = result_file(tmp_path / "slow", 1, factor=1.5)
    good = result_file(tmp_path / "good", 2)
    toy.plant(
        f"cat {toy.result} > result.jsonl; true",
        f"if mkdir {toy.output}/launched; then cat {slow} > result.jsonl; else cat {good} > result.jsonl; fi",
    )
    job = fabricheck_run(toy)
    assert job.returncode == 0, job.stdout + job.stderr
    assert "was launched 3 times: DEGRADED, PASS, PASS; the result is PASS" in " ".join(job.stdout.split())
