"""The judge of a system: its topology, its references and the policy, from the files of a suite."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fabricheck.errors import UserError, reason_of
from fabricheck.judge.burn_in import find_notes, first_windows, with_load
from fabricheck.judge.expectations import expect_from_topology
from fabricheck.judge.judge import NO_EXPECTATION, Known, judge_run
from fabricheck.judge.node_state import beside_metrics, with_problems_of_nodes
from fabricheck.judge.run_rules import find_pauses, find_stalls, nics_not_filled, problem_of_gpus, switch_not_used
from fabricheck.judge.siblings import Compared, compare_siblings
from fabricheck.judge.slow_parts import judge_parts
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.case import Case, Key, name_of_header, parse_case
from fabricheck.records.component import short_host
from fabricheck.records.finding import Finding
from fabricheck.records.judgement import Expectation, Reference, Yardstick
from fabricheck.records.metrics import Metric, Quantity, metrics_of
from fabricheck.records.rehearsal import is_rehearsal
from fabricheck.records.run import Run, Samples
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.suite import described, site_root, suite_root
from fabricheck.topology.model import Topology, find_topology, load_topology, partition_files
from fabricheck.topology.network import fold
from fabricheck.topology.placement import with_node_indexes
from fabricheck.yardsticks.nic_values import KnownNic, load_nics, yardsticks_of_nics
from fabricheck.yardsticks.node_levels import is_of, level_on
from fabricheck.yardsticks.part_values import (
    Part,
    RunContext,
    expectation_of_product,
    is_comparable,
    load_parts,
    yardsticks_of_parts,
)
from fabricheck.yardsticks.policy import Policy, load_policy
from fabricheck.yardsticks.published import Published, load_published, yardsticks_of_papers
from fabricheck.yardsticks.references import References, load_references


@dataclass(frozen=True)
class SystemJudge:
    """Everything that a run on one system is judged by. `None` where the system has no such file.

    `parts` and `published`: what the same parts gave elsewhere, and what papers measured on this system; `nics`: what
    owners require of NICs.
    `partitions`: the topologies of partitions that have other nodes than `topology` says, by the partition's name.
    """

    topology: Topology | None
    references: References | None
    policy: Policy
    partitions: Mapping[str, Topology] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    published: tuple[Published, ...] = ()
    nics: tuple[KnownNic, ...] = ()

    @classmethod
    def of(cls, system: str, root: Path | None = None) -> SystemJudge:
        """The judge of a system of the suite at `root` (default: the suite that we are in) or of FABRICHECK_SITES.

        `system` may be `system:partition`: then runs of which nothing states the partition are taken to be of that one.
        Raises UserError for an unknown system and for a file that is not valid.
        """
        root = root or suite_root()
        name, _, partition = system.partition(":")
        site = site_root(name, root)
        site_configs, references = site / "site_configs", site / "reference_values" / f"{name}.yaml"
        papers = site / "reference_values" / "published" / f"{name}.yaml"
        partitions = {one: load_topology(file) for one, file in partition_files(name, site_configs).items()}
        topology = partitions.get(partition) or find_topology(name, site_configs)
        has_gpus = any(each.gpus for each in (topology, *partitions.values()))
        folders = [each / "reference_values" / "parts" for each in dict.fromkeys((site, root))] if has_gpus else []
        return cls(
            topology,
            load_references(references) if references.exists() else None,
            load_policy(root / "config" / "policy.yaml"),
            partitions,
            tuple(part for folder in folders for part in load_parts(folder)),
            load_published(papers) if papers.exists() else (),
            load_nics(root / "reference_values" / "nics" / "known.yaml"),
        )

    @classmethod
    def of_any(cls, system: str) -> SystemJudge:
        """As `of`, also of a system that has no folder: without a topology no model says what anything should be."""
        if described(system):
            return cls.of(system)
        return cls(None, None, load_policy(suite_root() / "config" / "policy.yaml"))

    @classmethod
    def of_parts(cls) -> SystemJudge:
        """Without a system: by what the parts gave elsewhere alone."""
        root = suite_root()
        parts = tuple(load_parts(root / "reference_values" / "parts"))
        return replace(cls.of_any(""), parts=parts)

    def topology_of(self, partition: str) -> Topology | None:
        """The topology of a `system:partition`; the system's own where that has none, or is empty."""
        return self.partitions.get(partition.partition(":")[2], self.topology)

    def judge(self, run: Run, test: str | None = None, attributes: Mapping[str, Key] | None = None) -> RunJudgement:
        """The judgement of `run`, against the references of the ReFrame test class `test`.

        `attributes` are those of the test by which references are indexed, such as `$partition`. Without `test`, or
        where the system has no references of it, all metrics are uncalibrated; and so are those of a rehearsal.
        """
        return self.compare((self.judge_alone(run, test, attributes),)).runs[0]

    def judge_cases(self, measured: Iterable[tuple[Case, Run]]) -> Compared:
        """The runs of a session, each with the test case that it is the result of, and what they show together."""
        return self.compare(
            [
                replace(
                    self.judge_or_invalid(run, case.test, case.attributes),
                    test=str(case),
                    nodes=int(case.attributes.get("partition_nodes", 0)),
                    trusted=case.trusts_its_run,
                )
                for case, run in measured
            ]
        )

    def compare(self, runs: Sequence[RunJudgement]) -> Compared:
        """The runs of a session, judged by `judge_alone`, with what their peers, the metrics of a part together
        and, of slow ones, their nodes say."""
        compared = compare_siblings(runs, self.policy)
        judged = judge_parts(compared.runs, self.references)
        told = (each for run in judged for each in (*find_stalls(run), *find_pauses(run)) if not each.is_problem)
        notes = (each for run in judged for each in find_notes(run))
        findings = (*self._other_nodes(judged), *told, *notes)
        return Compared(beside_metrics(judged), compared.problems, findings)

    def _other_nodes(self, runs: Sequence[RunJudgement]) -> Iterator[Finding]:
        """Of runs on other nodes than those of their references that has to be known."""
        known = self.references.nodes if self.references is not None else {}
        for run, (source, nodes) in itertools.product(runs, known.items()):
            hosts = {short_host(rank.host) for rank in run.run.ranks}
            measured = {short_host(node) for node in nodes}
            others = hosts - measured if measured else set()
            if others and any(each.reference is not None and is_of(each.reference, source) for each in run.judgements):
                text = f"ran on {fold(others)}, and its references were measured on {fold(measured)}"
                yield Finding("other-nodes", Verdict.PASS, f"{run.test or run.run.path}: {text}")

    def judge_alone(
        self, run: Run, test: str | None = None, attributes: Mapping[str, Key] | None = None
    ) -> RunJudgement:
        """As `judge`, without comparing peers."""
        attributes = attributes or {}
        topology = self.topology_of(str(attributes.get("$partition", "")))
        run = with_load(with_node_indexes(run, topology), topology, self.policy)
        by_model = expect_from_topology(run, topology, self.policy) if topology else lambda *_: NO_EXPECTATION

        def expect(samples: Samples, quantity: Quantity) -> Expectation:
            return expectation_of_product(self.parts, run, samples) or by_model(samples, quantity)

        known = self._known(run, topology)
        judged = judge_run(run, expect, self._references(run, test, attributes), self.policy, known)
        if topology is not None:
            unused = switch_not_used(judged, topology), nics_not_filled(judged, topology, self.policy)
            problems = (*unused, problem_of_gpus(run, topology))
            judged = judged.with_problems([each for each in problems if each is not None])
        judged = replace(with_problems_of_nodes(judged, topology), topology=topology)
        stopped = (*find_stalls(judged), *find_pauses(judged))
        return judged.with_problems([each for each in stopped if each.is_problem])

    def _known(self, run: Run, topology: Topology | None) -> Known:
        facts, comparable = RunContext(run, topology), is_comparable(run)

        def known(metric: Metric, expectation: Expectation) -> Iterator[Yardstick]:
            if comparable:
                yield from yardsticks_of_parts(self.parts, metric, expectation, facts, self.policy)
                yield from yardsticks_of_papers(self.published, metric, expectation, facts, self.policy)
            if (first := first_windows(metric, run, self.policy)) is not None:
                yield first
            if run.header and not is_rehearsal(run):  # host memory's, too
                yield from yardsticks_of_nics(self.nics, metric, facts)

        return known

    def judge_or_invalid(
        self, run: Run, test: str | None = None, attributes: Mapping[str, Key] | None = None
    ) -> RunJudgement:
        """As `judge_alone`, for one of many runs: where it cannot be judged, it is INVALID and says why.

        A run on nodes or devices that the topology does not have, or a mistake in Fabricheck, must not cost what was
        measured beside it. Its metrics are kept, with nothing to judge them by.
        """
        try:
            return self.judge_alone(run, test, attributes)
        except Exception as error:  # whatever it is, the other runs are judged and all are stored
            problem = Finding("cannot-be-judged", Verdict.INVALID, f"{run.path}: cannot be judged: {reason_of(error)}")
        try:
            judged = judge_run(run, lambda *_: NO_EXPECTATION, {}, self.policy)
        except Exception:
            judged = RunJudgement(run, Verdict.INVALID, run.problems, ())
        return judged.with_problems([problem], first=True)

    def _references(self, run: Run, test: str | None, attributes: Mapping[str, Key]) -> Mapping[str, Reference]:
        if self.references is None or test is None or test not in self.references.tests or not run.header:
            return {}
        # They are of the real system, whose rates are others.
        if is_rehearsal(run):
            return {}
        references = self.references.of(test).lookup({**_measured(run), **attributes})
        if not any(each.nodes for each in references.values()):
            return references
        hosts = {rank.rank: short_host(rank.host) for rank in run.ranks}
        on = {each.name: frozenset(hosts[rank] for rank in each.samples.ranks) for each in metrics_of(run)}
        return {name: level_on(each, on[name]) for name, each in references.items() if name in on}


def _measured(run: Run) -> dict[str, Key]:
    """The attributes that references are indexed by and that a run says itself; none without a header."""
    if not run.header:
        return {}
    return {name: run.header[name] for name in ("transport", "backend")} | {"num_tasks": len(run.ranks)}


@dataclass(frozen=True)
class ByHand:
    """Judges result files that ReFrame does not hand over, each alone: of which test one is, its header says.

    `judge`: that of a system, by its name; "" where there is none. `system`: whose judge counts, which may be
    `system:partition`; "" is that of the file. `test`, by class or as printed, and `attributes` replace the file's.
    """

    judge: Callable[[str], SystemJudge]
    system: str = ""
    test: str = ""
    attributes: Mapping[str, Key] = field(default_factory=dict)

    def read(self, file: Path) -> Judged:
        """A file, judged. Raises UserError where it is contradicted, and for a test that has no references."""
        run = read_run(file)
        own_test, own = case_of_header(run)
        test, told = parse_case(self.test)
        told |= {"$partition": self.system} if ":" in self.system else {}
        told |= self.attributes
        for name, value in _measured(run).items():
            if told.get(name, value) != value:
                text = f"{name} is {value} in the file and {told[name]} in --test or --key"
                raise UserError(f"{file}: {text}: correct the option, or leave it out")
        attributes = {**own, **told}
        system = self.system.partition(":")[0] or str(attributes.get("$partition", "")).partition(":")[0]
        judge = self.judge(system)
        tests = judge.references.tests if judge.references is not None else {}
        if test:
            if not tests:
                raise UserError(f"{system} has no references: leave out --test {test!r}")
            assert judge.references is not None
            judge.references.of(test)
        test = test or own_test or (next(iter(tests)) if len(tests) == 1 else "")
        judged = judge.judge_alone(run, test or None, attributes)
        return Judged(replace(judged, test=name_of_header(run.header)), judge, attributes, tuple(() if test else tests))


@dataclass(frozen=True)
class Judged:
    """A result file that was judged by hand.

    `attributes`: what is known of its test. `tests`: whose references were left out, since it is unknown which it is
    of.
    """

    run: RunJudgement
    judge: SystemJudge
    attributes: Mapping[str, Key]
    tests: tuple[str, ...]

    @property
    def system(self) -> str:
        """The system without the partition."""
        return self.partition.partition(":")[0]

    @property
    def partition(self) -> str:
        """`system:partition`; empty where nothing states it."""
        return str(self.attributes.get("$partition", ""))


def case_of_header(run: Run) -> tuple[str, dict[str, Key]]:
    """Class and attributes of the test that a result file says it is of; nothing where it was measured by hand."""
    try:
        test, attributes = parse_case(name_of_header(run.header))
    except UserError:
        return "", {}
    return (test, attributes) if "$partition" in attributes else ("", {})


def without_references(judged: Sequence[Judged]) -> str:
    """A line on the files whose references were left out; empty where there is none."""
    files = [each for each in judged if each.tests]
    if not files:
        return ""
    which = files[0].run.run.path if len(files) == 1 else f"{len(files)} files"
    return f"{which}: not compared with references: give --test, one of {', '.join(files[0].tests)}"
