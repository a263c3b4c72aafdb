"""What a new node has less of than its peers, or than its parts' data sheets: a fault, unless somebody says that it
is not. Without that word the site's files hold what it should be, so that the first run shows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fabricheck.site.found import FoundGpu, FoundLink, FoundNic, NodeFacts, pcie_link
from fabricheck.site.shapes import find_nearest_shape
from fabricheck.topology.hardware import GpuProduct, gpu_product
from fabricheck.units import few, parse_rate

SLOW_PORT, SLOW_PCIE, MISSING_LINKS, HIDDEN_GPUS, UNLIKE_PRODUCT, SLOW_CABLE = CODES = (
    "slow-port",
    "slow-pcie",
    "missing-links",
    "hidden-gpus",
    "unlike-product",
    "slow-cable",
)
_PCIE = re.compile(r"PCIe (\d{1,2}) x(\d{1,3})")


@dataclass(frozen=True)
class Doubt:
    """`components` have less than they should. `text`: how much of what, and what to look at."""

    code: str
    components: tuple[str, ...]
    text: str


def doubts_of(facts: NodeFacts) -> tuple[Doubt, ...]:
    """All of a node, in the order of their weight."""
    return (*_hidden(facts), *_links(facts), *_pcie(facts), *_ports(facts), *_unlike(facts))


def _unlike(facts: NodeFacts) -> Iterator[Doubt]:
    """What a product has and this node has not, where it is not told by its own code: a port that is down, a GPU."""
    like = find_nearest_shape(facts.gpus, correct_facts(facts, ()).nics)
    if like is not None and like.lacks:
        text = f"looks like {like.name}, but has {' and '.join(like.lacks)}: check ibstat, ip link, lspci, dmesg"
        yield Doubt(UNLIKE_PRODUCT, (), text)


def _hidden(facts: NodeFacts) -> Iterator[Doubt]:
    if 0 < len(facts.gpus) < facts.on_bus:
        lost = facts.on_bus - len(facts.gpus)
        text = (
            f"{len(facts.gpus)} of the {facts.on_bus} GPUs on the PCI bus are visible: {lost} are lost (the kernel's "
            "log), or a container, a job or MIG hides them"
        )
        yield Doubt(HIDDEN_GPUS, (), text)


def _links(facts: NodeFacts) -> Iterator[Doubt]:
    """GPUs with fewer NVLinks, or peers by Infinity Fabric, than their peers or than the model has."""
    known = {gpu.index: gpu for gpu in facts.gpus if gpu.links is not None and len(facts.gpus) > 1}
    wanted = {gpu.index: _wanted_links(gpu, facts.gpus) for gpu in known.values()}
    less = {index: count for index, count in wanted.items() if (known[index].links or 0) < count}
    if not less:
        return
    if facts.vendor == "amd":
        names = tuple(f"gpu{index}" for index in less)
        text = f"{', '.join(names)}: a peer is not connected by Infinity Fabric: amd-smi xgmi, and the kernel's log"
        yield from (Doubt(MISSING_LINKS, (name,), text) for name in names)
        return
    if len(less) == len(facts.gpus) and all(not known[index].links for index in less):
        text = (
            f"none of the {max(less.values())} NVLinks of any GPU is active: the fabric manager "
            "(systemctl status nvidia-fabricmanager; nvidia-smi -q: Fabric; nvidia-smi nvlink -s)"
        )
        yield Doubt(MISSING_LINKS, tuple(f"gpu{index}" for index in less), text)
        return
    for index, count in less.items():
        text = (
            f"gpu{index} has {known[index].links or 'none'} of the {count} NVLinks that its peers or its data sheet "
            f"have: nvidia-smi nvlink -s -i {index}; reseat the GPU or its bridge"
        )
        yield Doubt(MISSING_LINKS, (f"gpu{index}",), text)


def _wanted_links(gpu: FoundGpu, gpus: Sequence[FoundGpu]) -> int:
    product = gpu_product(gpu.model)
    sheet = product.links if product is not None and product.links is not None else 0
    if gpu.arch.startswith("gfx"):
        # A link to each peer; GPUs that are not visible are no peers, and boards without a sheet join GPUs unlike.
        return min(sheet, len(gpus) - 1)
    return max(sheet, gpu.links_of_driver, *(one.links or 0 for one in gpus if one.model == gpu.model))


def _pcie(facts: NodeFacts) -> Iterator[Doubt]:
    for at, wanted in _pcie_wanted(facts).items():
        link = facts.links[at]
        told = f"{link.ends[0]} has {link.technology}, {link.rate_gbps:g} Gb/s" if link.rate_gbps else link.technology
        text = (
            f"{told}, and its peers or its data sheet have {wanted.technology}: "
            "nvidia-smi -q -d PCIE, lspci -vv (LnkSta); the slot, its riser, BIOS, or the board"
        )
        yield Doubt(SLOW_PCIE, (link.ends[0],), text)


def _pcie_wanted(facts: NodeFacts) -> dict[int, FoundLink]:
    """By its place among the links of a node, what a GPU's PCIe link to its CPU should be where it is less."""
    models = {f"gpu{gpu.index}": gpu.model for gpu in facts.gpus}
    of_gpus = ((at, link.technology) for at, link in enumerate(facts.links) if link.ends[0] in models)
    matches = {at: match for at, technology in of_gpus if (match := _PCIE.fullmatch(technology))}
    best: dict[str, tuple[int, int]] = {}
    for at, match in matches.items():
        model = models.get(facts.links[at].ends[0], "")
        mine = (int(match[1]), int(match[2]))
        before = best.get(model) or _of_sheet(gpu_product(model)) or mine
        best[model] = max(before, mine, key=_speed)
    wanted = {}
    for at, match in matches.items():
        link = facts.links[at]
        should = best[models.get(link.ends[0], "")]
        if _speed((int(match[1]), int(match[2]))) < _speed(should):
            wanted[at] = pcie_link(*link.ends, *should, f"{link.source}: its peers or data sheet")
    return wanted


def _of_sheet(product: GpuProduct | None) -> tuple[int, int] | None:
    if product is None or product.pcie_generation is None or product.pcie_width is None:
        return None
    return product.pcie_generation, product.pcie_width


def _speed(link: tuple[int, int]) -> int:
    """Relative: a lane doubles with each generation."""
    generation, width = link
    return (1 << generation) * width


def _ports(facts: NodeFacts) -> Iterator[Doubt]:
    for nic, wanted in _ports_wanted(facts.nics).items():
        text = (
            f"{nic.name} runs at {nic.rate_gbps:g} Gb/s, and its peers at {wanted.rate_gbps:g} Gb/s: cable, port of "
            f"the switch (ibstat {nic.name}, mlxlink)"
        )
        yield Doubt(SLOW_PORT, (nic.name,), text)


def _ports_wanted(nics: Sequence[FoundNic]) -> dict[FoundNic, FoundNic]:
    """Ports of one kind of card run at one rate, which is what the fastest can."""
    wanted = {}
    for nic in nics:
        equals = [
            one for one in nics if one.card == nic.card and _kind(one) == _kind(nic) and one.rate_gbps is not None
        ]
        best = max(equals, key=lambda one: one.rate_gbps or 0, default=nic)
        if nic.rate_gbps is not None and nic.rate_gbps < (best.rate_gbps or 0):
            wanted[nic] = best
    return wanted


def _kind(nic: FoundNic) -> str:
    return nic.model.partition(" ")[0]


def correct_facts(facts: NodeFacts, accepted: Collection[str]) -> NodeFacts:
    """The node as it should be, but for the codes that are accepted."""
    nics, links = facts.nics, list(facts.links)
    if SLOW_PORT not in accepted:
        wanted = _ports_wanted(nics)
        source = "its peers; it ran slower at `init`"
        nics = tuple(
            replace(nic, rate_gbps=wanted[nic].rate_gbps, model=wanted[nic].model, source=f"{nic.source}: {source}")
            if nic in wanted
            else nic
            for nic in nics
        )
    if SLOW_PCIE not in accepted:
        for at, link in _pcie_wanted(facts).items():
            links[at] = link
    if MISSING_LINKS not in accepted:
        links = [*_to_switch(facts, links)]
    return replace(facts, nics=nics, links=tuple(links))


def _to_switch(facts: NodeFacts, links: Iterable[FoundLink]) -> Iterator[FoundLink]:
    """The links, those to the NVSwitch as many as the peers have, also of a GPU of which none is active."""
    to_switch = [link for link in links if "nvswitch" in link.ends]
    if not to_switch:
        yield from links
        return
    most = max(_wanted_links(gpu, facts.gpus) for gpu in facts.gpus)
    for link in links:
        yield replace(link, count=most or link.count) if link in to_switch else link
    there = {link.ends[0] for link in to_switch}
    for gpu in facts.gpus:
        if (name := f"gpu{gpu.index}") not in there:
            yield replace(to_switch[0], ends=(name, "nvswitch"), count=most, source="its peers; none was active")


def doubts_of_network(
    network: Mapping[str, Any], accepted: Collection[str]
) -> tuple[tuple[Doubt, ...], dict[str, Any]]:
    """Cables that are slower than those of the same NIC on other nodes, or than others between switches; and `network`
    (the field of topology.yaml, and its name) with what they should be, unless they are accepted."""
    if "network" not in network:
        return (), dict(network)
    links = list(network["network"]["links"])
    groups: dict[str, list[int]] = {}
    for at, link in enumerate(links):
        groups.setdefault(str(link["pairs"][0][0]).partition(":")[2], []).append(at)
    doubts: list[Doubt] = []
    rate: Callable[[int], float] = lambda at: parse_rate(links[at]["rate"])  # noqa: E731
    for members in groups.values():
        best = max(members, key=rate)
        for at in members:
            if rate(at) < rate(best):
                slow = tuple(f"{one}-{other}" for one, other in links[at]["pairs"])
                text = (
                    f"{few(slow)}: {links[at]['technology']}, {links[at]['rate']}, and its peers "
                    f"{links[best]['technology']}: cable or port (mlxlink)"
                )
                doubts.append(Doubt(SLOW_CABLE, slow, text))
                if SLOW_CABLE not in accepted:
                    links[at] = {**links[at], "technology": links[best]["technology"], "rate": links[best]["rate"]}
    return tuple(doubts), {**network, "network": {**network["network"], "links": links}}
