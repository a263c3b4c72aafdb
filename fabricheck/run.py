"""`fabricheck run`: runs the checks of a system through ReFrame, judges what they measured and writes the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabricheck.results.records import Problem, Verdict

if TYPE_CHECKING:
    from fabricheck.judge.references import References
    from fabricheck.judge.verdicts import Reference, RunJudgement
    from fabricheck.session import Case, Session, Suite


@dataclass(frozen=True)
class Outcome:
    """What a run of the suite came to: `problems` are those of the run as a whole, not of one result file."""

    verdict: Verdict
    problems: tuple[Problem, ...]
    judged: tuple[RunJudgement, ...]


def judge_session(session: Session, suite: Suite, system: str) -> Outcome:
    """Judges every result file of a session against the topology, the references and the policy of the suite.

    The verdict is the worst of all files and of the session's own problems.
    """
    from fabricheck.judge.expectations import expect_from_topology
    from fabricheck.judge.judge import judge_run, worst
    from fabricheck.judge.policy import load_policy
    from fabricheck.judge.references import load_references
    from fabricheck.results.fabricbench import read_run
    from fabricheck.topology import find_topology

    policy = load_policy(suite.root / "config" / "policy.yaml")
    topology = find_topology(system, suite.root / "site_configs")
    own = suite.root / "reference_values" / f"{system}.yaml"
    known = load_references(own) if own.exists() else None
    judged = []
    for case in session.cases:
        for file in case.result_files():
            run = read_run(file)
            expect = expect_from_topology(run, topology, policy)
            judged.append(judge_run(run, expect, _references(case, known), policy))
    problems = session.problems
    if not judged:
        problems = (*problems, Problem(Verdict.INCOMPLETE, "there is no result file, so nothing was measured"))
    verdict = worst([*(one.verdict for one in judged), *(one.verdict for one in problems)])
    return Outcome(verdict, problems, tuple(judged))


def summary(outcome: Outcome, folder: Path) -> Iterator[str]:
    """The outcome for a terminal: a line for each result file, all that is not a PASS, and the verdict last."""
    for one in outcome.judged:
        path = Path(one.run.path)
        name = path.relative_to(folder) if path.is_relative_to(folder) else path
        uncalibrated = sum(not each.calibrated for each in one.judgements)
        yield f"{one.verdict.value:10}  {name}: {len(one.judgements)} metrics, {uncalibrated} of them uncalibrated"
        for problem in one.problems:
            yield f"  {problem.verdict.value:10}  {problem.message}"
        for each in one.judgements:
            if each.verdict is not Verdict.PASS:
                yield f"  {each.verdict.value:10}  {each.name}: {each.reason}"
    for problem in outcome.problems:
        yield f"{problem.verdict.value:10}  {problem.message}"
    yield f"{outcome.verdict.value}: everything is in {folder}"


def _references(case: Case, known: References | None) -> Mapping[str, Reference]:
    if known is None or case.test not in known.tests:
        return {}  # uncalibrated, and judged as that
    return known.of(case.test).lookup(case.attributes)


@click.command()
@click.option("--system", default="local", show_default=True, help="A system below site_configs/, or system:partition.")
@click.option("--tag", "tags", multiple=True, help="Only checks with this tag; may be repeated.")
@click.option("--name", "names", multiple=True, help="Only checks whose name matches; may be repeated.")
@click.option("--environment", "environments", multiple=True, help="Only this environment; may be repeated.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to leave results, reports and logs.  [default: output/ in the suite]",
)
@click.argument("reframe_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- REFRAME_OPTION...]")
@click.pass_context
def run(
    context: click.Context,
    *,
    system: str,
    tags: tuple[str, ...],
    names: tuple[str, ...],
    environments: tuple[str, ...],
    output: Path | None,
    reframe_options: tuple[str, ...],
) -> None:
    """Run the checks of a system, judge them and write the report.

    The exit status is that of the worst verdict: 0 PASS, 1 DEGRADED, 3 FAIL, 4 INCOMPLETE, 5 INVALID; 2 is a mistake
    in what was given.
    """
    from fabricheck.judge.cli import EXIT_CODES
    from fabricheck.session import Selection, Suite, run_suite
    from fabricheck.suite import suite_root

    suite = Suite(suite_root())
    selection = Selection(system, tags, names, environments, reframe_options)
    session = run_suite(suite, selection, output or suite.root / "output")
    outcome = judge_session(session, suite, system.partition(":")[0])
    for line in summary(outcome, session.folder):
        click.echo(line)
    context.exit(EXIT_CODES[outcome.verdict])
