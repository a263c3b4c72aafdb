"""One node without ReFrame: its state, and one rank on each of its GPUs."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fabricheck import mpi
from fabricheck.errors import UserError
from fabricheck.records.node_state import NodeState
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.results.node_state import read_state
from fabricheck.state.programs import ask, module_command


@dataclass(frozen=True)
class RankStart:
    """The result of starting one rank on each GPU: its verdict, and one line of text."""

    verdict: Verdict
    text: str


class NodeHangs(UserError):
    """What asks the node had begun, and was given no answer in time."""


def ask_this_node(seconds: float) -> NodeState:
    """The state of this node, by a process of its own, which may hang in a driver. Raises UserError without one."""
    with tempfile.TemporaryDirectory(prefix="fabricheck-") as folder:
        got = ask(module_command("fabricheck.state.collect", folder, "before"), seconds)
        files = list(Path(folder).glob("*.json"))
        if not files:
            why = got.problem or got.errors.strip() or "no answer"
            # The draft is the first that the process leaves: before, it only loads its modules, from a file system that
            # other nodes may share.
            kind = NodeHangs if got.late and [*Path(folder).glob("*.draft")] else UserError
            raise kind(f"the state of this node cannot be read: {why}")
        return read_state(files[0])


def start_ranks(built: Path, environment: str, gpus: int, seconds: float) -> RankStart:
    """Start one rank of `built`/ENVIRONMENT/fabricbench on each GPU (two without GPUs), each sending to the next.

    Raises UserError where there is no program or no mpirun for it.
    """
    program = built / environment / "fabricbench"
    if not os.access(program, os.X_OK):
        known = ", ".join(sorted(each.parent.name for each in built.glob("*/fabricbench"))) or "none"
        raise UserError(f"no program {program}: environments are {known}; choose with --environment")
    name = next((each for each in mpi.NAMES if environment.startswith(each)), "openmpi")
    installation = mpi.find(name)
    if installation is None:
        raise UserError(f"no mpirun of {name} for {program}: load its module first")
    ranks = gpus or 2
    launch = mpi.launch(name, ranks, mpi.physical_cores())
    with tempfile.TemporaryDirectory(prefix="fabricheck-") as folder:
        output = Path(folder) / "result.jsonl"
        # Without a second GPU there is nobody to send to.
        operation = "local_copy" if ranks == 1 else "unidirectional"
        command = [
            *(str(installation.mpirun), *launch.options, "-n", str(ranks), str(program)),
            f"--transport={'copy' if gpus else 'mpi'}",
            *(f"--operations={operation}", "--schedules=uncontended", "--sizes=1MiB", "--iterations=1", "--warmup=1"),
            *(f"--expect-ranks={ranks}", "--expect-nodes=1", f"--timeout={seconds:g}", f"--output={output}", "--quiet"),
        ]
        path = installation.environment.get("PATH", "$PATH").replace("$PATH", os.environ.get("PATH", ""))
        variables = {**os.environ, **installation.environment, **launch.environment, "PATH": path}
        got = ask(command, seconds, variables)
        what = f"one rank on each of {gpus} GPUs" if gpus else "two ranks on the host"
        if not got.given:
            return RankStart(Verdict.FAIL, f"{what} could not be started: mpirun {got.problem}")
        problems = read_run(output).problems if output.exists() else ()
        if problems or not output.exists():
            why = problems[0].message if problems else "fabricbench left no result"
            return RankStart(problems[0].verdict if problems else Verdict.INCOMPLETE, f"{what}: {why}")
    return RankStart(Verdict.PASS, f"{what} sent data correctly")
