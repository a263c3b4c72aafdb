"""`fabricheck judge`: the verdict on result files, by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fabricheck.judge.policy import Policy
    from fabricheck.judge.references import References
    from fabricheck.judge.verdicts import RunJudgement
    from fabricheck.topology import Topology

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("files", nargs=-1, required=True, type=_FILE, metavar="FILE...")
@click.option("--system", help="A system below site_configs/: its topology, and its references where it has some.")
@click.option("--topology", type=_FILE, help="A topology file, in place of the system's.")
@click.option("--references", type=_FILE, help="A file of references, in place of the system's.")
@click.option("--test", help="The ReFrame test class whose references count; not needed where the file has only one.")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="NAME=VALUE",
    help="An attribute that the references are indexed by, such as '$partition=daint:gpu'. "
    "The transport, the port and num_tasks are those of the run.",
)
@click.option("--policy", type=_FILE, help="A policy file, in place of config/policy.yaml.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def judge(
    context: click.Context,
    *,
    files: tuple[Path, ...],
    system: str | None,
    topology: Path | None,
    references: Path | None,
    test: str | None,
    keys: tuple[str, ...],
    policy: Path | None,
    as_json: bool,
) -> None:
    """Judge result files of fabricbench.

    Without --system and --topology nothing is expected of the hardware, and without references nothing is known of
    the system; a metric with neither is INVALID.

    The exit status is that of the worst verdict: 0 PASS, 1 DEGRADED, 3 FAIL, 4 INCOMPLETE, 5 INVALID; 2 is a mistake
    in what was given.
    """
    from fabricheck.judge.as_json import run_as_json
    from fabricheck.judge.judge import worst
    from fabricheck.judge.system import SystemJudge, choose_test, parse_attribute
    from fabricheck.judge.verdicts import EXIT_CODES
    from fabricheck.results.fabricbench import read_run

    rules = _policy(policy)
    model = _topology(system, topology)
    known = _references(system, references)
    judge = SystemJudge(model, known, rules)
    if known is not None and known.tests:
        test = choose_test(known, test)
    attributes = dict(parse_attribute(each) for each in keys)
    judged = []
    for file in files:
        judged.append(judge.judge(read_run(file), test, attributes))
    if as_json:
        click.echo(json.dumps([run_as_json(each) for each in judged], indent=2, allow_nan=False))
    else:
        for each in judged:
            for line in _table(each):
                click.echo(line)
    context.exit(EXIT_CODES[worst(each.verdict for each in judged)])


def _policy(path: Path | None) -> Policy:
    from fabricheck.judge.policy import load_policy
    from fabricheck.suite import suite_root

    return load_policy(path if path is not None else suite_root() / "config" / "policy.yaml")


def _topology(system: str | None, path: Path | None) -> Topology | None:
    from fabricheck.suite import suite_root
    from fabricheck.topology import find_topology, load_topology

    if path is not None:
        return load_topology(path)
    return find_topology(system, suite_root() / "site_configs") if system is not None else None


def _references(system: str | None, path: Path | None) -> References | None:
    from fabricheck.judge.references import load_references
    from fabricheck.suite import suite_root

    if path is None and system is not None:
        own = suite_root() / "reference_values" / f"{system}.yaml"
        path = own if own.exists() else None
    return load_references(path) if path is not None else None


def _table(judged: RunJudgement) -> Iterable[str]:
    yield f"{judged.verdict.value}  {judged.run.path}"
    for problem in judged.problems:
        yield f"  {problem.verdict.value:10}  {problem.message}"
    for each in judged.judgements:
        yield f"  {each.verdict.value:10}  {each.name}: {each.reason}"
