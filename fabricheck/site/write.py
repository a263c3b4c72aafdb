"""Writes what was found as topology.yaml, settings.py and an empty file of references."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabricheck.errors import UserError, refused
from fabricheck.site.found import FoundLink, NodeFacts
from fabricheck.site.nvidia import switch_reduces
from fabricheck.site.plan import SitePlan
from fabricheck.yamlfile import on_one_line, round_trip_yaml

_UNKNOWN_RATE = "FILL IN Gb/s"

# Fields that `init` leaves out where nothing in a capture has them: why, and the line to fill in.
_LEFT_OUT = {
    "nics": "no active port in /sys or ibstat\n# nics: [{name: mlx5_0, model: mlx5, rate: FILL IN Gb/s, source: it}]",
    "gpu_memory": "no clock and width\n# gpu_memory: {rate: FILL IN Gb/s, source: data sheet}",
}

_REFERENCES = """\
# No test has references here yet: other yardsticks judge, and each verdict names the one that did.
# After some healthy runs `fabricheck calibrate --system {system}` shows some; with --write it writes them here.
$uncalibrated:
  '*': a new system; nothing has been calibrated yet
"""


@dataclass(frozen=True)
class Site:
    """What is written: the folders of the suite, the system's name, and more of topology.yaml than the node knows.

    `network`: its fields `network` or `fabric`, if any.
    """

    root: Path
    system: str
    network: Mapping[str, Any]

    @property
    def files(self) -> tuple[Path, Path, Path]:
        """topology.yaml, settings.py and the references."""
        folder = self.root / "site_configs" / self.system
        return folder / "topology.yaml", folder / "settings.py", self.root / "reference_values" / f"{self.system}.yaml"


def write_site(facts: NodeFacts, plan: SitePlan, site: Site) -> tuple[Path, ...]:
    """Write the files of a site and return them. Unknown rates stand as FILL IN in the topology, which cannot
    be loaded then. Settings and references that exist are the site's own and stay as they are. Raises UserError rather
    than overwrite a topology.
    """
    texts = (
        topology_text(facts, site.system, site.network),
        settings_text(facts, plan),
        _REFERENCES.format(system=site.system),
    )
    if site.files[0].exists():
        raise UserError(f"{site.files[0]}: exists already: choose another --system, or remove it")
    new = {file: text for file, text in zip(site.files, texts, strict=True) if not file.exists()}
    for file, text in new.items():
        with refused(f"{file}:", "written"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    return tuple(new)


def _rate(gbps: float | None) -> str:
    return _UNKNOWN_RATE if gbps is None else f"{gbps:g} Gb/s"


def topology_text(facts: NodeFacts, system: str, network: Mapping[str, Any] | None = None) -> str:
    """The topology.yaml of a node, with `network` or `fabric` where those are known."""
    content: dict[str, Any] = {
        "system": system,
        "description": f"{hardware_text(facts)}; found on {facts.hostname or 'a node'}",
    }
    if facts.gpus:
        content["gpus"] = [
            on_one_line({"name": f"gpu{gpu.index}", "index": gpu.index, "model": gpu.model}) for gpu in facts.gpus
        ]
    content["cpus"] = [on_one_line({"name": f"numa{node}"}) for node in facts.numa_nodes]
    switches = []
    if facts.has_switch:
        reduces = {"in_network_reduction": True} if switch_reduces(facts.links) else {}
        switches.append(on_one_line({"name": "nvswitch", "model": "NVSwitch", **reduces}))
    cards = {end for link in facts.links for end in link.ends if end.startswith("card")}  # of partitions
    for card in sorted(cards, key=lambda end: int(end[4:])):
        switches.append(on_one_line({"name": card, "model": facts.gpus[0].model}))
    if switches:
        content["switches"] = switches
    content["nics"] = [
        on_one_line({"name": one.name, "model": one.model, "rate": _rate(one.rate_gbps), "source": one.source})
        for one in facts.nics
    ]
    kinds: dict[tuple[str, int, float | None, str], list[FoundLink]] = defaultdict(list)
    for link in facts.links:
        kinds[link.technology, link.count, link.rate_gbps, link.source].append(link)
    if kinds:
        content["links"] = [
            {
                "technology": technology,
                "count": count,
                "rate": _rate(rate),
                "source": source,
                "pairs": on_one_line([list(link.ends) for link in found]),
            }
            for (technology, count, rate, source), found in kinds.items()
        ]
    if facts.association is not None:
        content["nic_association"] = on_one_line(
            {"scheme": facts.association.scheme, "source": facts.association.source}
        )
    memories = [(gpu.memory_gbps, gpu.memory_source) for gpu in facts.gpus if gpu.memory_gbps is not None]
    if memories and len(memories) == len(facts.gpus):
        least, source = min(memories)
        content["gpu_memory"] = on_one_line({"rate": _rate(least), "source": source})
    elif facts.gpus:
        content["gpu_memory"] = None
    content["host_memory"] = "measured"
    if facts.gpudirect is not None:
        channels, source = facts.gpudirect
        content["gpudirect_rdma"] = on_one_line({"channels": channels, "source": source})
    if facts.nvlink_domain is not None:
        count, source = facts.nvlink_domain
        content["nvlink_domain"] = on_one_line({"nodes": count, "source": source})
    content |= network or {}
    checks = [f"Check: {_line(note)}." for note in (*facts.problems, *facts.notes)]
    checks += [f"Left out: {note}" for name, note in _LEFT_OUT.items() if name in content and not content[name]]
    known = {name: value for name, value in content.items() if value or name not in _LEFT_OUT}
    text = io.StringIO()
    round_trip_yaml(110).dump(known, text)
    head = "# Written by `fabricheck init`; the fields are explained in docs/schemas/topology.json.\n"
    return head + "".join(f"# {check}\n" for check in checks) + text.getvalue()


def _line(text: str) -> str:
    """Text of a node's own for a comment: on one line."""
    return "".join(each if each.isprintable() else " " for each in text)


def hardware_text(facts: NodeFacts) -> str:
    """A node in a few words: `4 x H200`."""
    if not facts.gpus:
        return "a node without GPUs"
    models = sorted({gpu.model for gpu in facts.gpus})
    return f"{len(facts.gpus)} x {', '.join(models)}"


def settings_text(facts: NodeFacts, plan: SitePlan) -> str:
    """The settings.py for ReFrame."""
    head = f'"""{_words(hardware_text(facts))}, as `fabricheck init` found it; fields as in docs/site-files.md."""\n\n'
    left_out = "".join(f"# Left out: {_words(text)}.\n" for text in plan.left_out)
    # Text, numbers, lists and maps are the same in Python.
    return f"{head}{left_out}site_configuration = {json.dumps(plan.configuration(), indent=4, ensure_ascii=False)}\n"


def _words(text: str) -> str:
    """Text for a comment or docstring without what could end it: a node's own names are in it, and settings are run."""
    return "".join(each for each in text if each.isprintable() and each not in '"\\')
