"""Packages of a new stack exchanged in the old one: ReFrame's settings, and what the runs of them say."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.diagnosis.bisection import BisectionOutcome
from fabricheck.session.exchange import find_cause
from fabricheck.session.reframe_report import FinishedSession
from fabricheck.session.upgrade import UpgradeCause, judge_upgrade
from fabricheck.suite import Suite
from tests.session.test_upgrade import cases_of
from tests.support.result_files import HOST, Line
from tests.support.sessions import make_suite

LIBRARIES = ("liba", "libb", "libc")
SETTINGS = """
site_configuration = {
    "systems": [
        {
            "name": "hgx-h200",
            "partitions": [{"name": "gpu4", "environs": ["old", "new"]}, {"name": "login", "environs": []}],
        }
    ],
    "environments": [{"name": "old", "env_vars": [["LD_PRELOAD", "/site.so"]]}, {"name": "new"}],
}
"""


def cause(folder: Path, guilty: set[str], *, ignored: str = "") -> tuple[UpgradeCause | None, list[dict[str, str]]]:
    """Of an upgrade whose three libraries cost 20% where all of the guilty are loaded, and the LD_PRELOAD of each
    exchange by job; the loader does not take the library that is `ignored`."""
    suite = Suite(make_suite(folder / "suite"))
    suite.settings("hgx-h200").write_text(SETTINGS)
    jobs: list[dict[str, str]] = []

    def cases(environment: str, new: Sequence[str], where: Path) -> list[object]:
        own = [name for name in new if environment == "new" or name != ignored]

        def load(lines: list[Line]) -> None:
            files = [f"/opt/{name}-{2 if name in own else 1}/lib/{name}.so" for name in LIBRARIES]
            lines[-1]["loaded"] = [{"path": file} for file in files]

        return list(cases_of(where, HOST, environment, 1.2 if guilty <= set(own) else 1.0, load))

    def session(where: Path, sides: dict[str, Sequence[str]]) -> FinishedSession:
        own = [case for name, new in sides.items() for case in cases(name, new, where)]
        return FinishedSession(where, tuple(own), ())  # type: ignore[arg-type]

    def run(environments: Sequence[str], patterns: Sequence[str], settings: Path) -> FinishedSession:
        assert patterns == ["^Made%transport=mpi(%|$)"]
        content = runpy.run_path(str(settings))["site_configuration"]
        gpu, login = content["systems"][0]["partitions"]
        assert gpu["environs"] == ["old", "new", *environments] and login["environs"] == []
        by_name = {each["name"]: each for each in content["environments"]}
        jobs.append({name: by_name[name]["env_vars"][-1][1] for name in environments})
        assert all(by_name[name]["env_vars"][0] == ["LD_PRELOAD", "/site.so"] for name in environments)
        sides = {
            name: [library for library in LIBRARIES if f"{library}-2" in preload] for name, preload in jobs[-1].items()
        }
        return session(folder / f"job-{len(jobs)}", {"old": (), **sides})

    first = session(folder / "first", {"old": (), "new": LIBRARIES})
    upgrade = judge_upgrade([first], suite, "hgx-h200", ("old", "new"), margin=0.05)
    return find_cause(replace(upgrade), suite, folder, run), jobs


@pytest.mark.parametrize(
    ("guilty", "outcome"),
    [({"libb"}, BisectionOutcome.FOUND), ({"liba", "libc"}, BisectionOutcome.TOGETHER)],
    ids=["one", "two"],
)
def test_the_guilty_are_named(tmp_path: Path, guilty: set[str], outcome: BisectionOutcome) -> None:
    result, jobs = cause(tmp_path, guilty)
    assert result is not None and (result.outcome, {each.name for each in result.guilty}) == (outcome, guilty)
    # The libraries of the others are the old ones.
    assert (
        jobs[0]["exchange-2"] == "/opt/liba-2/lib/liba.so:/opt/libb-1/lib/libb.so:/opt/libc-1/lib/libc.so:$LD_PRELOAD"
    )


def test_an_exchange_that_the_loader_did_not_make_proves_nothing(tmp_path: Path) -> None:
    result, _ = cause(tmp_path, {"libb"}, ignored="libb")
    assert result is not None and (result.outcome, result.guilty) == (BisectionOutcome.CANNOT_SAY, ())
    assert all(step.change is None for step in result.steps if "libb" in step.differences)
