"""The network of a fleet in one job: pairs of all good nodes, the suspects again, and one collective of what is good.

    python -m fabricheck.fleet.screen FLEET LAUNCHER RANKS LIMIT PATIENCE [ITS OPTION]... -- FABRICBENCH OPTION...

Leaves screen.jsonl, retest.jsonl where something was suspected, together.jsonl, and launches.json with what each had to
be. Where a launch fails, the nodes that keep it from starting are found, excluded, and it starts again without them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np

from fabricheck.diagnosis.network.blocked import find_blocked
from fabricheck.diagnosis.network.pair_findings import SlowParts, find_slow_parts
from fabricheck.diagnosis.network.results import OPERATION, RETEST, SCREEN, pairs_again, pairs_of
from fabricheck.diagnosis.network.round_plan import RoundsPlan, retest, screen, write_rounds
from fabricheck.diagnosis.network.routes import Ways
from fabricheck.errors import UserError
from fabricheck.fleet.allocation import is_over
from fabricheck.fleet.record import LAUNCHES, TROUBLES, Fleet, did_not_start, write_findings
from fabricheck.fleet.steps import Ended, run_step, words_of_step
from fabricheck.records.finding import Finding
from fabricheck.records.operations import COLLECTIVES_ONLY
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.results.node_state import FOLDER, read_states
from fabricheck.results.start_failures import start_failures
from fabricheck.state.programs import module_command
from fabricheck.suite import suite_root
from fabricheck.topology.model import Topology, find_topology
from fabricheck.topology.network import Network, node_of
from fabricheck.yardsticks.policy import load_policy

ROUNDS, ROUNDS_AGAIN = 8, 4
# As often nodes may be lost in one launch.
TRIES = 4
# fabricbench's status where all was measured, and some data were wrong.
_MEASURED = (0, 5)
# And where it refuses what it was asked for, which is no node's fault.
_REFUSED = 2
_OWN = ("--operations=", "--schedules=", "--pairs=", "--output=", "--expect-ranks=", "--expect-nodes=")
# Where a start that is none of the measurements leaves its result.
_START = "start"
_COLLECTIVES = ("alltoall", "allreduce")
# The rounds over some nodes, and those of them that have a part in them.
_Rounds = Callable[[Sequence[str]], tuple[RoundsPlan, Sequence[str]]]


@dataclass
class Screen:
    """The launches over the nodes of a fleet, one after another, below the current folder.

    `launcher`: its name and options.
    """

    fleet: Fleet
    ranks: int
    limit_s: float
    patience_s: float
    launcher: Sequence[str]
    program: Sequence[str]
    network: Network
    topology: Topology
    launches: list[dict[str, object]] = field(default_factory=list)

    def run(self) -> bool:
        """Whether all of it was measured."""
        if self.fleet.ended:
            return False
        self._ask_nodes("before")
        whole = self._is_connected() and self._measured()
        self._ask_nodes("after")
        return whole

    def _ask_nodes(self, when: str) -> None:
        """Leaves the state of each good node beside the results, as the job of any test does; it never fails."""
        Path(FOLDER).mkdir(exist_ok=True)
        launcher, *options = self.launcher
        step = words_of_step(launcher, self.fleet.job, self.fleet.good, self.ranks, options)
        ports = ",".join(nic.name for nic in self.topology.nics)
        nodes = str(len(self.fleet.good))
        command = module_command("fabricheck.state.collect", FOLDER, when, nodes, self.program[0], ports)
        run_step([*step, *command], Path(FOLDER) / f"{when}.log", self.patience_s)

    def _is_connected(self) -> bool:
        """Excludes each node whose own port lets nothing through; whether all others reach each other."""
        if not any(Path(FOLDER).glob("*.unconnected")):
            return True
        states = read_states(Path(SCREEN).absolute())
        blocked = [finding for finding in find_blocked(states, self.topology) if finding.is_problem]
        self._blame([replace(finding, verdict=Verdict.FAIL) for finding in blocked if finding.node])
        return all(finding.node for finding in blocked)

    def _measured(self) -> bool:
        if not self._measure(SCREEN, self._screen):
            return False
        parts = self._slow_parts()
        whole = True
        if parts is not None and parts.suspects:
            try:
                whole = self._measure(RETEST, partial(self._retest, parts))
                parts = self._slow_parts() or parts
            except UserError as error:
                sys.stderr.write(f"fabricheck: the suspects were not re-measured: {error}\n")
        suspects = parts.suspects if parts is not None else ()
        slow: set[str] = set()
        for suspect in suspects:
            slow.update(node for part in suspect.components for node in part.nodes)
        good = [node for node in self.fleet.good if node not in slow]
        return self._measure("together.jsonl", None, good) and whole

    def _screen(self, nodes: Sequence[str]) -> tuple[RoundsPlan, Sequence[str]]:
        return screen(Ways(self.network), self._places(nodes), ROUNDS), nodes

    def _retest(self, parts: SlowParts, nodes: Sequence[str]) -> tuple[RoundsPlan, Sequence[str]]:
        """Rounds for the suspects, over the nodes that have a part in them: nothing is known of what others send."""
        suspects = [part.text for suspect in parts.suspects for part in suspect.components]
        plan = retest(Ways(self.network), self._places(nodes), suspects, ROUNDS_AGAIN, seed=1)
        used = {node_of(plan.places[rank]) for each in plan.rounds for rank in each.flatten().tolist()}
        chosen = [node for node in nodes if self.network.node_of_host(node) in used]
        places = self._places(chosen)
        number = np.array([places.index(each) if each in places else -1 for each in plan.places])
        return RoundsPlan(tuple(places), tuple(number[each] for each in plan.rounds)), chosen

    def _places(self, nodes: Sequence[str]) -> list[str]:
        of_each = {node: self.network.ports_of(self.network.node_of_host(node)) for node in nodes}
        return [
            place
            for node in nodes
            for place in (of_each[node] if len(of_each[node]) == self.ranks > 1 else (self.network.node_of_host(node),))
        ]

    def _measure(self, file: str, rounds: _Rounds | None, nodes: Sequence[str] | None = None) -> bool:
        """One launch, again without the nodes with which it fails; whether it was measured in the end."""
        for number in range(1, TRIES + 1):
            chosen: Sequence[str] = [node for node in (nodes or self.fleet.good) if node in self.fleet.good]
            if len(chosen) < 2:
                sys.stderr.write(f"fabricheck: {file}: fewer than two good nodes are left\n")
                return False
            plan, chosen = rounds(chosen) if rounds is not None else (None, chosen)
            words = self._words(file, chosen, plan)
            ended = self._launch(words, chosen, Path(f"{file}.said"), self.limit_s)
            if ended.status in _MEASURED:
                return True
            failed = Path(file)
            if failed.exists():
                failed.rename(f"{file}.failed{number}")  # nothing is lost
            self.launches.pop()
            if is_over(self.fleet):
                return False  # for which no node is to blame
            if ended.status == _REFUSED or not self._exclude(chosen, ended):
                sys.stderr.write(f"fabricheck: {file}: no single node explains the failure: {ended.reason}\n")
                return False
        return False

    def _words(self, file: str, nodes: Sequence[str], plan: RoundsPlan | None) -> list[str]:
        own = [f"--output={file}", f"--expect-ranks={self.ranks * len(nodes)}", f"--expect-nodes={len(nodes)}"]
        operations = [self._operation]
        if plan is None:
            # Of the collectives those that the library has for this memory.
            has_all = "--implementation=transfers" not in self.program
            operations = [each for each in _COLLECTIVES if has_all or each not in COLLECTIVES_ONLY]
            own += ["--schedules=uncontended"]
        else:
            Path(f"{file}.rounds").write_text(write_rounds(plan), encoding="utf-8")
            own += ["--schedules=contended", f"--rounds={file}.rounds"]
        own.append(f"--operations={','.join(operations)}")
        self.launches.append({"file": file, "operations": operations, "nodes": len(nodes)})
        Path(LAUNCHES).write_text(json.dumps(self.launches) + "\n", encoding="utf-8")
        return [*(word for word in self.program if not word.startswith(_OWN)), *own]

    @property
    def _operation(self) -> str:
        """Of pairs: the one that the test asks for."""
        named = (word.partition("=")[2] for word in self.program if word.startswith("--operations="))
        return next(named, OPERATION).partition(",")[0]

    def _launch(self, command: Sequence[str], nodes: Sequence[str], words: Path, limit_s: float) -> Ended:
        launcher, *options = self.launcher
        step = words_of_step(launcher, self.fleet.job, nodes, self.ranks, options)
        ended = run_step([*step, *command], words, limit_s)
        sys.stderr.write(ended.said)  # where the library's log has to be
        return ended

    def _starts(self, nodes: Sequence[str]) -> bool:
        own = [f"--expect-ranks={self.ranks * len(nodes)}", f"--expect-nodes={len(nodes)}", f"--output={_START}"]
        tiny = ["--operations=alltoall", "--schedules=uncontended", "--sizes=8B", "--iterations=10", "--quiet"]
        left = ("--sizes=", "--budget=", "--min-iterations=", "--timeout=", *_OWN)
        command = [*(word for word in self.program if not word.startswith(left)), *own, *tiny, "--timeout=10"]
        Path(_START).unlink(missing_ok=True)  # fabricbench writes over no result
        return self._launch(command, nodes, Path(f"{_START}.said"), self.patience_s).status in _MEASURED

    def _exclude(self, nodes: Sequence[str], ended: Ended) -> bool:
        """Names the nodes that are to blame for a launch; whether there are any."""
        named = tuple(each.node for each in start_failures(ended.said, nodes) if each.node)
        guilty = find_guilty(nodes, self._starts, named)
        told = "MPI failed twice to start with this node, and starts without it"
        if not guilty and len(named) < len(nodes) / 2:
            # It starts with all of them: what was named ended or hung later.
            guilty, told = named, f"MPI starts with this node, but the run did not complete: {ended.reason}"
        findings = [did_not_start(node, told) for node in guilty]
        if is_over(self.fleet):
            return False
        self._blame(findings)
        return bool(findings)

    def _blame(self, findings: Sequence[Finding]) -> None:
        write_findings(Path(TROUBLES), findings)
        self.fleet.exclude(findings)

    def _slow_parts(self) -> SlowParts | None:
        """The parts of the network that explain the pairs so far; None where these do not say."""
        operation = self._operation
        try:
            rounds = pairs_of(read_run(Path(SCREEN)), self.topology, operation=operation)
            again = pairs_again(read_run(Path(RETEST)) if Path(RETEST).exists() else None, self.topology, operation)
            policy = load_policy(suite_root() / "config" / "policy.yaml")
            return find_slow_parts(Ways(self.network), rounds, again, policy, duplex=operation == OPERATION)
        except UserError as error:
            sys.stderr.write(f"fabricheck: the slow part of the network cannot be located: {error}\n")
            return None


#: Whether a program starts over these nodes.
Starts = Callable[[Sequence[str]], bool]

# Of so many nodes all pairs may be tried.
_MOST_FOR_PAIRS = 16


def find_guilty(nodes: Sequence[str], starts: Starts, suspects: Iterable[str] = ()) -> tuple[str, ...]:
    """The nodes with which it does not start, each of them twice, and without which it does; in their order.

    `suspects`: those that something has named already, without which it is tried first. A single node is never started:
    that has been done before. Fewer than half of the nodes are ever named: where more would be, it is not for the
    nodes, and none is. What does not start once and starts the second time is not named.

    Of n nodes with k guilty ones it takes about 2 k log2(n / k) starts, and k for the proof.
    """
    named = set(suspects)
    core = [node for node in nodes if node not in named]
    if not 1 < len(core) < len(nodes) or not starts(core):
        core = _startable_subset(nodes, starts)
    out: list[str] = []
    left = [[node for node in nodes if node not in core]] if core else []
    for group in left:  # which grows
        if not group or starts([*core, *group]):
            core += group
        elif len(group) == 1:
            out += group
        else:
            left += _halves(group)
    if len(core) <= len(out):
        return ()
    proved: set[str] = set()
    for node in out:
        if starts([*core, node]):
            core.append(node)
        else:
            proved.add(node)
    return tuple(node for node in nodes if node in proved)


def _startable_subset(nodes: Sequence[str], starts: Starts) -> list[str]:
    """Nodes that start together: all, else a half, a quarter, and so on; none where no two do."""
    groups = [list(nodes)]
    for group in groups:  # which grows
        if len(group) > 1:
            if starts(group):
                return group
            groups += _halves(group)
    # The good ones of a few may all have stood beside another.
    pairs = combinations(nodes, 2) if len(nodes) <= _MOST_FOR_PAIRS else ()
    return next((list(pair) for pair in pairs if starts(pair)), [])


def _halves(group: Sequence[str]) -> list[list[str]]:
    half = len(group) // 2
    return [list(group[:half]), list(group[half:])]


def main(arguments: Sequence[str]) -> int:
    """Runs the tests of the network in the job of a fleet. Returns 0 if they ran, else 1."""
    at = list(arguments).index("--")
    folder, launcher, ranks, limit, patience, *options = arguments[:at]
    fleet = Fleet.read(Path(folder))
    topology = find_topology(fleet.partition)
    if topology.network is None:
        sys.stderr.write(f"fabricheck: the topology of {fleet.system} has no network: its pairs are not tested\n")
        return 1
    limits, words = (float(limit), float(patience)), (launcher, *options)
    run = Screen(fleet, int(ranks), *limits, words, arguments[at + 1 :], topology.network, topology)
    return 0 if run.run() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
