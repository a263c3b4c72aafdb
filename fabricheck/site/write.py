"""Writes what was found as topology.yaml, settings.py and an empty file of references."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from fabricheck.errors import UserError
from fabricheck.site.found import Facts, FoundLink
from fabricheck.site.plan import Plan

_UNKNOWN_RATE = "FILL IN Gb/s"
_WIDTH = 100

_REFERENCES = """\
# No test has references here yet: other yardsticks judge, and each verdict names the one that did.
# After some healthy runs `fabricheck calibrate {system}` shows some; with --write it writes them here.
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


def write_site(facts: Facts, plan: Plan, site: Site) -> tuple[Path, ...]:
    """Write the files of a site and return them. Rates that nobody told stand as FILL IN in the topology, which cannot
    be loaded then. Raises UserError rather than overwrite a file.
    """
    texts = (
        topology_text(facts, site.system, site.network),
        settings_text(facts, plan),
        _REFERENCES.format(system=site.system),
    )
    for file in site.files:
        if file.exists():
            raise UserError(f"{file}: exists already: choose another --system, or remove it")
    try:
        for file, text in zip(site.files, texts, strict=True):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror}") from None
    return site.files


def _rate(gbps: float | None) -> str:
    return _UNKNOWN_RATE if gbps is None else f"{gbps:g} Gb/s"


def _flow(mapping: dict[str, Any]) -> CommentedMap:
    content = CommentedMap(mapping)
    content.fa.set_flow_style()
    return content


def topology_text(facts: Facts, system: str, network: Mapping[str, Any] | None = None) -> str:
    """The topology.yaml of a node, with `network` or `fabric` where those are known."""
    content: dict[str, Any] = {
        "system": system,
        "description": f"{hardware_text(facts)}; found on {facts.hostname or 'a node'}",
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
    if facts.association is not None:
        content["nic_association"] = _flow({"scheme": facts.association.scheme, "source": facts.association.source})
    memories = [(gpu.memory_gbps, gpu.memory_source) for gpu in facts.gpus if gpu.memory_gbps is not None]
    if memories and len(memories) == len(facts.gpus):
        least, source = min(memories)
        content["gpu_memory"] = _flow({"rate": _rate(least), "source": source})
    content["host_memory"] = "measured"
    if facts.gpudirect is not None:
        channels, source = facts.gpudirect
        content["gpudirect_rdma"] = _flow({"channels": channels, "source": source})
    if facts.nvlink_domain is not None:
        count, source = facts.nvlink_domain
        content["nvlink_domain"] = _flow({"nodes": count, "source": source})
    content |= network or {}
    text = io.StringIO()
    yaml = YAML()
    yaml.width = 110
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.dump(content, text)
    head = "# Written by `fabricheck init`; the fields are explained in docs/topology-format.md.\n"
    looked_at = (*facts.problems, *facts.notes)
    return head + "".join(f"# Check: {note}.\n" for note in looked_at) + text.getvalue()


def _pairs(links: Sequence[FoundLink]) -> CommentedSeq:
    sequence = CommentedSeq([list(link.ends) for link in links])
    sequence.fa.set_flow_style()
    return sequence


def hardware_text(facts: Facts) -> str:
    """A node in a few words: `4 x H200`."""
    if not facts.gpus:
        return "a node without GPUs"
    models = sorted({gpu.model for gpu in facts.gpus})
    return f"{len(facts.gpus)} x {', '.join(models)}"


def settings_text(facts: Facts, plan: Plan) -> str:
    """The settings.py for ReFrame."""
    said = "".join(f"# Left out: {_words(line)}.\n" for line in plan.left_out)
    return (
        f'"""{_words(hardware_text(facts))}, as `fabricheck init` found it; fields as in docs/site-files.md."""\n\n'
        f"{said}site_configuration = {_literal(plan.configuration())}\n"
    )


def _words(text: str) -> str:
    """Text for a comment or docstring without what could end it: a node's own names are in it, and settings are run."""
    return "".join(each for each in text if each.isprintable() and each not in '"\\')


def _literal(value: Any, indent: int = 0) -> str:
    """Text, numbers, lists and maps as Python, on one line where that is short."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or len(line) + indent <= _WIDTH:
        return line
    inner = indent + 4
    if isinstance(value, dict):
        lines = [f"{json.dumps(name)}: {_literal(each, inner)}" for name, each in value.items()]
    else:
        lines = [_literal(each, inner) for each in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return "\n".join([opening, *(f"{' ' * inner}{one}," for one in lines), f"{' ' * indent}{closing}"])
