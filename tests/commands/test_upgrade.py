"""`fabricheck upgrade`: mistakes in what is asked for, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.cli import main
from fabricheck.session.reframe_report import FinishedSession
from fabricheck.session.suite_run import Launcher
from fabricheck.store.changes import StackDifference
from fabricheck.suite import Suite
from fabricheck.upgrade.bisection import BisectionOutcome, SearchEnded
from fabricheck.upgrade.comparison import Upgrade, UpgradeCause, judge_upgrade
from tests.support.result_files import HOST
from tests.support.sessions import make_suite
from tests.upgrade.test_comparison import cases_of


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("openmpi", "nosuch"), "has no environment 'nosuch': it has "),
        (("openmpi", "OpenMPI"), "the same environment"),
        (("openmpi", "/opt/nosuch"), "/opt/nosuch: no such folder"),
        (("openmpi", "/usr/share"), "/usr/share has no libraries"),
        (("openmpi", "without:NCCL_PROTO"), "nothing to remove"),
        (("openmpi", "NCCL_PROTO=fast"), "NCCL_PROTO does not accept 'fast'"),
        (("openmpi", "UCX_TLS=cuda;all"), "UCX_TLS=cuda;all"),
        (("openmpi", "mpich", "--rounds", "3"), "--rounds 3"),
        (("openmpi", "mpich", "--margin", "5"), "--margin 5"),
        (("openmpi", "mpich", "--minutes", "0"), "--minutes 0"),
        (("openmpi", "mpich", "--system", "nosuch"), "nosuch"),
        (("openmpi", "mpich", "--system", "emulated:nosuch"), "has no partition 'nosuch'"),
    ],
)
def test_a_mistake_is_one_line(words: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["upgrade", *words])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert says in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("minutes", "interrupted", "ran", "outcome"),
    [
        ("10", 0, 2, BisectionOutcome.ELSEWHERE),
        ("0.01", 0, 1, BisectionOutcome.NO_TIME),
        ("10", 1, 1, BisectionOutcome.INTERRUPTED),
        ("10", 2, 2, BisectionOutcome.INTERRUPTED),
    ],
)
def test_the_answer_comes_before_the_search_which_ends_in_time(
    *,
    minutes: str,
    interrupted: int,
    ran: int,
    outcome: BisectionOutcome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """NEW is slower; the search measures one job where there is time for it, and none after an interrupt."""
    cases = (*cases_of(tmp_path, HOST, "openmpi"), *cases_of(tmp_path, HOST, "mpich", 1.2))
    jobs, outcomes, printed = list[FinishedSession](), list[BisectionOutcome](), list[str]()

    def run(*_: object, **__: object) -> FinishedSession:
        jobs.append(FinishedSession(tmp_path, cases, (), interrupted=len(jobs) + 1 == interrupted))
        return jobs[-1]

    def judge(sessions: Sequence[FinishedSession], _: Suite, __: str, *rest: object, **options: float) -> Upgrade:
        result = judge_upgrade(
            sessions, Suite(make_suite(tmp_path / "suite")), "hgx-h200", ("openmpi", "mpich"), margin=0.05
        )
        return replace(result, round_seconds=1.0)

    def find_causes(upgrade: Upgrade, _: Suite, folder: Path, search: object) -> tuple[UpgradeCause, ...]:
        printed.append(capsys.readouterr().out)
        assert callable(search)
        try:
            search(["exchange-1"], ["^Made"], folder / "exchange.py")
            outcomes.append(BisectionOutcome.ELSEWHERE)
        except SearchEnded as ended:
            outcomes.append(ended.outcome)
        return (UpgradeCause(outcomes[0], "x", (), (), (), (StackDifference("libleft", "1", "2"),)),)

    monkeypatch.setattr(Launcher, "run", run)
    monkeypatch.setattr("fabricheck.upgrade.comparison.judge_upgrade", judge)
    monkeypatch.setattr("fabricheck.upgrade.exchange.find_causes", find_causes)
    with pytest.raises(SystemExit) as ended:
        main(["upgrade", "openmpi", "mpich", "--rounds=4", f"--minutes={minutes}", f"--output={tmp_path}"])
    assert (ended.value.code, len(jobs), outcomes) == (1, ran, [outcome])
    assert printed[0].splitlines()[-1].startswith("STAY")
    out = capsys.readouterr().out
    assert "guilty" in out and "libleft" in out
