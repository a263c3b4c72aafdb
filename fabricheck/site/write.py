"""Writes what was found as topology.yaml and settings.py."""

from __future__ import annotations

import io
from collections import defaultdict
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from fabricheck.errors import UserError
from fabricheck.site.facts import Facts, FoundLink

_UNKNOWN_RATE = "FILL IN Gb/s"

_BACKENDS = {"nvidia": "cuda", "amd": "hip", "intel": "sycl", "none": "host"}


def write_site(facts: Facts, directory: Path) -> list[Path]:
    """Write topology.yaml and settings.py of a node into `directory` (made if needed), named after the directory.

    What the captures do not tell stands as FILL IN in the topology, which so cannot be loaded before somebody did.
    Raises UserError rather than overwrite a file.
    """
    contents = {
        "topology.yaml": topology_text(facts, directory.name),
        "settings.py": settings_text(facts, directory.name),
    }
    for name in contents:
        if (directory / name).exists():
            raise UserError(f"{directory / name}: exists already: choose another --output, or remove it")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (directory / name).write_text(content, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{directory}: cannot be written: {error.strerror}") from None
    return [directory / name for name in contents]


def _rate(gbps: float | None) -> str:
    return _UNKNOWN_RATE if gbps is None else f"{gbps:g} Gb/s"


def _flow(mapping: dict[str, Any]) -> CommentedMap:
    found = CommentedMap(mapping)
    found.fa.set_flow_style()
    return found


def topology_text(facts: Facts, system: str) -> str:
    """The topology.yaml of a node."""
    content: dict[str, Any] = {
        "system": system,
        "description": f"{_what(facts)}; discovered on {facts.hostname or 'a node'}, to be checked",
    }
    if facts.gpus:
        content["gpus"] = [
            _flow({"name": f"gpu{gpu.index}", "index": gpu.index, "model": gpu.model}) for gpu in facts.gpus
        ]
    content["cpus"] = [_flow({"name": f"numa{node}"}) for node in facts.numa_nodes]
    if facts.has_switch:
        reduces = {"in_network_reduction": True} if facts.switch_reduces else {}
        content["switches"] = [_flow({"name": "nvswitch", "model": "NVSwitch", **reduces})]
    if facts.nics:
        content["nics"] = [
            _flow({"name": one.name, "model": one.model, "rate": _rate(one.rate_gbps), "source": one.source})
            for one in facts.nics
        ]
    kinds: dict[tuple[str, int, float | None, str], list[FoundLink]] = defaultdict(list)
    for link in facts.links:
        kinds[link.technology, link.count, link.rate_gbps, link.source].append(link)
    if kinds:
        content["links"] = [
            {"technology": technology, "count": count, "rate": _rate(rate), "source": source, "pairs": _pairs(found)}
            for (technology, count, rate, source), found in kinds.items()
        ]
    content["host_memory"] = "measured"
    text = io.StringIO()
    yaml = YAML()
    yaml.width = 110
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.dump(content, text)
    head = "# Written by `fabricheck discover`; the fields are explained in docs/topology-format.md.\n"
    return head + "".join(f"# To be looked at: {note}.\n" for note in facts.notes) + text.getvalue()


def _pairs(links: list[FoundLink]) -> CommentedSeq:
    found = CommentedSeq([list(link.ends) for link in links])
    found.fa.set_flow_style()
    return found


def _what(facts: Facts) -> str:
    if not facts.gpus:
        return "a node without GPUs"
    models = sorted({gpu.model for gpu in facts.gpus})
    return f"{len(facts.gpus)} x {', '.join(models)}"


def settings_text(facts: Facts, system: str) -> str:
    """A settings.py for ReFrame that runs on the node itself; scheduler and modules are the site's to add."""
    backend = _BACKENDS[facts.vendor]
    joined = [name for name, technology in (("nvlink", "NVLink"), ("xelink", "Xe Link")) if _has(facts, technology)]
    features = ["gpu", backend, *joined] if facts.gpus else [backend]
    if facts.has_switch:
        features.append("nvswitch")
    cores = max(1, facts.cores)
    sockets = max(1, facts.sockets)
    devices = ""
    if facts.gpus:
        gpu = facts.gpus[0]
        device = f'{{"type": "gpu", "arch": "{gpu.arch}", "model": "{gpu.model}", "num_devices": {len(facts.gpus)}}}'
        devices = f'                    "devices": [{device}],\n'
    listed = ", ".join(f'"{one}"' for one in features)
    unsupported = ""
    if facts.gpus and facts.cores and len(facts.numa_nodes) == 1:
        reason = "one NUMA node, by `fabricheck discover`"
        unsupported = f'                        "unsupported": {{"host_numa=remote": "{reason}"}},\n'
    return f'''"""{_what(facts)}, as `fabricheck discover` found it: add the site's scheduler and modules."""

site_configuration = {{
    "systems": [
        {{
            "name": "{system}",
            "descr": "{_what(facts)}",
            "hostnames": ["{facts.hostname or ".*"}"],
            "modules_system": "nomod",
            "max_local_jobs": 1,
            "partitions": [
                {{
                    "name": "default",
                    "descr": "the node itself",
                    "scheduler": "local",
                    "launcher": "mpirun",
                    "max_jobs": 1,
                    "environs": ["default"],
                    "features": [{listed}],
{devices}                    "processor": {{
                        "num_cpus": {cores},
                        "num_cpus_per_core": 1,
                        "num_cpus_per_socket": {cores // sockets or 1},
                        "num_sockets": {sockets},
                    }},
                    "extras": {{
                        "tuning_profile": "default",
                        "gpus_per_node": {len(facts.gpus)},
{unsupported}                    }},
                }}
            ],
        }}
    ],
    "environments": [
        {{
            "name": "default",
            "target_systems": ["{system}"],
            "features": ["mpi"],
            "cc": "cc",
            "cxx": "c++",
            "extras": {{"backend": "{backend}", "mpicxx": "mpicxx"}},
        }},
    ],
}}
'''


def _has(facts: Facts, technology: str) -> bool:
    return any(link.technology.startswith(technology) for link in facts.links)
