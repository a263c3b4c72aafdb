"""Packages of a new stack exchanged in the old one: ReFrame's settings, and what the runs of them say."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabricheck.records.case import Case
from fabricheck.session.reframe_report import FinishedSession
from fabricheck.store.changes import StackDifference
from fabricheck.suite import Suite
from fabricheck.upgrade.bisection import BisectionOutcome
from fabricheck.upgrade.comparison import Upgrade, UpgradeCause, judge_upgrade
from fabricheck.upgrade.exchange import AddedPart, find_causes
from tests.support.result_files import HOST, Line
from tests.support.sessions import make_suite
from tests.upgrade.test_comparison import cases_of

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


def suite_in(folder: Path) -> Suite:
    suite = Suite(make_suite(folder / "suite"))
    suite.settings("hgx-h200").write_text(SETTINGS)
    return suite


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return suite_in(tmp_path)


def configuration(settings: Path) -> dict[str, Any]:
    found: dict[str, Any] = runpy.run_path(str(settings))["site_configuration"]
    return found


def added_to(suite: Suite, folder: Path, what: str, system: str = "hgx-h200") -> tuple[AddedPart, dict[str, Any]]:
    """A part that is added to the old stack, and the environment that this makes."""
    added = AddedPart.of(what, suite, system)
    assert added is not None
    *_, new = configuration(added.settings(folder, suite, "hgx-h200", "old"))["environments"]
    return added, new


def searched(
    suite: Suite, folder: Path, sides: Mapping[str, Any], cases: Callable[[str, Any], list[Case]]
) -> tuple[Upgrade, UpgradeCause]:
    """The comparison, and the cause that the search finds.

    `sides`: what the old and the new stack have; `cases`: what they measure with it, and with what an exchange tries.
    """

    def run(environments: Sequence[str], patterns: Sequence[str], settings: Path) -> FinishedSession:
        tried = {each["name"]: each["extras"]["tried"] for each in configuration(settings)["environments"][2:]}
        own = [*cases("old", sides["old"]), *(case for name in environments for case in cases(name, tried[name]))]
        return FinishedSession(folder, tuple(own), ())

    first = FinishedSession(folder, tuple(case for name, side in sides.items() for case in cases(name, side)), ())
    upgrade = judge_upgrade([first], suite, "hgx-h200", ("old", "new"), margin=0.05)
    (found,) = find_causes(upgrade, suite, folder, run)
    return upgrade, found


def cause(
    folder: Path, guilty: set[str], *, ignored: str = "", abi: str = "", needs: str = ""
) -> tuple[UpgradeCause | None, list[dict[str, str]]]:
    """Of an upgrade whose three libraries cost 20% where all of the guilty are loaded, and the LD_PRELOAD of each
    exchange by job; the loader does not take the library that is `ignored`, the new `abi` is of another ABI, and the
    new `needs` loads a further library, which the old stack has not."""
    suite = suite_in(folder)
    jobs: list[dict[str, str]] = []

    def cases(environment: str, new: Sequence[str], where: Path) -> list[object]:
        own = [name for name in new if environment == "new" or name != ignored]

        def load(lines: list[Line]) -> None:
            files = [
                f"/opt/{name}-{2 if name in own else 1}/lib/{name}.so{'.2' * (name == abi and name in own)}"
                for name in LIBRARIES
            ]
            files += ["/opt/needed/lib/libneeded.so"] * (needs in own)
            lines[-1]["loaded"] = [{"path": file} for file in files]

        return list(cases_of(where, HOST, environment, 1.2 if guilty <= set(own) else 1.0, load))

    def session(where: Path, sides: dict[str, Sequence[str]]) -> FinishedSession:
        own = [case for name, new in sides.items() for case in cases(name, new, where)]
        return FinishedSession(where, tuple(own), ())  # type: ignore[arg-type]

    def run(environments: Sequence[str], patterns: Sequence[str], settings: Path) -> FinishedSession:
        assert patterns == ["^Made%transport=mpi(%|$)"]
        content = configuration(settings)
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
    causes = find_causes(upgrade, suite, folder, run)
    return (causes[0] if causes else None), jobs


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


def test_a_library_that_a_package_needs_comes_along(tmp_path: Path) -> None:
    result, _ = cause(tmp_path, {"libb"}, needs="libb")
    assert result is not None and result.outcome is BisectionOutcome.FOUND
    assert "libb" in {each.name for each in result.guilty}


def test_an_exchange_that_the_loader_did_not_make_proves_nothing(tmp_path: Path) -> None:
    result, _ = cause(tmp_path, {"libb"}, ignored="libb")
    assert result is not None and (result.outcome, result.guilty) == (BisectionOutcome.CANNOT_SAY, ())
    assert all(step.change is None for step in result.steps if "libb" in step.differences)


def test_a_library_of_another_abi_is_not_preloaded(tmp_path: Path) -> None:
    result, jobs = cause(tmp_path, {"liba"}, abi="libb")
    assert result is not None and ([each.name for each in result.guilty], len(jobs)) == (["liba"], 1)
    assert [each.name for each in result.left] == ["libb"]
    assert not any("libb" in preload for job in jobs for preload in job.values())


def test_a_default_that_changed_is_tried_by_its_variable(suite: Suite, tmp_path: Path) -> None:
    """One package differs, which names itself; of its two new defaults one costs. A third that OLD does not take."""
    old, new = {"UCX_A": "1", "OMPI_MCA_b": "x", "UCX_C": "1"}, {"UCX_A": "2", "OMPI_MCA_b": "y", "UCX_C": "2"}

    def cases(environment: str, given: Mapping[str, str]) -> list[Case]:
        taken = new if environment == "new" else {**old, **given, "UCX_C": "1"}

        def tell(lines: list[Line]) -> None:
            # The number of a process is no setting.
            lines[-1]["settings"] = {**taken, "UCX_PID": str(lines[1]["times_ns"][0]), "UCX_FILE": f"/{environment}"}

        return list(cases_of(tmp_path, HOST, environment, 1.2 if taken["OMPI_MCA_b"] == "y" else 1.0, tell))

    upgrade, result = searched(suite, tmp_path, {"old": old, "new": new}, cases)
    assert [str(each) for each in upgrade.defaults] == ["OMPI_MCA_b: x -> y", "UCX_A: 1 -> 2", "UCX_C: 1 -> 2"]
    assert (result.outcome, [str(each) for each in result.guilty]) == (BisectionOutcome.FOUND, ["OMPI_MCA_b: x -> y"])


@pytest.mark.parametrize("loaded", [True, False])
def test_a_prefix_is_added_to_the_old_stack_and_has_to_be_loaded(suite: Suite, tmp_path: Path, loaded: bool) -> None:
    """A program that is linked to a path would be compared with itself."""
    library = tmp_path / "liba-2" / "lib64" / "liba.so"
    library.parent.mkdir(parents=True)
    library.touch()
    added, new = added_to(suite, tmp_path, str(tmp_path / "liba-2"))
    assert (new["name"], new["env_vars"][0]) == (added.name, ["LD_PRELOAD", "/site.so"])
    assert str(library.parent) in dict(map(tuple, new["env_vars"]))["LD_LIBRARY_PATH"]

    def load(path: str) -> Callable[[list[Line]], object]:
        return lambda lines: lines[-1].update(loaded=[{"path": path}])

    first, second = "/opt/liba-1/lib/liba.so", str(library) if loaded else "/opt/liba-1/lib/liba.so"
    cases = [
        *cases_of(tmp_path, HOST, "old", change=load(first)),
        *cases_of(tmp_path, HOST, added.name, change=load(second)),
    ]
    session = FinishedSession(tmp_path, tuple(cases), ())
    upgrade = judge_upgrade([session], suite, "hgx-h200", ("old", added.name), margin=0.05)
    assert (upgrade.exit_status, added.checked(upgrade).exit_status) == (0, 0 if loaded else 4)


def test_a_module_is_added_to_those_of_the_old_stack(suite: Suite, tmp_path: Path) -> None:
    _, new = added_to(suite, tmp_path, "module:ucx/1.19")
    assert new["modules"] == ["ucx/1.19"]


@pytest.mark.parametrize(
    ("text", "tried"),
    [
        ("without:profile", {"HSA_ENABLE_SDMA": None, "NCCL_IGNORE_CPU_AFFINITY": None}),
        ("without:HSA_ENABLE_SDMA", {"HSA_ENABLE_SDMA": None}),
        ("NCCL_PROTO=^LL", {"NCCL_PROTO": "^LL"}),
    ],
)
def test_what_the_tuning_sets_is_left_out_and_another_value_tried(
    suite: Suite, tmp_path: Path, text: str, tried: dict[str, str | None]
) -> None:
    extras = '"extras": {"tuning_profile": "lumi"}'
    suite.settings("hgx-h200").write_text(SETTINGS.replace('"name": "gpu4",', f'"name": "gpu4", {extras},'))
    added, new = added_to(suite, tmp_path, text, "hgx-h200:gpu4")
    assert tried.items() <= new["extras"]["tried"].items()
    assert "MPICH_GPU_SUPPORT_ENABLED" not in new["extras"]["tried"]  # nothing runs without it
    session = FinishedSession(tmp_path, (*cases_of(tmp_path, HOST, "old"), *cases_of(tmp_path, HOST, added.name)), ())
    same = judge_upgrade([session], suite, "hgx-h200", ("old", added.name), margin=0.05)
    assert added.checked(same).exit_status == 4  # its runs had what the old ones had
    changed = replace(same, variables=tuple(StackDifference(name, "1", "none") for name in tried))
    assert added.checked(changed).exit_status == 0


def test_of_variables_that_are_left_out_the_one_that_helps_is_named(suite: Suite, tmp_path: Path) -> None:
    tuning = {"NCCL_PROTO": "LL", "UCX_TLS": "all"}

    def cases(environment: str, without: Mapping[str, None]) -> list[Case]:
        assert {*without.values()} <= {None}

        def tell(lines: list[Line]) -> None:
            lines[0]["environment"] |= {name: value for name, value in tuning.items() if name not in without}

        return list(cases_of(tmp_path, HOST, environment, 1.2 if "UCX_TLS" in without else 1.0, tell))

    _, result = searched(suite, tmp_path, {"old": {}, "new": dict.fromkeys(tuning)}, cases)
    assert (result.outcome, [str(each) for each in result.guilty]) == (BisectionOutcome.FOUND, ["UCX_TLS: all -> none"])
