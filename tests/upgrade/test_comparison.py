"""What a session of two environments says of the new one, from the files that its tests leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.records.case import Case, CheckJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.session.reframe_report import FinishedSession
from fabricheck.suite import Suite
from fabricheck.upgrade.comparison import Upgrade, judge_upgrade
from fabricheck.upgrade.decision import Answer
from tests.support.result_files import CUDA, HOST, Line
from tests.support.sessions import case, make_suite, result_file

ROUNDS = 4
NO_RUN = Finding("not-measured", Verdict.INCOMPLETE, "fabricbench left no results")


def newer(lines: list[Line]) -> None:
    lines[0]["libraries"]["ccl"]["version"] = "2.99.1"


def as_ever(_: list[Line]) -> None:
    pass


def cases_of(
    folder: Path, source: Path, environment: str, factor: float = 1.0, change: Callable[[list[Line]], object] = as_ever
) -> Iterable[Case]:
    """The case of each round, whose times are `factor` times those of the source, and differ a little."""
    transport = "ccl" if source == CUDA else "mpi"
    for number in range(ROUNDS):
        own = folder / f"{transport}-{environment}-{number}"
        noise = 1 + 0.001 * (number % 2 if environment == "old" else number % 3)
        result_file(own, 1, number, source=source, factor=factor * noise, change=change)
        # ReFrame has the number of the repetition in the name that it displays alone.
        made = case("hgx-h200", name=f"Made %transport={transport}", environment=environment, folder=own)
        displayed = f"{made.name} %.repeat_no={number}"
        yield replace(made, attributes={**made.attributes, "display_name": displayed})


def judge(folder: Path, cases: Iterable[Case]) -> Upgrade:
    session = FinishedSession(folder, tuple(cases), ())
    return judge_upgrade([session], Suite(make_suite(folder / "suite")), "hgx-h200", ("old", "new"), margin=0.05)


@pytest.mark.parametrize(
    ("factor", "answer", "status"), [(1.0, Answer.SAME, 0), (1.2, Answer.WORSE, 1), (0.8, Answer.BETTER, 0)]
)
def test_go_or_stay(tmp_path: Path, factor: float, answer: Answer, status: int) -> None:
    found = judge(tmp_path, [*cases_of(tmp_path, HOST, "old"), *cases_of(tmp_path, HOST, "new", factor)])
    assert (found.answer, found.exit_status, found.software, found.suspects) == (answer, status, (), ())


def test_what_changed_and_what_only_the_slow_ones_use_is_suspected(tmp_path: Path) -> None:
    """NCCL is slower, and the same ranks by MPI are not."""

    def other_mpi(lines: list[Line]) -> None:
        lines[0]["libraries"]["mpi"]["version"] = "9.9.9"

    def both(lines: list[Line]) -> None:
        newer(lines)
        other_mpi(lines)

    found = judge(
        tmp_path,
        [
            *cases_of(tmp_path, CUDA, "old"),
            *cases_of(tmp_path, CUDA, "new", 1.2, both),
            *cases_of(tmp_path, HOST, "old"),
            *cases_of(tmp_path, HOST, "new", change=other_mpi),
        ],
    )
    assert found.answer is Answer.WORSE
    assert found.suspects == (Component(Kind.LIBRARY, "NCCL", version="2.99.1"),)
    assert len(found.software) == 2


@pytest.mark.parametrize(
    ("old", "new", "variables", "suspects"),
    [
        ((), (), {}, ("NCCL 2.99.1",)),
        (("/opt/nccl-1/lib/libnccl.so.2",), ("/opt/nccl-2/lib/libnccl.so.2",), {}, ("NCCL 2.99.1",)),
        # MPI moves nothing of NCCL's; what lies beside its library is its own.
        (
            ("/opt/mpi-4/lib/libmpi.so.40",),
            ("/opt/mpi-5/lib/libmpi.so.40", "/opt/mpi-5/lib/libprrte.so.3"),
            {},
            ("NCCL 2.99.1",),
        ),
        (
            ("/opt/nccl-1/lib/libnccl.so.2",),
            ("/opt/nccl-2/lib/libnccl.so.2", "/opt/next/slow/libslow.so", "/opt/next/calm/libcalm.so"),
            {"LD_PRELOAD": "libslow.so"},
            ("NCCL 2.99.1", "libcalm /opt/next/calm", "libslow /opt/next/slow"),
        ),
        (
            ("/opt/nccl-1/lib/libnccl.so.2",),
            ("/opt/nccl-2/lib/libnccl.so.2",),
            {"NCCL_ALGO": "Tree"},
            ("NCCL 2.99.1", "NCCL_ALGO Tree"),
        ),
    ],
)
def test_whatever_may_be_guilty_is_suspected(
    tmp_path: Path, old: tuple[str, ...], new: tuple[str, ...], variables: dict[str, str], suspects: tuple[str, ...]
) -> None:
    """NCCL is another and slower; so may be what else differs, unless only others use it."""

    def load(files: tuple[str, ...]) -> Callable[[list[Line]], object]:
        return lambda lines: lines[-1].update(loaded=[{"path": path} for path in ("/usr/lib/libc.so.6", *files)])

    def change(lines: list[Line]) -> None:
        newer(lines)
        load(new)(lines)
        lines[0]["environment"].update(variables)

    found = judge(
        tmp_path, [*cases_of(tmp_path, CUDA, "old", change=load(old)), *cases_of(tmp_path, CUDA, "new", 1.2, change)]
    )
    assert tuple(each.text for each in found.suspects) == suspects


@pytest.mark.parametrize(
    ("loaded", "packages"),
    [
        ({}, ()),
        ({"libmpi": ("/opt/mpi-4/lib64/openmpi/libmpi.so.40.30.4", "1234")}, ()),  # the same file elsewhere
        ({"libmpi": ("/opt/mpi-5/lib/libmpi.so.40.50", "5")}, ("libmpi: /opt/mpi-4 -> /opt/mpi-5",)),
        (
            {"libmpi": ("/opt/mpi-4/lib/libmpi.so.40.31", "5")},
            ("libmpi: /opt/mpi-4/lib/libmpi.so.40 -> /opt/mpi-4/lib/libmpi.so.40.31",),
        ),
        (
            {"libmpi": ("/opt/mpi-4/lib/libmpi.so.40", "5678")},
            ("libmpi: /opt/mpi-4/lib/libmpi.so.40 (build 1234) -> /opt/mpi-4/lib/libmpi.so.40 (build 5678)",),
        ),
        (
            {"libslow": ("/opt/new/libslow.so", ""), "libfast": ("/opt/new/libfast.so", "")},
            ("libfast, libslow: none -> /opt/new",),
        ),
    ],
)
def test_packages_are_what_is_loaded(
    tmp_path: Path, loaded: dict[str, tuple[str, str]], packages: tuple[str, ...]
) -> None:
    known = {"libmpi": ("/opt/mpi-4/lib/libmpi.so.40", "1234"), "libc": ("/usr/lib/x86_64-linux-gnu/libc.so.6", "ab")}

    def load(more: dict[str, tuple[str, str]]) -> Callable[[list[Line]], object]:
        files = [{"path": path, **({"build_id": build} if build else {})} for path, build in {**known, **more}.values()]
        return lambda lines: lines[-1].update(loaded=files)

    def new(lines: list[Line]) -> None:
        load(loaded)(lines)
        lines[0]["environment"]["LD_PRELOAD"] = "whatever"

    found = judge(
        tmp_path, [*cases_of(tmp_path, HOST, "old", change=load({})), *cases_of(tmp_path, HOST, "new", change=new)]
    )
    assert tuple(map(str, found.packages)) == packages
    assert found.suspects == ()


@pytest.mark.parametrize(("broken", "status"), [("new", 1), ("old", 4)])
def test_who_does_not_run_is_named(tmp_path: Path, broken: str, status: int) -> None:
    cases = [*cases_of(tmp_path, HOST, "old"), *cases_of(tmp_path, HOST, "new")]
    lost = next(each for each in cases if each.environment == broken and each.repetition == 1)
    empty = replace(lost, folder=None, result="fail", phase="sanity", judged=CheckJudgement.of([NO_RUN]))
    found = judge(tmp_path, [empty if each is lost else each for each in cases])
    assert (len(found.failures), len(found.left_out)) == ((1, 0) if broken == "new" else (0, 1))
    assert found.exit_status == status


@pytest.mark.parametrize(("code", "status"), [("implausible-value", 4), ("path-forbidden", 1)])
def test_values_too_good_to_be_true_are_not_compared(tmp_path: Path, code: str, status: int) -> None:
    """A wrong path is a failure of the new one."""
    cases = [*cases_of(tmp_path, HOST, "old"), *cases_of(tmp_path, HOST, "new")]
    bad = next(each for each in cases if each.environment == "new" and each.repetition == 1)
    invalid = replace(
        bad, result="fail", phase="sanity", judged=CheckJudgement.of([Finding(code, Verdict.INVALID, "x")])
    )
    found = judge(tmp_path, [invalid if each is bad else each for each in cases])
    assert (len(found.failures), len(found.left_out)) == ((0, 1) if status == 4 else (1, 0))
    assert found.exit_status == status


def test_a_test_that_the_new_one_has_not_is_a_failure(tmp_path: Path) -> None:
    found = judge(tmp_path, cases_of(tmp_path, HOST, "old"))
    assert len(found.failures) == 1 and found.exit_status == 1


def test_a_test_that_only_the_new_one_has_is_none(tmp_path: Path) -> None:
    more = cases_of(tmp_path, CUDA, "new")
    found = judge(tmp_path, [*cases_of(tmp_path, HOST, "old"), *cases_of(tmp_path, HOST, "new"), *more])
    assert found.exit_status == 0 and {each.test for each in found.changes.metrics} != set()


def test_other_ranks_are_not_compared(tmp_path: Path) -> None:
    def elsewhere(lines: list[Line]) -> None:
        for rank in lines[0]["ranks"]:
            rank["host"] = "elsewhere"

    found = judge(tmp_path, [*cases_of(tmp_path, HOST, "old"), *cases_of(tmp_path, HOST, "new", change=elsewhere)])
    assert (found.changes.metrics, len(found.left_out), found.exit_status) == ((), 1, 4)


@pytest.mark.parametrize(("factor", "answer"), [(1.0, Answer.CANNOT_SAY), (1.2, Answer.WORSE)])
def test_of_a_run_that_was_interrupted_the_whole_rounds_are_compared(
    tmp_path: Path, factor: float, answer: Answer
) -> None:
    """Three rounds of four are whole, and an even number of them is compared; no green comes of that."""
    cut_off = list(cases_of(tmp_path, HOST, "new", factor))[:-1]
    cases = [*cases_of(tmp_path, HOST, "old"), *cut_off]
    session = replace(FinishedSession(tmp_path, tuple(cases), ()), interrupted=True)
    suite = Suite(make_suite(tmp_path / "suite"))
    found = judge_upgrade([session], suite, "hgx-h200", ("old", "new"), margin=0.05)
    assert (found.rounds, len(found.left_out), found.failures) == (2, 1, ())
    assert found.answer is answer and found.exit_status != 0


def test_a_new_one_that_is_not_built_is_one_failure(tmp_path: Path) -> None:
    """Its tests have no result either, and say no more."""
    stage = tmp_path / "stage"
    stage.mkdir()
    (stage / "rfm_build.err").write_text("fabricbench: symbol lookup error: undefined symbol: x\n")
    built = case("hgx-h200", name="BuildFabricbench ~hgx-h200:gpu4+new", environment="new", folder=stage)
    built = replace(built, result="fail", phase="compile_wait", reason="build error: exit code: 127", is_build=True)
    waiting = [
        replace(each, folder=None, result="fail_deps", phase=None, judged=None)
        for each in cases_of(tmp_path, HOST, "new")
    ]
    found = judge(tmp_path, [built, *cases_of(tmp_path, HOST, "old"), *waiting])
    assert len(found.failures) == 1 and "undefined symbol: x" in found.failures[0] and found.exit_status == 1


def test_wrong_data_of_the_new_one_are_a_failure(tmp_path: Path) -> None:
    def wrong(lines: list[Line]) -> None:
        lines[1]["wrong_bytes"] = 4

    found = judge(tmp_path, [*cases_of(tmp_path, HOST, "old"), *cases_of(tmp_path, HOST, "new", change=wrong)])
    assert len(found.failures) == 1 and found.exit_status == 1


def test_rounds_that_are_missing_are_not_compared(tmp_path: Path) -> None:
    found = judge(tmp_path, [*cases_of(tmp_path, HOST, "old"), *list(cases_of(tmp_path, HOST, "new"))[1:]])
    assert (found.changes.metrics, len(found.failures), found.exit_status) == ((), 1, 1)
