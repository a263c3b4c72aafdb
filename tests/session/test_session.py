"""Nothing that ReFrame lets pass may come out green: the driver, on reports that ReFrame could have written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fabricheck.diagnosis.case_runs import CaseRun
from fabricheck.errors import UserError
from fabricheck.records.case import Case, CheckJudgement
from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.rehearsal import is_rehearsal
from fabricheck.records.verdict import Verdict
from fabricheck.results.check_judgement import JUDGEMENT, read_judgement, write_judgement
from fabricheck.session.outcome import judge_session, read_result
from fabricheck.session.problems import Known, find_applicability, find_problems, problems_of_cases
from fabricheck.session.reframe import Selection
from fabricheck.session.reframe_report import FinishedSession, read_cases
from fabricheck.session.suite_run import Launcher
from fabricheck.suite import MINIATURE, Suite, suite_root
from tests.support.made_runs import made_run
from tests.support.result_files import HOST
from tests.support.sessions import make_suite
from tests.support.synthetic import GIB, judged, judgement, samples


def case(folder: Path, result: str = "pass", *, with_file: bool = True, is_build: bool = False) -> Case:
    folder.mkdir(exist_ok=True)
    if with_file:
        (folder / "result.jsonl").write_text("{}\n")
    phase, reason = (None, None) if result == "pass" else ("sanity", "sanity error: it is broken\nand more")
    return Case("T %size=8", "openmpi", "local:default", {}, result, phase, reason, folder, is_build, foreign=True)


def problems_of(*cases: Case, listed: int | None = None, status: int = 0, error: str = "") -> list[Finding]:
    listed = len(cases) if listed is None else listed
    return [*find_problems(listed, status, cases, error), *problems_of_cases(cases)]


def verdicts(*cases: Case, listed: int | None = None, status: int = 0) -> list[Verdict]:
    return [one.verdict for one in problems_of(*cases, listed=listed, status=status)]


@pytest.mark.parametrize(
    ("ran", "listed", "status", "is_green"),
    [
        ("tb", 2, 0, True),
        ("t", 0, 0, False),
        ("t", 2, 0, False),
        ("", 0, 0, False),
        ("b", 1, 0, False),
        ("t", 1, 1, False),
    ],
)
def test_a_run_is_green_where_all_that_was_listed_passed_and_measured(
    tmp_path: Path, ran: str, listed: int, status: int, is_green: bool
) -> None:
    """Of a test and a build."""
    cases = [case(tmp_path / each, with_file=each == "t", is_build=each == "b") for each in ran]
    assert verdicts(*cases, listed=listed, status=status) == ([] if is_green else [Verdict.INCOMPLETE])


@pytest.mark.parametrize("text", [None, ""])
def test_a_pass_without_a_result_is_none(tmp_path: Path, text: str | None) -> None:
    passed = case(tmp_path / "run", with_file=text is not None)
    for file in passed.result_files():
        file.write_text("")
    assert verdicts(passed) == [Verdict.INCOMPLETE]


@pytest.mark.parametrize("result", ["fail", "skip", "fail_deps", "abort", "xfail", "xpass", "a new word"])
def test_whatever_is_not_a_pass_is_a_problem(tmp_path: Path, result: str) -> None:
    assert verdicts(case(tmp_path / "run", result, with_file=False)) == [Verdict.INCOMPLETE]
    measured = Verdict.INCOMPLETE if result == "skip" else Verdict.FAIL
    assert verdicts(case(tmp_path / "measured", result)) == [measured]


def test_tests_that_do_not_apply_for_one_reason_are_one_line(tmp_path: Path) -> None:
    few = {"result": "skip", "left_out": "needs 2 ranks", "not_applicable": True}
    named = ["T %size=8", "T %size=9", "U"]
    records = [record(unique_name=f"x{index}", name=name, **few) for index, name in enumerate(named)]
    records.append(record(unique_name="x3", **{**few, "left_out": "needs 4 ranks"}))
    cases = [*read(tmp_path, records), case(tmp_path / "run")]
    assert problems_of(*cases) == []
    first, second = find_applicability(cases)
    assert first == Finding(
        "does-not-apply", Verdict.PASS, "does not apply: needs 2 ranks (3 tests @local:default+openmpi: T (2), U)"
    )
    assert second == Finding(
        "does-not-apply", Verdict.PASS, "does not apply: needs 4 ranks (T %size=8 @local:default+openmpi)"
    )


def test_tests_that_left_nothing_for_one_reason_are_one_line(tmp_path: Path) -> None:
    found = Finding("no-result", Verdict.INCOMPLETE, "is a GPU missing?")
    records = []
    for name in ("T", "U"):
        (tmp_path / name).mkdir()
        write_judgement(tmp_path / name, [found])
        lost = {"result": "fail", "fail_phase": "sanity", "stagedir": str(tmp_path / name)}
        records.append(record(unique_name=name, name=f"{name} %size=8", **lost))
    (problem,) = problems_of(*read(tmp_path, records), status=1)
    assert problem == replace(found, message="is a GPU missing? (2 tests @local:default+openmpi: T, U)")


@pytest.mark.parametrize(
    ("result", "phase", "judged", "trusted"),
    [
        ("pass", None, "PASS", True),
        ("pass", None, None, True),
        ("fail", "performance", "DEGRADED", True),
        ("fail", "sanity", "FAIL", True),
        ("fail", "sanity", None, False),
        ("fail", "sanity", "INVALID", False),
        ("fail", "sanity", "INCOMPLETE", False),
        ("fail", "run", None, False),
        ("abort", None, None, False),
    ],
)
def test_a_run_is_trusted_by_one_rule_while_its_files_are_there_and_when_it_comes_out_of_the_store(
    tmp_path: Path, result: str, phase: str | None, judged: str | None, trusted: bool
) -> None:
    found = CheckJudgement(Verdict(judged)) if judged else None
    ended = replace(case(tmp_path / "run"), result=result, phase=phase, judged=found, foreign=False)
    run = made_run(["x"] * 2, [])
    assert CaseRun.of_case(run, ended).trusted is trusted
    assert CaseRun.of_case(run, replace(ended, folder=None)).trusted is trusted
    assert trusted is (ended.verdict not in (Verdict.INVALID, Verdict.INCOMPLETE))


def record(**changes: Any) -> dict[str, Any]:
    return {
        "unique_name": "T_0",
        "name": "T %size=8",
        "size": 8,
        "num_cpus_per_task": None,
        "keep_files": ["result.jsonl"],
        "system": "local",
        "partition": "default",
        "environ": "openmpi",
        "result": "pass",
        "fail_phase": None,
        "fail_reason": None,
        "fixture": False,
        "left_out": "",
        "outputdir": "/output/T",
        "stagedir": "/stage/T",
        **changes,
    }


def read(tmp_path: Path, *runs: list[dict[str, Any]]) -> tuple[Case, ...]:
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"runs": [{"testcases": one} for one in runs]}))
    return read_cases(report)


def test_files_are_looked_for_where_reframe_left_them(tmp_path: Path) -> None:
    passed, failed, skipped = read(
        tmp_path,
        [
            record(),
            record(unique_name="T_1", result="fail"),
            record(unique_name="T_2", result="fail_deps", outputdir=None, stagedir=None),
        ],
    )
    assert (passed.folder, failed.folder, skipped.folder) == (Path("/output/T"), Path("/stage/T"), None)


@pytest.mark.parametrize("verdict", [Verdict.DEGRADED, Verdict.FAIL, Verdict.INCOMPLETE, Verdict.INVALID])
@pytest.mark.parametrize("with_file", [False, True])
def test_a_check_that_says_its_verdict_is_believed(tmp_path: Path, verdict: Verdict, with_file: bool) -> None:
    failed = case(tmp_path / "run", "fail", with_file=with_file)
    assert failed.folder is not None
    write_judgement(failed.folder, [Finding("wrong-plan", verdict, "why")])
    judged = read_judgement(failed.folder)
    for foreign in (False, True):
        assert verdicts(replace(failed, judged=judged, foreign=foreign)) == [verdict]


@pytest.mark.parametrize("reason", ["cc: error: FAIL to find the header", "sanity error: FAIL: wrong bytes"])
@pytest.mark.parametrize("phase", ["compile", "run", "setup", "sanity", "performance"])
def test_what_left_no_judgement_is_incomplete_whatever_reframe_says(tmp_path: Path, phase: str, reason: str) -> None:
    """The reason is for people: a compiler that says FAIL measured nothing."""
    (tmp_path / "result.jsonl").write_text("{}\n")
    ended = {"result": "fail", "fail_phase": phase, "fail_reason": reason, "stagedir": str(tmp_path)}
    (one,) = read(tmp_path, [record(**ended, judgement_file=JUDGEMENT)])
    assert one.verdict is Verdict.INCOMPLETE
    # A test that is none of ours leaves no judgement: what it measured and found bad FAILs.
    foreign = record(**ended)
    del foreign["left_out"]
    (one,) = read(tmp_path, [foreign])
    assert one.verdict is (Verdict.FAIL if phase in ("sanity", "performance") else Verdict.INCOMPLETE)


def test_a_judgement_that_is_damaged_is_incomplete(tmp_path: Path) -> None:
    for text in (
        "",
        "[]",
        '{"verdict": "PASS"}',
        '{"verdict": "GREEN", "findings": []}',
        '{"verdict": "PASS", "findings": [3]}',
    ):
        (tmp_path / JUDGEMENT).write_text(text)
        (one,) = read(tmp_path, [record(outputdir=str(tmp_path), judgement_file=JUDGEMENT)])
        assert one.verdict is Verdict.INCOMPLETE
        assert "result-damaged" in [each.code for each in problems_of(one)]


def test_a_judgement_comes_back_where_its_folder_is_now(tmp_path: Path) -> None:
    before, now = tmp_path / "before", tmp_path / "now"
    before.mkdir()
    gpu = Component(Kind.GPU, "gpu2", "nid001")
    file = str(before / "result.jsonl")
    found = Finding("slow-gpu", Verdict.DEGRADED, "slow", (gpu,), 1.0, 2.0, "Gb/s", ("copy",), (file,))
    write_judgement(before, [found])
    before.rename(now)
    judged = read_judgement(now)
    assert judged is not None and judged == CheckJudgement(Verdict.DEGRADED, (found,))
    assert judged.findings[0].files == (str(now / "result.jsonl"),)


# One letter a launch: passed, DEGRADED, FAIL, INCOMPLETE, or INVALID (X).
@pytest.mark.parametrize(
    ("launches", "counts"),
    [("IP", "P"), ("II", "I"), ("DP", "D"), ("DPP", "P"), ("PPD", "P"), ("DI", "D"), ("FPP", "F"), ("XPP", "X")],
)
def test_of_several_launches_of_a_test_half_decide_and_no_defect_is_undone(
    tmp_path: Path, launches: str, counts: str
) -> None:
    words = {"D": "DEGRADED", "F": "FAIL", "I": "INCOMPLETE", "X": "INVALID"}
    for letter, verdict in words.items():
        (tmp_path / letter).mkdir()
        write_judgement(tmp_path / letter, [Finding("wrong-plan", Verdict(verdict), "why")])
    ways = {letter: record(result="fail", stagedir=str(tmp_path / letter)) for letter in words} | {"P": record()}
    (one,) = read(tmp_path, *([ways[letter]] for letter in launches))
    assert one.verdict.value == words.get(counts, "PASS")
    (told,) = FinishedSession.of(tmp_path, [one], 1).findings
    said = ", ".join(words.get(each, "PASS") for each in launches)
    expected = f"launched {len(launches)} times: {said}; the result is {one.verdict.value}"
    assert told.message.endswith(expected)


def test_only_an_outvoted_launch_explains_that_reframe_failed_although_every_case_passed(tmp_path: Path) -> None:
    passed = case(tmp_path / "run", "pass")
    outvoted = replace(passed, launches=(Verdict.DEGRADED, Verdict.PASS, Verdict.PASS))
    healthy = replace(passed, launches=(Verdict.PASS,) * 3)
    assert not find_problems(1, 1, [outvoted])
    for unexplained in (find_problems(1, 1, [outvoted], "disk full"), find_problems(1, 137, [outvoted]),
                        find_problems(1, 1, [healthy])):  # fmt: skip
        assert [each.verdict for each in unexplained] == [Verdict.INCOMPLETE]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "fabricheck: there is no C++ compiler CC on the PATH\nmake: *** [all] Error 2\n",
            "no C++ compiler CC on the PATH",
        ),
        ("In file included\nlink.cpp:3: error: no member\nmake: *** Error 1\n", "link.cpp:3: error: no member"),
        ("Killed\n\n", "Killed"),
    ],
)
def test_a_build_that_failed_says_why_and_where(tmp_path: Path, text: str, says: str) -> None:
    stage = tmp_path / "stage"
    stage.mkdir()
    (stage / "rfm_build.err").write_text(text)
    reason = "build error: build job failed with exit code: 1"
    (one,) = read(tmp_path, [record(result="fail", fail_phase="compile_wait", fail_reason=reason, stagedir=str(stage))])
    (problem,) = [each for each in problems_of(one) if each.code == "test-failed"]
    message = problem.message
    assert says in message and str(stage / "rfm_build.err") in message and reason not in message
    assert "\n" not in message


def test_a_build_that_reached_its_limit_names_it(tmp_path: Path) -> None:
    (tmp_path / "rfm_build.err").write_text("make: *** Error 2\n")
    reason = "job error: [jobid=7] job timed out (900.123456s > 900.0s)"
    (case,) = read(
        tmp_path, [record(result="fail", fail_phase="compile_wait", fail_reason=reason, stagedir=str(tmp_path))]
    )
    (problem,) = [each for each in problems_of(case) if each.code == "test-failed"]
    assert " 15 minutes" in problem.message and ".build_time_limit=" in problem.message


def test_an_unknown_system(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"unknown system 'nowhere': .*local"):
        Launcher(Suite(suite_root()), tmp_path).run(Selection("nowhere:gpu"))


def test_what_the_session_finds_itself_is_told_once(tmp_path: Path) -> None:
    """By code, components, metrics and files, whatever the words."""
    one = judgement(samples((0, 1), GIB), verdict=Verdict.FAIL, reason="16 Gb/s is under the limit")
    good = judgement(samples((1, 0), GIB))
    run = judged([one, good])
    file = (run.run.path,)
    gpu = Finding("slow-gpu", Verdict.DEGRADED, "x", (Component(Kind.GPU, "gpu0", "n"),), files=(*file, "other"))
    same = [
        replace(one.finding, message="in other words", files=file),
        replace(gpu, message="seen in one file", files=file),
    ]
    others = [
        replace(one.finding, metrics=("another",), files=file),
        replace(one.finding, files=("another",)),
        replace(gpu, verdict=Verdict.FAIL, files=file),
        replace(gpu, components=(), files=file),
        Finding("rank-crashed", Verdict.INCOMPLETE, "only its check knows"),
    ]
    failed = case(tmp_path / "run", "fail")
    known = Known.of_session([run], [gpu])
    assert not list(problems_of_cases([replace(failed, judged=CheckJudgement.of(same))], known))
    left = list(problems_of_cases([replace(failed, judged=CheckJudgement.of([*same, *others]))], known))
    assert left == [replace(each, message=f"{each.message} ({failed})") for each in others]


def test_what_runs_on_a_miniature_is_a_rehearsal_also_without_gpus(tmp_path: Path) -> None:
    suite = Suite(make_suite(tmp_path))
    assert not is_rehearsal(read_result(HOST, suite, "local"))
    (tmp_path / "site_configs" / "local" / MINIATURE).write_text("{}", encoding="utf-8")
    assert is_rehearsal(read_result(HOST, suite, "local"))
    assert not is_rehearsal(read_result(HOST, suite, "hgx-h200"))


@pytest.mark.parametrize(
    "name", ["(a+)+$", "(a|aa)+b", "((a*)b?)*c", "(?:x{1,9}){2,}", ".*.*.*.*.*x", "([", "((((a?)))*)+"]
)
def test_a_name_that_could_take_for_ever_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"^--name '"):
        Selection("local", names=(name,)).arguments()


@pytest.mark.parametrize(
    "name", ["PingPong %transport=mpi", "(PingPong|Collectives).*", r"A\(b+\)+", "[+*(]+x.*", "^.*8$"]
)
def test_a_plain_name_is_not(name: str) -> None:
    assert Selection("local", names=(name,)).arguments()[-1] == f"--name={name.replace(' ', '')}"


def test_what_the_scheduler_said_is_not_dropped(tmp_path: Path) -> None:
    """As ReFrame 4.10 reports a job that Slurm does not take."""
    reason = (
        "spawned process error: command 'sbatch rfm_job.sh' failed with exit code 1:\n--- stdout ---\n\n"
        "--- stdout ---\n--- stderr ---\n"
        "sbatch: error: Batch job submission failed: Requested node configuration is not available\n"
    )
    (one,) = read(tmp_path, [record(result="fail", fail_phase="run", fail_reason=reason)])
    (problem,) = problems_of(one, status=1)
    assert "sbatch: error: Batch job submission failed: Requested node configuration" in problem.message
    assert len(problem.message.splitlines()) == 1


def test_one_file_for_two_test_cases_is_found(tmp_path: Path) -> None:
    cases = [case(tmp_path / name) for name in ("one", "two")]
    for each in cases:
        for file in each.result_files():
            file.write_text(HOST.read_text())
    root = make_suite(tmp_path / "suite")
    outcome = judge_session(FinishedSession.of(tmp_path, cases, 2), Suite(root), "local")
    (problem,) = [each for each in outcome.problems if each.code == "same-result-twice"]
    assert problem.verdict is outcome.verdict is Verdict.INVALID
