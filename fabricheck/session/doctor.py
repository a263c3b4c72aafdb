"""One node without ReFrame: its state, one rank on each of its GPUs, and how fast these copy and multiply."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fabricheck import mpi
from fabricheck.errors import UserError
from fabricheck.records.node_state import NodeState, States
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.results.node_state import read_state
from fabricheck.state.programs import ask, module_command
from fabricheck.topology.placement import gpu_of_ranks

#: How long GPUs multiply: windows of a second or little more, of which peers need five.
MULTIPLY_S = 8.0
#: For what asks the node to write down what it was told, and to end.
WRITES_S = 0.3


@dataclass(frozen=True)
class RankStart:
    """The result of starting one rank on each GPU: its verdict, and one line of text."""

    verdict: Verdict
    text: str


def ask_this_node(seconds: float) -> NodeState:
    """The state of this node, without what does not answer in time, by a process that may hang in a driver.

    Raises UserError where there is none at all.
    """
    with tempfile.TemporaryDirectory(prefix="fabricheck-") as folder:
        until = time.monotonic() + seconds - WRITES_S
        got = ask(module_command("fabricheck.state.collect", folder, "before", "1", "", "", str(until)), seconds)
        files = list(Path(folder).glob("*.json"))
        if not files:
            raise UserError(
                f"the state of this node cannot be read: {got.problem or got.errors.strip() or 'no answer'}"
            )
        return read_state(files[0])


def start_ranks(built: Path, environment: str, gpus: int, seconds: float) -> RankStart:
    """Start one rank of `built`/ENVIRONMENT/fabricbench on each GPU (two without GPUs), each sending to the next.

    Raises UserError where there is no program or no mpirun for it.
    """
    # Without a second GPU there is nobody to send to.
    operation = "local_copy" if gpus == 1 else "unidirectional"
    options = [f"--transport={'copy' if gpus else 'mpi'}", f"--operations={operation}", "--sizes=1MiB"]
    run = _measured(built, environment, gpus, seconds, [*options, "--iterations=1", "--warmup=1"])
    if isinstance(run, RankStart):
        return run
    if wrong := sum(samples.wrong_bytes for samples in run.samples):
        return RankStart(Verdict.FAIL, f"{_ranks_text(gpus)} received {wrong:,} wrong bytes")
    return RankStart(Verdict.PASS, f"{_ranks_text(gpus)} sent data correctly")


def measure_gpus(
    built: Path, environment: str, state: NodeState, seconds: float, system: str | None
) -> Iterator[tuple[Verdict | None, str]]:
    """Copy 1 GiB in the memory of each GPU of this node, one after another, by a kernel as STREAM's copy; then multiply
    matrices on all of them for MULTIPLY_S seconds, each product compared with the first. Judges both rates.

    By what is known of `system`, and of the GPU model. A verdict and a line for each GPU and rate, None where nothing
    is known of how fast it multiplies; and for each problem. Raises UserError as `start_ranks`.
    """
    from fabricheck.judge.system import SystemJudge  # a prolog has no second for these
    from fabricheck.report.content import shown_kind

    judge = SystemJudge.of(system) if system is not None else SystemJudge.of_parts()
    options = ["--transport=kernel", "--operations=local_copy", "--sizes=1GiB", "--budget=0.5"]
    options += [f"--burn-in={MULTIPLY_S:g}", "--compute-only"]
    run = _measured(built, environment, len(state.gpus), seconds, options)
    if isinstance(run, RankStart):
        yield run.verdict, run.text
        return
    compared = judge.compare([judge.judge_alone(run)])
    indices = gpu_of_ranks(replace(run, states=States(before={state.host: state})))
    judged, product = compared.runs[0], run.product
    for metric in judged.judgements:
        rank, known, why = metric.samples.ranks[0], metric.yardstick, metric.reason
        verdict: Verdict | None = metric.verdict
        per_unit, what, unit = 8.0, "copies", "GB/s in its memory"
        if product is not None and metric.samples.operation == "product":
            by = "a kernel of our own" if product.by[rank] == "kernel" else product.by[rank]
            per_unit, what, unit = product.gbps_of_tflops, "multiplies", f"Tflop/s of {product.type} by {by}"
            if metric.unjudged:
                verdict, why = None, "not judged, nothing is known of this library and model"
        if known is not None:
            why = f"{metric.value / known.value:.0%} of {known.value / per_unit:,.0f} ({shown_kind(known.kind)})"
        yield verdict, f"GPU {indices[rank]}: {what} {metric.value / per_unit:,.0f} {unit}: {why}"
    yield from ((problem.verdict, problem.message) for problem in (*judged.problems, *compared.problems))


def _measured(built: Path, environment: str, gpus: int, seconds: float, options: Sequence[str]) -> Run | RankStart:
    """What one rank on each GPU (two without GPUs) measured, or why there is no complete result."""
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
        command = [
            *(str(installation.mpirun), *launch.options, "-n", str(ranks), str(program), *options),
            *("--schedules=uncontended", f"--expect-ranks={ranks}", "--expect-nodes=1"),
            *(f"--timeout={seconds:g}", f"--output={output}", "--quiet"),
        ]
        path = installation.environment.get("PATH", "$PATH").replace("$PATH", os.environ.get("PATH", ""))
        variables = {**os.environ, **installation.environment, **launch.environment, "PATH": path}
        got = ask(command, seconds, variables)
        what = _ranks_text(gpus)
        run = read_run(output) if output.exists() else None
        # With wrong data it ends with an exit status of its own, and the file is whole.
        if not got.given and (run is None or run.footer is None):
            own = [line for line in got.errors.splitlines() if line.startswith("fabricbench:")]
            why = own[0] if own and not got.late else f"could not be started: mpirun {got.problem}"
            return RankStart(Verdict.FAIL, f"{what} {why}")
    if run is None or run.problems:
        why = run.problems[0].message if run is not None else "fabricbench left no result"
        return RankStart(run.problems[0].verdict if run is not None else Verdict.INCOMPLETE, f"{what}: {why}")
    return run


def _ranks_text(gpus: int) -> str:
    return f"one rank on each of {gpus} GPUs" if gpus else "two ranks on the host"
