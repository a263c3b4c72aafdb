"""Plants the faults of clusters of GPUs on systems in miniature, and keeps a row of what came of each.

    python -m fabricheck_lab.rehearse_faults            # as root: every system and fault without a good row
    python -m fabricheck_lab.rehearse_faults --systems lumi --minutes 5
    python -m fabricheck_lab.rehearse_faults --again --faults "a GPU is missing"

A row is kept in --rows as soon as it is measured, and --output written again, so that a run that was ended goes on
where it stopped. The exit status is 1 where a fault passed, or where no line names the part that is broken.

Long because the faults and what has to be said of each are one table.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fabricheck.topology.model import find_topology
from fabricheck_lab import faults
from fabricheck_lab.cluster import Cluster
from fabricheck_lab.description import bus_id
from fabricheck_lab.emulate_faults import fault as command
from fabricheck_lab.network_suite import line_of
from fabricheck_lab.rehearsal import suite_of, up_in_miniature, variables_of
from fabricheck_lab.rehearse import ROOT, commit, without_paths

NAME = "gpufaults"
NODES = ("nid001", "nid002")
_PATIENCE_S = 420


@dataclass(frozen=True)
class Shape:
    """What faults need to know of a system. `link`: two ends of a link of GPUs; `nvlinks`: how many a GPU has."""

    system: str
    gpus: tuple[str, ...]
    link: tuple[str, str]
    nics: tuple[str, ...]
    nvlinks: int
    pcie: str
    throttled: str
    mpi_path: str

    def gpu(self, number: int) -> str:
        """The GPU's name in messages of nodes."""
        return f"GPU {number}"


def _named(prefix: str, count: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{number}" for number in range(count))


SHAPES = (
    Shape(
        "alps",
        _named("gpu", 4),
        ("gpu0", "gpu1"),
        _named("hsn", 4),
        18,
        "Gen 3 x16 of Gen 5 x16",
        "thermal slowdown",
        "OFI/cxi",
    ),
    Shape(
        "lumi",
        _named("gcd", 8),
        ("gcd1", "gcd5"),
        _named("hsn", 4),
        0,
        "Gen 3 x16 of Gen 5 x16",
        "is throttled",
        "OFI/cxi",
    ),
    Shape(
        "dgx-a100",
        _named("gpu", 8),
        ("gpu1", "nvswitch"),
        _named("ib", 8),
        12,
        "Gen 3 x16 of Gen 4 x16",
        "thermal slowdown",
        "InfiniBand",
    ),
)


@dataclass(frozen=True)
class Fault:
    """A fault, and what has to come of it.

    `plant`: words of `fabricheck emulate fault`, one command each; `check`: what is run. `said`: what one line of one
    of the `verdicts` has to have: code and component in brackets, or the name where the finding has no component.
    `impatient`: what hangs ends soon. `during`: it is planted once the check measures. `mpi_path`: the path of MPI that
    topology.yaml has meanwhile.
    """

    what: str
    plant: tuple[str, ...]
    check: str
    said: tuple[str, ...]
    verdicts: tuple[str, ...]
    impatient: bool = False
    during: bool = False
    mpi_path: str = ""

    @property
    def options(self) -> tuple[str, ...]:
        """Those of `fabricheck run`."""
        more = ("--", f"--setvar={self.check.split()[0]}.timeout=4") if self.impatient else ()
        return (f"--name={self.check}$", *more)

    @property
    def how(self) -> str:
        """How it was planted, for the table."""
        path = [f"topology.yaml says that MPI takes {self.mpi_path}"] if self.mpi_path else []
        when = " during the run" if self.during else ""
        return "; ".join([*(f"fault {each}" for each in self.plant), *path]) + when


PEERS, NODES_CCL, NODES_MPI = "SmokePeers", "SmokeNodes %transport=ccl", "SmokeNodes %transport=mpi"
NODE_CCL, PAIRS = "SmokeLibraries %transport=ccl", "NodePairs %transport=ccl"
_SLOW, _STATE, _WRONG, _ENDED = ("DEGRADED", "FAIL"), ("DEGRADED",), ("INVALID",), ("INCOMPLETE",)


def faults_of(shape: Shape) -> Iterator[Fault]:
    """The faults that apply to a system. Long because it is the table of them."""
    gpus, nics = shape.gpus, shape.nics
    topology = find_topology(shape.system, ROOT / "site_configs")
    bus = {gpu.name: bus_id(topology, gpu) for gpu in topology.gpus}
    source, destination = shape.link
    yield Fault(
        "a link between GPUs at half rate",
        (f"gpu-link nid001 {source} {destination} 50",),
        PEERS,
        ("[slow-", f"nid001:{source}"),
        _SLOW,
    )
    yield Fault(
        "a link between GPUs slow in one direction",
        (f"gpu-link nid001 {source} {destination} 40 --one-side",),
        PEERS,
        ("[slow-", f"nid001:{source}"),
        _SLOW,
    )
    if shape.nvlinks:
        said = f"[gpu-links-down nid001:{gpus[0]}]"
        yield Fault("one NVLink down", ("nvlink-down nid001 0 7",), PEERS, (said, bus[gpus[0]]), _STATE)
    yield Fault("a GPU is missing", (f"gpu-missing nid002 {gpus[1]}",), NODES_CCL, ("nid002", bus[gpus[1]]), _ENDED)
    yield Fault("a GPU is missing, on one node alone", (f"gpu-missing nid001 {gpus[1]}",), PEERS, ("nid001",), _ENDED)
    yield Fault(
        "PCIe at Gen 3",
        ("pcie nid001 1 3",),
        PEERS,
        (f"[pcie-reduced nid001:{gpus[1]}]", shape.pcie, bus[gpus[1]]),
        _STATE,
    )
    yield Fault(
        "a throttled GPU",
        (f"gpu-slow nid001 {gpus[2]} 20",),
        PEERS,
        (f"[gpu-throttled nid001:{gpus[2]}]", shape.throttled, bus[gpus[2]]),
        _STATE,
    )
    yield Fault(
        "GPUs in another order on one node",
        (f"gpu-order nid002 {gpus[1]} {gpus[0]}",),
        NODES_CCL,
        ("[nodes-differ nid002]", "order of GPUs", f"{bus[gpus[1]]}, {bus[gpus[0]]}"),
        _STATE,
    )
    yield Fault(
        "GPUDirect RDMA lost on one node",
        ("gdr-lost nid002",),
        NODES_CCL,
        ("[path-forbidden", "nid002, GPU 0", bus[gpus[0]]),
        _WRONG,
    )
    yield Fault(
        "GPUDirect RDMA lost on one GPU",
        (f"gdr-lost nid001 {gpus[2]}",),
        PAIRS,
        ("[path-forbidden", "nid001, GPU 2", bus[gpus[2]]),
        _WRONG,
    )
    yield Fault(
        "the NIC of a rail at half rate", (f"slow nid002:{nics[1]} 50",), PAIRS, ("[slow-", f"nid002:{nics[1]}"), _SLOW
    )
    yield Fault(
        "a NIC down",
        (f"unplug nid002:{nics[1]}",),
        PAIRS,
        (f"nid002: {nics[1]}: its link is down",),
        _ENDED,
        impatient=True,
    )
    yield Fault(
        "a GPU on another NIC than described",
        (f"gpu-nic nid002 {gpus[0]} {nics[1]}",),
        PAIRS,
        (f"[nic-association nid002:{nics[0]}]", nics[1]),
        _WRONG,
    )
    yield Fault(
        "*CCL over host memory",
        ("variable nid001 NCCL_P2P_DISABLE=1",),
        NODE_CCL,
        ("[path-forbidden", "SHM", "P2P"),
        _WRONG,
    )
    yield Fault(
        "*CCL over sockets on one node", ("no-plugin nid002",), NODES_CCL, ("[path-forbidden", "nid002"), _WRONG
    )
    on_infiniband = shape.mpi_path == "InfiniBand"
    plugin, path = ("ofi", "NET/AWS Libfabric") if on_infiniband else ("none", "NET/Socket")
    yield Fault(
        "the wrong network plugin of *CCL",
        tuple(f"variable {node} NCCL_NET_PLUGIN={plugin}" for node in NODES),
        NODES_CCL,
        ("[path-forbidden", path, f"NCCL_NET_PLUGIN={plugin} is set"),
        _WRONG,
    )
    yield Fault("MPI over TCP", (), NODES_MPI, ("[path-forbidden", shape.mpi_path), _WRONG, mpi_path=shape.mpi_path)
    management = tuple(f"variable {node} OMPI_MCA_btl_tcp_if_include=mgmt0" for node in NODES)
    yield Fault("MPI over the management network", management, NODES_MPI, ("[wrong-network", "nid00"), _WRONG)
    yield Fault(
        "another driver on one node",
        ("version nid002 driver 550.1",),
        NODES_CCL,
        ("[nodes-differ nid002]", "GPU driver", "550.1"),
        _STATE,
    )
    yield Fault(
        "another *CCL on one node",
        ("version nid002 ccl 22005",),
        NODES_CCL,
        ("[nodes-differ nid002]", "library ccl", "2.20.5"),
        _STATE,
    )
    yield Fault(
        "another process on a GPU",
        (f"other-process nid001 {gpus[0]}",),
        PEERS,
        (f"[gpu-in-use nid001:{gpus[0]}]", bus[gpus[0]]),
        _WRONG,
    )
    yield Fault(
        "a hung GPU", (f"hung-gpu nid001 {gpus[2]}",), PEERS, ("nid001, GPU 2", bus[gpus[2]]), _ENDED, impatient=True
    )
    yield Fault(
        "a hung GPU on another node",
        (f"hung-gpu nid002 {gpus[2]}",),
        NODES_CCL,
        ("nid002", bus[gpus[2]]),
        _ENDED,
        impatient=True,
    )
    yield Fault("a node that is down", ("node-down nid002",), NODES_CCL, ("nid002",), _ENDED)
    yield Fault(
        "a node that dies during the run",
        ("node-down nid002",),
        PAIRS,
        ("nid002",),
        _ENDED,
        impatient=True,
        during=True,
    )


#: Faults that can be planted at once: each has a line of its own.
TOGETHER = (
    ("one NVLink down", "PCIe at Gen 3", "a throttled GPU", "another process on a GPU"),
    (
        "GPUs in another order on one node",
        "GPUDirect RDMA lost on one node",
        "another driver on one node",
        "another *CCL on one node",
    ),
    ("GPUDirect RDMA lost on one GPU", "a GPU on another NIC than described"),
)


def grouped(faults_: Sequence[Fault]) -> list[list[Fault]]:
    """The faults in their order, those that can be planted at once together."""
    groups: dict[str, list[Fault]] = {}
    for fault in faults_:
        names = next((names for names in TOGETHER if fault.what in names), (fault.what,))
        groups.setdefault(names[0], []).append(fault)
    return list(groups.values())


@dataclass(frozen=True)
class Row:
    """What came of a fault. `named`: whether a line of the expected verdict says what is broken and where."""

    system: str
    fault: str
    how: str
    check: str
    verdict: str
    exit_status: int
    line: str
    named: bool
    wall_s: float
    when: str
    commit: str


@dataclass(frozen=True)
class Told:
    """What `fabricheck run` came to. `verdict`: its verdict.json, empty where there is none.

    `lines`: of all that is not green the verdict, and the message with code and components at its end; the session's
    own first.
    """

    status: int
    output: str
    verdict: Mapping[str, Any]
    lines: tuple[tuple[str, str], ...]

    def line(self, fault: Fault) -> tuple[str, str] | None:
        """The first line of a verdict that the fault has to have, with all its words."""
        fitting = (one for one in self.lines if one[0] in fault.verdicts and all(word in one[1] for word in fault.said))
        return next(fitting, None)


def plant(cluster: Cluster, fault: Fault) -> None:
    """Plant it with the command of users. Raises UserError where that does not work."""
    for words in fault.plant:
        command.main([*words.split(), f"--name={cluster.layout.name}"], standalone_mode=False)
    if fault.mpi_path:
        _describe_mpi(cluster, "TCP", fault.mpi_path)


def clear(cluster: Cluster, fault: Fault) -> None:
    """Bring everything in order again."""
    cluster.run(["scancel", "--user=root"], timeout_s=20)
    faults.clear(cluster)
    if fault.mpi_path:
        _describe_mpi(cluster, fault.mpi_path, "TCP")


def _describe_mpi(cluster: Cluster, old: str, new: str) -> None:
    suite = suite_of(cluster.layout.name)
    assert suite is not None
    (file,) = (suite / "site_configs").glob("*/topology.yaml")
    text = file.read_text(encoding="utf-8")
    assert f"mpi: {old}" in text, file
    file.write_text(text.replace(f"mpi: {old}", f"mpi: {new}"), encoding="utf-8")


def run(cluster: Cluster, folder: Path, *options: str) -> Told:
    """`fabricheck run` on the login node, with these options; results are left in `folder`."""
    system = f"--system={cluster.layout.topology.system}"
    words = [
        sys.executable,
        "-m",
        "fabricheck",
        "run",
        system,
        "--launches=2",
        "--no-store",
        f"--output={folder}",
        *options,
    ]
    done = cluster.run(words, timeout_s=_PATIENCE_S, environment=variables_of(cluster.layout.name))
    sessions = [*(folder / "runs").glob("*/verdict.json")]
    if len(sessions) != 1:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        return Told(done.returncode, done.stdout, {}, tuple(("refused", each) for each in said[-1:]))
    told = json.loads(sessions[0].read_text(encoding="utf-8"))
    return Told(done.returncode, done.stdout, told, tuple(lines_of(told)))


def lines_of(told: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Verdict and message, code and components of everything in a verdict.json that is not green."""
    for problem in (*told["problems"], *(one for one_run in told["runs"] for one in one_run["problems"])):
        yield problem["verdict"], line_of(problem).removeprefix(f"{problem['verdict']}: ")
    for one_run in told["runs"]:
        for metric in one_run["metrics"]:
            if metric["verdict"] != "PASS":
                yield metric["verdict"], f"{metric['name']}: {metric['reason']} [{metric['code']}]"


def measure(cluster: Cluster, faults_: Sequence[Fault], folder: Path | None = None) -> tuple[Told, list[Row]]:
    """Plant faults of one check at once, run it, and clear them again: what it came to, and a row of each."""
    check = re.sub(r"\W+", "-", faults_[0].what)
    system = cluster.layout.topology.system
    folder = folder or ROOT / "output" / "gpu-faults" / f"{system}-{check}-{time.time_ns()}"
    began = time.monotonic()
    try:
        if faults_[0].during:
            told = _run_and_plant(cluster, faults_[0], folder)
        else:
            for fault in faults_:
                plant(cluster, fault)
            told = run(cluster, folder, *dict.fromkeys(option for fault in faults_ for option in fault.options))
    finally:
        for fault in faults_:
            clear(cluster, fault)
    others = len(faults_) - 1
    return told, [row_of(cluster, fault, told, time.monotonic() - began, others) for fault in faults_]


def row_of(cluster: Cluster, fault: Fault, told: Told, wall_s: float, others: int) -> Row:
    """What came of a fault in a session, in which `others` were planted at the same time."""
    named_line = told.line(fault)
    of_session = str(told.verdict.get("verdict", "refused"))
    verdict, line = named_line or next(iter(told.lines), (of_session, ""))
    return Row(
        system=cluster.layout.topology.system,
        fault=fault.what,
        how=f"{fault.how} (at once with {others} other{'s' if others > 1 else ''})" if others else fault.how,
        check=fault.check,
        verdict=of_session,
        exit_status=told.status,
        line=without_paths(f"{verdict}: {line}") if line else "none",
        named=named_line is not None and told.status != 0,
        wall_s=round(wall_s, 1),
        when=f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M}",
        commit=commit(),
    )


def _run_and_plant(cluster: Cluster, fault: Fault, folder: Path) -> Told:
    """Run the check, and plant the fault once it has written the first of its results."""
    box: list[Told] = []
    thread = threading.Thread(target=lambda: box.append(run(cluster, folder, *fault.options)))
    thread.start()
    while thread.is_alive():
        if any('"samples"' in file.read_text(errors="replace") for file in folder.glob("runs/*/stage/**/result.jsonl")):
            plant(cluster, fault)
            break
        time.sleep(0.2)
    thread.join()
    return box[0]


# The table ------------------------------------------------------------------------------------------------------------

_HEAD = """# Faults of clusters of GPUs

Planted on two nodes of each system in miniature ([emulated nodes](README.md)) by `fabricheck emulate fault`,
and looked for with one check. No number here is a measurement of a real system.
`python -m fabricheck_lab.rehearse_faults` plants one at a time, or with
`--together` several that each have a line of their own, and writes this table;
tests/faults/test_rehearsal.py, which continuous integration runs, plants some of them again on Alps and LUMI. What is
wrong with hosts, networks, results and the suite itself has [a table of its own](../tests/faults/README.md), and
[when it is red](../docs/when-it-is-red.md) says what to do first.

Verdict and exit status are those of the session. In each row a line of its output names what is broken, unless the row
says that none does.

| what is broken | system | how it was planted | check | verdict | exit status |
|---|---|---|---|---|---|
"""


NOT_NAMED = " (**does not name it**)"


def read_rows(file: Path) -> dict[tuple[str, str], Row]:
    """The rows by system and fault; of several, the last."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    rows = [Row(**json.loads(line)) for line in lines]
    return {(row.system, row.fault): row for row in rows}


def keep(row: Row, file: Path) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(asdict(row)) + "\n")


def write_table(rows: Mapping[tuple[str, str], Row], file: Path) -> None:
    names = dict.fromkeys(each.what for shape in SHAPES for each in faults_of(shape))
    systems = [shape.system for shape in SHAPES]
    lines = []
    for row in (rows[system, name] for name in names for system in systems if (system, name) in rows):
        status = f"{row.exit_status}{'' if row.named else NOT_NAMED}"
        lines.append(f"| {' | '.join((row.fault, row.system, row.how, row.check, row.verdict, status))} |")
    missing = {
        shape.system: [each.what for each in faults_of(shape) if (shape.system, each.what) not in rows]
        for shape in SHAPES
    }
    lines += [
        "",
        *(
            f"Not planted yet, or planted and not named by a line, on {one}: {', '.join(left)}.\n"
            for one, left in missing.items()
            if left
        ),
    ]
    stamps = sorted({(row.when.split()[0], row.commit) for row in rows.values()})
    lines += [*(f"- {when}, commit {stamp}, 2 cores." for when, stamp in stamps)]
    file.write_text(_HEAD + "\n".join(lines) + "\n", encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m fabricheck_lab.rehearse_faults", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    systems = [shape.system for shape in SHAPES]
    parser.add_argument("--systems", default=",".join(systems), help="of %(default)s")
    parser.add_argument("--faults", default="", help="only those whose name matches this regular expression")
    parser.add_argument("--minutes", type=float, default=600.0, help="end after the fault at which they are over")
    parser.add_argument("--together", action="store_true", help="plant at once what has lines of its own")
    parser.add_argument("--again", action="store_true", help="measure what has a good row already, too")
    parser.add_argument("--rows", type=Path, default=ROOT / "output" / "gpu-faults.jsonl")
    parser.add_argument("--output", type=Path, default=ROOT / "lab" / "faults.md")
    parser.add_argument("--name", default=NAME, help="of the emulated cluster")
    given = parser.parse_args(arguments)
    wanted = given.systems.split(",")
    if unknown := [each for each in wanted if each not in systems]:
        parser.error(f"unknown: {', '.join(unknown)}; systems are {', '.join(systems)}")
    rows = read_rows(given.rows)
    given.rows.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * given.minutes
    for shape in (shape for shape in SHAPES if shape.system in wanted):
        todo = [each for each in faults_of(shape) if re.search(given.faults, each.what)]
        good = {what for (system, what), row in rows.items() if system == shape.system and row.named}
        todo = [each for each in todo if given.again or each.what not in good]
        if not todo or time.monotonic() > until:
            continue
        Cluster.down(given.name)
        cluster = up_in_miniature(shape.system, len(NODES), None, ROOT, given.name)
        try:
            for group in grouped(todo) if given.together else [[each] for each in todo]:
                if time.monotonic() > until:
                    break
                for row in measure(cluster, group)[1]:
                    rows[row.system, row.fault] = row
                    keep(row, given.rows)
                    mark = "" if row.named else "NOT NAMED "
                    print(
                        f"{row.system}: {row.fault}: {mark}{row.line} ({row.wall_s:g} s)", file=sys.stderr, flush=True
                    )
                write_table(rows, given.output)
        finally:
            cluster.down_now()
    asked = (row for (system, what), row in rows.items() if system in wanted and re.search(given.faults, what))
    return 0 if all(row.named for row in asked) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
