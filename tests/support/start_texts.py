"""What launchers, schedulers and libraries print where a job does not start: random, in the forms of several versions.

The wording is that of Slurm 17 to 25, Open MPI 4 and 5 (ORTE, PRRTE, PMIx), Hydra, OpenSSH, PBS and NCCL 2.7 to 2.28,
as users report it to the projects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from fabricheck.records.component import Component, Kind

RULE = "-" * 74


@dataclass(frozen=True)
class Failure:
    """`text`: what was printed. `guilty`: the node at fault; `others`: healthy ones. `known`: `node` where the text
    tells the node, `pair` where it tells two ends of a connection, `unknown` where it tells neither. `addresses`: of
    the NIC of each node, which nobody prints."""

    text: str
    guilty: str
    others: tuple[str, ...]
    known: str
    addresses: Mapping[str, Component] = field(default_factory=dict)

    @property
    def ranks(self) -> dict[str, str]:
        """The node of each rank, one a node."""
        return {str(rank): node for rank, node in enumerate((*self.others, self.guilty))}

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes of the job, in order."""
        return tuple(sorted((self.guilty, *self.others)))


def slurm_cannot_launch(bad: str, others: list[str], rng: np.random.Generator) -> list[str]:
    step = rng.choice(["StepId=12.0", "12.0"])
    why = rng.choice(["Communication connection failure", "Socket timed out on send/recv operation"])
    lines = (
        f"srun: error: Task launch for {step} failed on node {bad}: {why}",
        f"srun: error: slurm_receive_msgs: [[{bad}]:6818] failed: {why}",
    )
    return [
        str(rng.choice(lines)),
        f"srun: error: Application launch failed: {why}",
        *aborted(others),
    ]


def slurm_lost_a_node(bad: str, others: list[str], rng: np.random.Generator) -> list[str]:
    return [f"srun: error: Node failure on {bad}", *aborted(others)]


def node_is_drained(bad: str, others: list[str], rng: np.random.Generator) -> list[str]:
    more = rng.choice(["", ", May be reserved for other job"])
    return [
        f"job cancelled because it was blocked in pending state due to the following reason: "
        f"ReqNodeNotAvail{more}, UnavailableNodes:{bad}"
    ]


def pmix_folder(bad: str, others: list[str], rng: np.random.Generator) -> list[str]:
    new = rng.random() < 0.5
    where = f"{bad} [{rng.integers(4)}]: pmixp_utils.c:{rng.integers(90, 400)}"
    what = rng.choice(["Cannot bind() UNIX socket /x/stepd: Permission denied", "mkdir /x failed: No space left"])
    first = f"slurmstepd: error:  mpi/pmix_v4: pmixp_usock_create_srv: {where}: {what}"
    old = f"slurmstepd: error: {bad} [1] pmixp_server.c:394 [pmixp_stepd_init] mpi/pmix: ERROR: {what}"
    return [first if new else old, "srun: error: Application launch failed: Unspecified error", *aborted(others)]


def pmix_in_open_mpi(bad: str, others: list[str], rng: np.random.Generator) -> list[str]:
    place = f"[{bad}:{rng.integers(1000, 9999)}]"
    return [f"{place} PMIX ERROR: PMIX_ERR_NO_PERMISSIONS in file util/pmix_os_dirpath.c at line 89"]


def slurm_aborts_a_launch(bad: str, others: list[str], rng: np.random.Generator) -> list[str]:
    """What others print is that they were ended while they started."""
    tasks, how = sorted([*others, bad]), ["Terminated", "Exited with exit code 1", "Killed"]
    ended = [f"slurmstepd-{node}: error: --task-prolog failed status=1" for node in others[: rng.integers(3)]]
    ended += [f"srun: error: {node}: task {tasks.index(node)}: {rng.choice(how)}" for node in others]
    return [
        "srun: launch/slurm: launch_p_step_launch: StepId=3.4 aborted before step completely launched.",
        "srun: Job step aborted: Waiting up to 4 seconds for job step to finish.",
        f"srun: error: task {tasks.index(bad)} launch failed: Unspecified error",
        *ended,
    ]


def interface_is_missing(bad: str, others: list[str], rng: np.random.Generator) -> list[str]:
    forms = (
        [RULE, "WARNING: An invalid value was given for btl_tcp_if_include.  This", "value will be ignored.", "",
         f"  Local host: {bad}", "  Value:      ib0", "  Message:    Unknown interface name", RULE],
        [f"[1764525787.12] [{bad}:71:0] ucp_context.c:969  UCX  WARN  network device 'ib0' is not available, please "
         "use one or more of: 'eth0'(tcp)"],
        [f"{bad}:17:17 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found"],
    )  # fmt: skip
    return forms[int(rng.integers(len(forms)))]


def folder_is_missing(bad: str, others: list[str], rng: np.random.Generator) -> list[str]:
    what = rng.choice(["couldn't chdir to `/scratch/x': No such file or directory", "execve(): fabricbench: not found"])
    return [
        f"slurmstepd: error: {what}",
        f"srun: error: {bad}: task 1: Exited with exit code 2",
        "srun: launch/slurm: _step_signal: Terminating StepId=12.0",
        *(f"srun: error: {other}: task {number}: Terminated" for number, other in enumerate(others)),
    ]


def daemon_lost(bad: str, others: list[str], rng: np.random.Generator) -> list[str]:
    name = rng.choice(["ORTE", "PRTE"])
    job = "[[27407,0],%d]" if name == "ORTE" else f"[prterun-{others[0]}-17@0,%d]"
    return [
        RULE,
        f"{name} has lost communication with a remote daemon.",
        "",
        f"  HNP daemon   : {job % 0} on node {others[0]}",
        f"  Remote daemon: {job % 1} on node {bad}",
        RULE,
    ]


def program_is_missing(bad: str, others: list[str], rng: np.random.Generator) -> list[str]:
    return [
        RULE,
        "mpirun was unable to launch the specified application as it could not access",
        "or execute an executable:",
        "",
        "Executable: ./fabricbench",
        f"Node: {bad}",
        RULE,
    ]


def ssh(bad: str, others: list[str], rng: np.random.Generator) -> list[str]:
    return [
        str(
            rng.choice(
                [
                    f"ssh: connect to host {bad} port 22: Connection refused",
                    f"ssh: connect to host {bad} port 22: No route to host",
                    f"ssh: Could not resolve hostname {bad}: Name or service not known",
                    f"user@{bad}: Permission denied (publickey,password).",
                ]
            )
        )
    ]


def hydra_pals_and_pbs(bad: str, others: list[str], rng: np.random.Generator) -> list[str]:
    what = rng.choice(
        [
            "HYDU_create_process (utils/launch/launch.c:74): execvp error on file ./fabricbench (No such file)",
            "launch_procs (pm/pmiserv/pmip_cb.c:869): unable to change wdir to /scratch/x (No such file or directory)",
        ]
    )
    lines = (
        f"[proxy:0:{rng.integers(9)}@{bad}] {what}",
        f"mpiexec: RPC launch failed on node {bad}: Not found",
        f"pbs_mom;Job;17.server: node 1 ({bad}) requested job terminate, 'EOF' (code 1099)",
    )
    return [str(rng.choice(lines))]


def unable(near: str, far: str) -> list[str]:
    text = "A process or daemon was unable to complete a TCP connection\nto another process:"
    return [RULE, text, f"  Local host:    {near}", f"  Remote host:   {far}", RULE]


def several_cannot_connect(bad: str, others: list[str], rng: np.random.Generator) -> list[str]:
    return [line for other in others for line in unable(other, bad)]


def one_cannot_connect(bad: str, others: list[str], rng: np.random.Generator) -> list[str]:
    near, far = (others[0], bad) if rng.random() < 0.5 else (bad, others[0])
    daemon = "ORTE does not know how to route a message to the specified daemon\nlocated on the indicated node:"
    forms = (
        [RULE, daemon, f"  my node:   {near}", f"  target node:  {far}", RULE],
        [RULE, "At least one pair of MPI processes are unable to reach each other for", "MPI communications.", "",
         f"  Process 1 ([[29748,1],6]) is on host: {near}", f"  Process 2 ([[29748,1],4]) is on host: {far}", RULE],
        unable(near, far),
    )  # fmt: skip
    return forms[int(rng.integers(len(forms)))]


def nccl_cannot_connect(bad: str, others: list[str], rng: np.random.Generator) -> list[str]:
    near, far = (others[0], bad) if rng.random() < 0.5 else (bad, others[0])
    return [
        f"{far}:17:17 [0] NCCL INFO Bootstrap : Using [0]ib0:10.0.0.9<0>",
        f"{near}:39964:40075 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.9<45763> failed : "
        "Network is unreachable",
    ]


def nobody_has_the_address(bad: str, others: list[str], rng: np.random.Generator) -> list[str]:
    return [f"[{others[0]}][[1,1],0][tcp] connect() to 10.10.10.2:1024 failed: No route to host (113)"]


def route_is_missing(bad: str, others: list[str], rng: np.random.Generator) -> list[str]:
    near, far = (others[0], bad) if rng.random() < 0.5 else (bad, others[0])
    to, port = address_of(far), rng.integers(1024, 60000)
    why = rng.choice(["Network is unreachable", "No route to host"])
    mca = f"[[27407,1],{rng.integers(9)}][../opal/btl_tcp_endpoint.c:803:mca_btl_tcp_endpoint_start_connect]"
    forms = (
        [f"[{near}]{mca} connect() to {to}:{port} failed: {why} (101)"],
        [f"{mca} from {near} to: {far} Unable to connect to the peer {to} on port {port}: {why}"],
        [RULE, "WARNING: Open MPI failed to TCP connect to a peer MPI process.", "", f"  Local host: {near}",
         "  PID:        71", f"  Message:    connect() to {to}:{port} failed", f"  Error:      {why} (101)", RULE],
        [f"{near}:17:18 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to {to}<{port}> failed : {why}"],
    )  # fmt: skip
    return forms[int(rng.integers(len(forms)))]


def mpi_start_hangs(bad: str, others: list[str], rng: np.random.Generator) -> list[str]:
    what = rng.choice(["MPI did not start: is a node down?", "the ranks did not meet before a plan"])
    stopped = f"no progress for 60 s while {rng.choice(['choosing', 'allocating'])}: all ranks of the node of rank"
    named = [f"fabricbench: {other}: {what}" for other in others for _ in range(2)]
    numbered = [f"fabricbench: {stopped} {rank} wait for each other" for rank in range(len(others))]
    return [str(line) for line in rng.permutation(named if rng.random() < 0.5 else numbered)]


def all_nodes_wait(bad: str, others: list[str], rng: np.random.Generator) -> list[str]:
    return mpi_start_hangs("", [*others, bad], rng)


def all_are_terminated(bad: str, others: list[str], rng: np.random.Generator) -> list[str]:
    few = f"srun: error: timeout waiting for task launch, started {len(others)} of {len(others) + 1} tasks"
    return [str(rng.choice([few, "srun: error: Application launch failed: Unspecified error"])), *aborted(others)]


def aborted(others: list[str]) -> list[str]:
    return [
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
        f"slurmstepd: error: *** STEP 12.0 ON {others[0]} CANCELLED AT 2026-11-28T10:00:00 ***",
        *(f"srun: error: {other}: task {number}: Killed" for number, other in enumerate(others)),
    ]


Maker = Callable[[str, list[str], np.random.Generator], list[str]]
KINDS: dict[Maker, str] = {
    slurm_cannot_launch: "node",
    slurm_lost_a_node: "node",
    node_is_drained: "node",
    pmix_folder: "node",
    pmix_in_open_mpi: "node",
    slurm_aborts_a_launch: "node",
    interface_is_missing: "node",
    folder_is_missing: "node",
    daemon_lost: "node",
    program_is_missing: "node",
    ssh: "node",
    hydra_pals_and_pbs: "node",
    several_cannot_connect: "node",
    one_cannot_connect: "pair",
    nccl_cannot_connect: "pair",
    nobody_has_the_address: "unknown",
    route_is_missing: "pair",
    mpi_start_hangs: "node",
    all_nodes_wait: "unknown",
    all_are_terminated: "unknown",
}
PREFIXES = ("", "0: ", "[1,0]<stderr>:", "[1] ", "stderr: ")


def chatter(rng: np.random.Generator, nodes: list[str]) -> list[str]:
    """What healthy nodes print all the time."""
    node = nodes[int(rng.integers(len(nodes)))]
    lines = [
        f"{node}:17:17 [0] NCCL INFO NET/IB : No device found.",
        f"[{node}:28731] 3 more processes have sent help message help-mpi-btl-tcp.txt / client connect fail",
        "srun: job 12 queued and waiting for resources",
        f"fabricbench: {node} has 2 ranks",
        f"[{node}:00017] mca: base: components_register: registering framework btl components",
    ]
    return [str(line) for line in rng.permutation(lines)[: rng.integers(len(lines))]]


def address_of(node: str) -> str:
    """Of its NIC."""
    return f"10.78.{len(node)}.{node[-1]}"


def random_failure(rng: np.random.Generator, maker: Maker) -> Failure:
    """A job of 3 to 8 nodes, one of which keeps it from starting."""
    stem = str(rng.choice(["nid00", "gpu-node-", "x1000c0s1b0n", "r33c2t2n"]))
    names = [f"{stem}{number}" for number in rng.permutation(9)[: rng.integers(3, 9)] + 1]
    bad, *others = map(str, names)
    lines = maker(bad, others, rng)
    prefix = str(rng.choice(PREFIXES))
    text = [*chatter(rng, others), *(f"{prefix}{line}" for line in lines), *chatter(rng, others)]
    nics = {address_of(node): Component(Kind.NIC, "ib0", node) for node in (bad, *others)}
    return Failure("\n".join(text), bad, tuple(others), KINDS[maker], nics)
