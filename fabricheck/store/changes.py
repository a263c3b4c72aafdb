"""What may have changed between two runs, and which parts of the machine a metric depends on."""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from fabricheck import __version__
from fabricheck.judge.expectations import gpu_of_ranks
from fabricheck.results.fabricbench_format import uses_host_memory
from fabricheck.results.records import Run, Samples
from fabricheck.session import Case
from fabricheck.topology.graph import node_graph
from fabricheck.topology.model import Gpu, Topology
from fabricheck.topology.nic import nic_of
from fabricheck.tuning import set_by_launcher

_LOAD = re.compile(r"^\s*(?:module|ml)\s+load\s+(.+)$", re.MULTILINE)
_JOB_SCRIPTS = ("rfm_job.sh", "rfm_build.sh")
# What schedulers and MPI's start send over another network is less than this share of all that a node sent.
_LEAST_SHARE = 0.1


def canonical(values: Mapping[str, str]) -> str:
    """One text for one set of names and values: JSON with sorted names."""
    return json.dumps(dict(values), sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def versions_of_suite(root: Path) -> dict[str, str]:
    """Version of this program, and git revision of a suite: with `-dirty` where files differ from it, `unknown` outside
    of git."""
    return {"fabricheck": __version__, "suite": _revision(root)}


def _revision(root: Path) -> str:
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() if done.returncode == 0 and done.stdout.strip() else "unknown"


def facts_of_this_host() -> dict[str, str]:
    """What this machine says of its kernel and of the firmware of its network adapters, by name."""
    facts = {"kernel": os.uname().release}
    for file in sorted(Path("/sys/class/infiniband").glob("*/fw_ver")):
        try:
            facts[f"firmware {file.parent.name}"] = file.read_text().strip()
        except (OSError, UnicodeDecodeError):
            continue
    return facts


def software_of(run: Run, case: Case | None, session: Mapping[str, str], host_facts: Mapping[str, str]) -> str:
    """Versions by name that were in effect in a run, as canonical JSON.

    Libraries and drivers as the benchmark found them, modules as the job script loaded them, and what `session` says
    of all runs of a session (the suite's revision, ReFrame's extras). `host_facts` are those of this host: they count
    only for a run that was on this host alone.
    """
    found = dict(session)
    if run.header:
        found[str(run.header.get("program", "benchmark"))] = str(run.header.get("version", "unknown"))
        for library in run.header.get("libraries", {}).values():
            found[str(library["name"])] = str(library["version"])
            if library.get("driver"):
                found[f"{library['name']} driver"] = str(library["driver"])
    found.update(_modules(case.folder if case else None))
    if {each.host for each in run.ranks} == {socket.gethostname()}:
        found.update(host_facts)
    return canonical(found)


def _modules(folder: Path | None) -> dict[str, str]:
    found = {}
    for script in (folder / name for name in _JOB_SCRIPTS) if folder else ():
        if script.is_file():
            for line in _LOAD.findall(script.read_text(errors="replace")):
                for word in line.split():
                    name, _, version = word.partition("/")
                    found[f"module {name}"] = version or "default"
    return found


def tuning_of(run: Run, case: Case | None) -> str:
    """The tuning that was in effect, as canonical JSON: variables of the environment by name, and the `profile`.

    Variables that the launcher sets itself are left out: they differ from run to run and tune nothing.
    """
    environment: Mapping[str, object] = run.header.get("environment", {})
    found = {name: str(value) for name, value in environment.items() if not set_by_launcher(name)}
    profile = case.attributes.get("tuning_profile") if case else None
    return canonical({**found, **({"profile": str(profile)} if profile is not None else {})})


def components_of(run: Run, samples: Samples, topology: Topology | None) -> tuple[str, ...]:
    """Names of what the data of a measurement pass: nodes, and on each `node:part` and `node:part-part` for a link.

    Parts and links are those of the topology's widest paths between the GPUs of a node, or between GPUs and CPUs
    where the data come from host memory or go to it, and each GPU's NIC where there are several nodes (without, the
    NICs that sent most by the kernel's counters; all where those do not know them). Switches between nodes are
    unknown.
    """
    members = [each for each in run.ranks if each.rank in samples.ranks]
    hosts = dict.fromkeys(each.host for each in members)
    names = set(hosts)
    if topology is None:
        return tuple(sorted(names))
    indexes = gpu_of_ranks(run)
    buffers = run.header.get("plan", {}).get("buffers")
    to_cpu = run.header.get("transport") == "staging" or uses_host_memory(samples.operation, buffers)
    # Of a pair with a buffer on the host, the GPU of that rank has no part.
    place = dict(zip(samples.ranks, str(buffers).split("-"), strict=False)) if buffers else {}
    for host in hosts:
        gpus = tuple(
            dict.fromkeys(
                topology.gpu(indexes[each.rank])
                for each in members
                if each.host == host and each.device and place.get(each.rank) != "host"
            )
        )
        parts = _parts_inside(topology, gpus, to_cpu)
        if len(hosts) > 1:
            parts |= _nics(topology, gpus) or _nics_that_sent(run, host, topology)
        names |= {f"{host}:{part}" for part in parts}
    return tuple(sorted(names))


@lru_cache(maxsize=4096)
def _parts_inside(topology: Topology, gpus: tuple[Gpu, ...], to_cpu: bool) -> frozenset[str]:
    edges: set[tuple[str, str]] = set()
    if to_cpu:
        cpus = {each.name for each in topology.cpus}
        for link in topology.links:
            if {*link.ends} & cpus and {*link.ends} & {gpu.name for gpu in gpus}:
                edges.add((min(link.ends), max(link.ends)))
    else:
        graph = node_graph(topology)
        for pair in itertools.permutations(gpus, 2):
            edges |= {(min(edge), max(edge)) for edge in graph.widest_path(*pair).edges}
    return frozenset(
        {
            *(gpu.name for gpu in gpus),
            *(end for edge in edges for end in edge),
            *(f"{a}-{b}" for a, b in edges),
        }
    )


def _nics(topology: Topology, gpus: tuple[Gpu, ...]) -> frozenset[str]:
    """The NICs of the GPUs; none where there are no GPUs, or that of one is unknown."""
    own = [nic_of(topology, gpu) for gpu in gpus]
    known = {each.name for each in own if each is not None}
    return frozenset() if None in own else frozenset(known)


def _nics_that_sent(run: Run, host: str, topology: Topology) -> frozenset[str]:
    sent: Mapping[str, int] = run.footer["proof"].get("interfaces", {}).get(host, {}) if run.footer else {}
    names = frozenset(each.name for each in topology.nics)
    used = {name for name in names if sent.get(name, 0) > _LEAST_SHARE * sum(sent.values())}
    return frozenset(used) or names
