"""Slurm for an emulated cluster: its files and its daemons."""

from __future__ import annotations

import os
from pathlib import Path

from fabricheck.topology.network import fold
from fabricheck_lab.layout import LOGIN, LOGIN_ADDRESS, Layout

# More than a node has ranks (Aurora: 12): all nodes share the cores of the machine.
CORES = 16


def write_files(layout: Layout, folder: Path) -> None:
    """Write Slurm's files and munge's key below `folder`."""
    for name in ("state", "log", "spool", "tmp", "munge"):
        (folder / name).mkdir(mode=0o755, exist_ok=True)
    for node in layout.network.nodes:
        (folder / "tmp" / node).mkdir(exist_ok=True)
        (folder / "spool" / node).mkdir(exist_ok=True)
    (folder / "slurm.conf").write_text(_slurm_conf(layout, folder), encoding="utf-8")
    (folder / "topology.conf").write_text(_topology_conf(layout), encoding="utf-8")
    # Slurm looks for a cgroup version even where no plugin uses one, and does not find it where both are mounted.
    version = "v2" if _only_cgroup2() else "v1"
    (folder / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/{version}\n", encoding="utf-8")
    key = folder / "munge" / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)


def _slurm_conf(layout: Layout, folder: Path) -> str:
    settings = {
        "ClusterName": f"fabricheck_{layout.name}",
        "SlurmctldHost": f"{LOGIN}({LOGIN_ADDRESS})",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge/socket",
        "SlurmUser": "root",
        "SlurmdUser": "root",
        "StateSaveLocation": folder / "state",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmctldPidFile": folder / "slurmctld.pid",
        "SlurmdPidFile": f"{folder}/spool/%n/slurmd.pid",
        "SlurmctldLogFile": folder / "log" / "slurmctld",
        "SlurmdLogFile": f"{folder}/log/%n",
        # PMIx's folders of the nodes would collide in one.
        "TmpFS": f"{folder}/tmp/%n",
        "MpiDefault": "none",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "JobAcctGatherType": "jobacct_gather/none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "TopologyPlugin": "topology/tree",
        "SlurmdParameters": "config_overrides",
        "SchedulerParameters": "sched_interval=1,sched_min_interval=10000,bf_interval=1,batch_sched_delay=0",
        "ReturnToService": 2,
        "SlurmdTimeout": 10,
        "KillWait": 2,
        "MessageTimeout": 5,
        "MinJobAge": 300,
    }
    lines = [f"{name}={value}" for name, value in settings.items()]
    for node in layout.network.nodes:
        address = layout.management_address(node)
        lines.append(f"NodeName={node} NodeAddr={address} CPUs={CORES} RealMemory=1000 State=UNKNOWN")
    leaves = _nodes_of_leaves(layout)
    lines.append(f"PartitionName=all Nodes={fold(layout.network.nodes)} Default=YES MaxTime=INFINITE State=UP")
    lines += [f"PartitionName={leaf} Nodes={fold(nodes)} MaxTime=INFINITE State=UP" for leaf, nodes in leaves.items()]
    return "".join(f"{line}\n" for line in lines)


def _topology_conf(layout: Layout) -> str:
    """Leaves, and one switch above them: Slurm knows trees only, whatever joins the leaves."""
    leaves = _nodes_of_leaves(layout)
    lines = [f"SwitchName={leaf} Nodes={fold(nodes)}" for leaf, nodes in leaves.items()]
    if len(leaves) > 1:
        lines.append(f"SwitchName=top Switches={fold(leaves)}")
    return "".join(f"{line}\n" for line in lines)


def _nodes_of_leaves(layout: Layout) -> dict[str, list[str]]:
    """The nodes by the leaf of their first port; those without a port are on one of their own."""
    nodes: dict[str, list[str]] = {}
    for node in layout.network.nodes:
        ports = layout.network.ports_of(node)
        nodes.setdefault(layout.network.leaf_of(ports[0]) if ports else "no-leaf", []).append(node)
    return nodes


def munged_command(folder: Path) -> list[str]:
    munge = folder / "munge"
    files = ("socket", "pid-file", "log-file", "seed-file", "key-file")
    names = ("socket", "pid", "log", "seed", "key")
    options = [f"--{option}={munge / name}" for option, name in zip(files, names, strict=True)]
    return ["munged", "--foreground", "--force", "--num-threads=2", *options]


def slurmctld_command(layout: Layout, folder: Path) -> list[str]:
    return [*in_login(layout, LOGIN), "slurmctld", "-D", "-c", "-f", str(folder / "slurm.conf")]


def in_login(layout: Layout, host: str) -> list[str]:
    """The words that run what follows them on the login node."""
    enter = ["nsenter", f"--net=/var/run/netns/{layout.namespace(LOGIN)}", "unshare", "--uts"]
    return [*enter, "sh", "-c", f'hostname {host}; exec "$@"', host]


def slurmd_command(layout: Layout, folder: Path, node: str) -> list[str]:
    # Its own sysfs, else UCX sees the machine's interfaces; its own /dev/shm, so that nodes share no memory.
    cgroup = "cgroup2" if _only_cgroup2() else "tmpfs"
    script = (
        f"mount -t sysfs sysfs /sys; mount -t {cgroup} none /sys/fs/cgroup; mount -t tmpfs tmpfs /dev/shm; "
        'hostname "$1"; exec slurmd -D -N "$1" -f "$2"'
    )
    enter = ["nsenter", f"--net=/var/run/netns/{layout.namespace(node)}", "unshare", "--uts", "--ipc", "--mount"]
    return [*enter, "sh", "-c", script, "sh", node, str(folder / "slurm.conf")]


def _only_cgroup2() -> bool:
    return all(line.startswith("0::") for line in Path("/proc/self/cgroup").read_text().splitlines())
