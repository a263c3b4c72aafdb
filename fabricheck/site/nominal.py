"""A node as it should be: by its product, its parts' data sheets and their peers. What it has less of is a fault,
unless somebody says that it is not; without that word the files have what it should be, and the first run shows it.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fabricheck.records.nic_families import family_of
from fabricheck.site.found import (
    Doubt,
    FoundGpu,
    FoundLink,
    FoundNic,
    NodeFacts,
    cpu_of,
    network_of,
    pcie_link,
    pcie_of,
)
from fabricheck.site.nics import nearest, places_of
from fabricheck.site.nvidia import NVLINK_OF_ARCH, SLOWEST_ON_THE_WAY, nvlink_gbps
from fabricheck.topology.hardware import NodeProduct, gpu_product, known_nodes
from fabricheck.units import few, parse_rate

HIDDEN_GPUS, UNLIKE_PRODUCT, PORT_DOWN, MISSING_LINKS, SLOW_PCIE, SLOW_PORT, SLOW_CABLE = CODES = (
    "hidden-gpus",
    "unlike-product",
    "port-down",
    "missing-links",
    "slow-pcie",
    "slow-port",
    "slow-cable",
)
_PCIE = re.compile(r"PCIe (\d{1,2}) x(\d{1,3})")
# A node that has less than all but this many parts of a product is something else.
_MOST_MISSING = 2


def nominal(facts: NodeFacts, accepted: Collection[str]) -> NodeFacts:
    """The node as it should be, but for the codes that are accepted, with all doubts."""
    doubts: list[Doubt] = []
    facts = _without_spare_ports(facts)
    for rule in (_hidden, _lost, _ports_down, _links, _pcie, _slow_ports):
        less, better = rule(facts)
        changed = better != facts
        doubts += [replace(doubt, changed=changed and doubt.code not in accepted) for doubt in less]
        if not any(doubt.code in accepted for doubt in less):
            facts = better
    return replace(facts, doubts=tuple(doubts), nics=tuple(nic for nic in facts.nics if nic.up))


def _without_spare_ports(facts: NodeFacts) -> NodeFacts:
    """The node without ports that are down and that no GPU needs: those that are up serve all GPUs equally, and
    together with them either these would not, or the same ones would."""
    up = tuple(nic for nic in facts.nics if nic.up)
    near = _near_by_bridges(facts, up)
    if len(up) == len(facts.nics) or len(set(map(len, near))) != 1:
        return facts
    with_down = _near_by_bridges(facts, facts.nics)
    if with_down != near and len(set(map(len, with_down))) == 1:
        return facts
    spare = few([nic.name for nic in facts.nics if not nic.up])
    text = f"{spare}: left out: down, and the ports that are up serve all GPUs equally"
    return replace(facts, nics=up, notes=(*facts.notes, text))


def _near_by_bridges(facts: NodeFacts, nics: Sequence[FoundNic]) -> list[list[str]]:
    """Of each GPU the nearest ports; none where not all have one below their host bridge."""
    places = places_of(facts.gpus, nics, facts.table)[0] or {}
    levels = {min(of_gpu.values())[1] for of_gpu in places.values()}
    return [nearest(of_gpu) for of_gpu in places.values()] if levels <= {"PIX", "PXB", "PHB"} else []


_Rule = tuple[list[Doubt], NodeFacts]


def product_of(facts: NodeFacts) -> NodeProduct | None:
    """Of the nodes as they are sold and rented with these GPUs the one of which least is missing; None where none is
    similar. Whoever has more, such as ports for storage, is like it."""
    candidates = []
    models = {gpu.model.lower() for gpu in facts.gpus}
    for product in known_nodes():
        if not models or not all(map(product.model.search, models)):
            continue
        no_gpus, no_ports = product.gpus - len(facts.gpus), product.ports - ports_like(facts.nics, product)
        if 0 <= no_gpus <= _MOST_MISSING and no_ports <= min(_MOST_MISSING, product.ports / 2):
            candidates.append((no_gpus + max(no_ports, 0), abs(no_ports), product))
    return min(candidates, key=lambda candidate: candidate[:2])[2] if candidates else None


def ports_like(nics: Sequence[FoundNic], product: NodeProduct) -> int:
    """How many ports are as those of a product."""
    return sum(nic.rate_gbps == product.gbps and product.kind.match(nic.model) is not None for nic in nics)


def _cards(facts: NodeFacts) -> set[str]:
    """What has links to CPUs: a GPU, the card of several partitions, the first tile of a card."""
    return {link.ends[0] for link in facts.links if link.ends[1].startswith("numa")}


def _hidden(facts: NodeFacts) -> _Rule:
    """GPUs that the PCI bus has and the driver does not show."""
    shown_cards = len(_cards(facts))
    if not facts.gpus or shown_cards >= len(facts.on_bus):
        return [], facts
    text = (
        f"{shown_cards} of the {len(facts.on_bus)} GPUs on the PCI bus are visible: others are lost (the kernel's "
        "log), or a container, a job or MIG hides them"
    )
    better = facts
    shown = {gpu.bus_id for gpu in facts.gpus}
    devices = sorted(facts.on_bus, key=lambda device: str(device["bus_id"]))
    known = shown <= {device["bus_id"] for device in devices}
    for index, device in enumerate(devices if known else ()):
        if device["bus_id"] not in shown:
            better = _with_gpu(better, index, device["numa_node"], place=device["pci"])
    return [Doubt(HIDDEN_GPUS, (), text)], better


def _lost(facts: NodeFacts) -> _Rule:
    """GPUs and ports that the product has and this node has not."""
    like = product_of(replace(facts, nics=_at_best_rate(facts.nics)))
    product = gpu_product(facts.gpus[0].model) if facts.gpus else None
    # Boards with a switch, or links to all peers, have eight.
    count = len(_cards(facts))
    of_board = 8 if product is not None and product.links and 4 < count < 8 else 0
    wanted = like.gpus if like is not None else of_board
    lacks = []
    better = facts
    if count < wanted:
        lacks.append(f"{count} of {wanted} GPUs (nvidia-smi -L, amd-smi list; lspci, dmesg)")
        while len(better.gpus) < wanted and count == len(facts.gpus):
            better = _with_gpu(better, *_place_of_lost(better, wanted))
    ports = ports_like(_at_best_rate(facts.nics), like) if like is not None else 0
    if like is not None and ports < like.ports:
        lacks.append(f"{ports} of {like.ports} ports of {like.gbps:g} Gb/s (ip -br link, lspci)")
        better = replace(better, nics=_with_ports(better.nics, like))
    if not lacks:
        return [], facts
    name = like.name if like is not None else f"a board of {facts.gpus[0].model}"
    return [Doubt(UNLIKE_PRODUCT, (), f"looks like {name}, but has {' and '.join(lacks)}")], better


def _place_of_lost(facts: NodeFacts, wanted: int) -> tuple[int, int | None, FoundNic | None]:
    """Index and NUMA node of a GPU that is not there, and the port next to it: as the table of GPUs has one in MIG
    mode; else by the port that is next to no other GPU, if there is one; else at the NUMA node that has fewest GPUs."""
    rows = facts.table.rows if facts.table is not None else {}
    index = min(rows.keys() - {gpu.index for gpu in facts.gpus}, default=None)
    if index is not None:
        return index, facts.table.numa.get(index), None
    counts = Counter(gpu.numa for gpu in facts.gpus)
    numa = min(counts, key=lambda node: counts[node])
    here = [gpu.index for gpu in facts.gpus if gpu.numa == numa]
    places, _ = places_of(facts.gpus, facts.nics, facts.table)
    taken = {name for of_gpu in (places or {}).values() for name in nearest(of_gpu)}
    most = max((nic.rate_gbps or 0.0 for nic in facts.nics), default=0.0)
    rails = [nic for nic in facts.nics if nic.rate_gbps == most]
    free = [at for at, nic in enumerate(rails) if nic.name not in taken]
    if places and len(rails) == wanted and free and here[0] <= free[0] <= here[-1] + 1:
        return free[0], numa, rails[free[0]]
    return here[-1] + 1, numa, None


def _with_gpu(
    facts: NodeFacts, index: int, numa: int | None, near: FoundNic | None = None, place: str | None = None
) -> NodeFacts:
    """The node with one more GPU, linked as its peers are, at `index`: those from there on move up."""
    up = any(gpu.index == index for gpu in facts.gpus)  # else a GPU in MIG mode left its place free
    names = {f"gpu{gpu.index}": f"gpu{gpu.index + (up and gpu.index >= index)}" for gpu in facts.gpus}
    gpus = [replace(gpu, index=gpu.index + (up and gpu.index >= index)) for gpu in facts.gpus]
    links = [replace(link, ends=(names.get(link.ends[0], link.ends[0]), names.get(link.ends[1], link.ends[1])))
             for link in facts.links]  # fmt: skip
    peer, new = f"gpu{gpus[0].index}", f"gpu{index}"
    between = _between(links, names.values())
    if _is_mesh(between):
        links += _missing_pairs(between, [*names.values(), new])
        gpus = [replace(gpu, links=gpu.links and gpu.links + between[0].count) for gpu in gpus]
    for link in [link for link in links if peer in link.ends and link not in between and new not in link.ends]:
        other = link.ends[1 - link.ends.index(peer)]
        end = cpu_of(numa, facts.numa_nodes) if other.startswith("numa") else other
        if not other.startswith("gpu"):
            links.append(replace(link, ends=(new, end)))
    if near is not None and near.pci is not None:
        place = f"{near.pci.rpartition('/')[0]}/lost"
    most = max((gpu.links for gpu in gpus if gpu.links is not None), default=None)
    lost = replace(gpus[0], index=index, numa=numa, pci=place, bus_id="", links=most)
    table = facts.table
    if table is not None:
        rows = {row + (up and row >= index): cells for row, cells in table.rows.items()}
        rows.setdefault(index, {nic.name: "PIX" if nic == near else "SYS" for nic in facts.nics})
        table = replace(table, rows=rows)
    ordered = tuple(sorted((*gpus, lost), key=lambda gpu: gpu.index))
    return replace(facts, gpus=ordered, links=tuple(links), table=table)


def _between(links: Sequence[FoundLink], gpus: Collection[str]) -> list[FoundLink]:
    return [link for link in links if link.ends[0] in gpus and link.ends[1] in gpus]


def _is_mesh(between: Sequence[FoundLink]) -> bool:
    """Whether all GPUs that have links to GPUs, more than a pair, have them to each other."""
    linked = {end for link in between for end in link.ends}
    return len(linked) > 2 and 2 * len(between) == len(linked) * (len(linked) - 1)


def _missing_pairs(between: Sequence[FoundLink], gpus: Sequence[str]) -> Iterator[FoundLink]:
    """Links as those `between` other GPUs for the pairs that have none."""
    linked = {frozenset(link.ends) for link in between}
    for pair in itertools.combinations(sorted(gpus, key=lambda name: int(name[3:])), 2):
        if frozenset(pair) not in linked:
            yield replace(between[0], ends=pair, source=f"{between[0].source}: its peers")


def _at_best_rate(nics: Sequence[FoundNic]) -> tuple[FoundNic, ...]:
    """The ports at the rate that the fastest of their kind have."""
    better = []
    for nic in nics:
        peers = [
            peer for peer in nics if peer.card == nic.card and network_of(peer) == network_of(nic) and peer.rate_gbps
        ]
        best = max(peers, key=lambda peer: peer.rate_gbps or 0.0, default=nic)
        slower = nic.rate_gbps is None or nic.rate_gbps < (best.rate_gbps or 0.0)
        source = f"{nic.source}: its peers; it was slower or down at `init`"
        changed = replace(nic, rate_gbps=best.rate_gbps, model=best.model, up=True, source=source)
        better.append(changed if slower and best.rate_gbps is not None else nic)
    return tuple(better)


def _with_ports(nics: tuple[FoundNic, ...], like: NodeProduct) -> tuple[FoundNic, ...]:
    """The ports with those whose numbers are left out between the others, where they are as many as are missing."""
    matches = {nic.name: match for nic in nics if (match := re.fullmatch(r"(.*?)(\d+)", nic.name))}
    prefixes = {match[1] for match in matches.values()}
    numbers = {int(match[2]) for match in matches.values()}
    gaps = sorted({*range(max(numbers, default=0))} - numbers)
    if len(prefixes) != 1 or len(matches) < len(nics) or len(gaps) != like.ports - len(nics):
        return nics
    source = f"{like.name}; it was not there at `init`"
    lost = [replace(nics[0], name=f"{min(prefixes)}{gap}", numa=None, pci=None, source=source) for gap in gaps]
    return tuple(sorted((*nics, *lost), key=lambda nic: int(re.findall(r"\d+", nic.name)[-1])))


def _ports_down(facts: NodeFacts) -> _Rule:
    down = [nic for nic in facts.nics if not nic.up]
    if not down:
        return [], facts
    names = [nic.name for nic in down]
    text = f"{few(names)}: the port is down, and its peers are up: cable, port of the switch ({_state(down[0])})"
    best = _at_best_rate(facts.nics)
    nics = tuple(better if not nic.up else nic for nic, better in zip(facts.nics, best, strict=True))
    return [Doubt(PORT_DOWN, tuple(names), text)], replace(facts, nics=nics)


def _state(nic: FoundNic) -> str:
    """The command that shows the state of a port."""
    return family_of(f"{nic.name} {nic.model}").state.format(nic.name)


def _slow_ports(facts: NodeFacts) -> _Rule:
    places, _ = places_of(facts.gpus, facts.nics, facts.table)
    # A port that is near no GPU is one of storage or management, and may be slower.
    used = {name for of_gpu in (places or {}).values() for name in nearest(of_gpu)} or {nic.name for nic in facts.nics}
    best = _at_best_rate(facts.nics)
    doubts = []
    for nic, better in zip(facts.nics, best, strict=True):
        if nic.name in used and nic.rate_gbps is not None and better != nic:
            rates = f"runs at {nic.rate_gbps:g} Gb/s, and its peers at {better.rate_gbps:g} Gb/s"
            text = f"{nic.name} {rates}: cable, port of the switch ({_state(nic)})"
            doubts.append(Doubt(SLOW_PORT, (nic.name,), text))
    return doubts, replace(facts, nics=best) if doubts else facts


def _links(facts: NodeFacts) -> _Rule:
    """GPUs with fewer NVLinks, or peers by Infinity Fabric, than their peers or than the model has."""
    known = {gpu.index: gpu for gpu in facts.gpus if gpu.links is not None and len(facts.gpus) > 1}
    wanted = {index: _wanted_links(gpu, facts.gpus) for index, gpu in known.items()}
    less = {index: count for index, count in wanted.items() if (known[index].links or 0) < count}
    if not less:
        return [], facts
    doubts = []
    if facts.vendor != "amd" and len(less) == len(facts.gpus) and not any(known[index].links for index in less):
        text = (
            f"none of the {max(less.values())} NVLinks of any GPU is active: the fabric manager "
            "(systemctl status nvidia-fabricmanager; nvidia-smi -q: Fabric; nvidia-smi nvlink -s)"
        )
        doubts.append(Doubt(MISSING_LINKS, tuple(f"gpu{index}" for index in less), text))
    else:
        for index, count in less.items():
            has = f"gpu{index} has {known[index].links or 'none'} of the {count}"
            text = (
                f"{has} links to GPUs that its peers or its data sheet have: {_LOOK[facts.vendor].format(index=index)}"
            )
            doubts.append(Doubt(MISSING_LINKS, (f"gpu{index}",), text))
    return doubts, replace(facts, links=tuple(_with_links(facts, max(wanted.values()))))


_LOOK = {
    "nvidia": "nvidia-smi nvlink -s -i {index}; reseat the GPU or its bridge",
    "amd": "amd-smi xgmi, and the kernel's log",
    "intel": "xpu-smi topology -m, and the kernel's log",
}


def _wanted_links(gpu: FoundGpu, gpus: Sequence[FoundGpu]) -> int:
    product = gpu_product(gpu.model)
    if gpu.arch.startswith("gfx") and not (product is not None and product.links_of_bridge):
        # A link to each peer; GPUs that are not visible are no peers, and boards without a sheet join GPUs unlike.
        return min(product.links or 0 if product is not None else 0, len(gpus) - 1)
    # The driver lists links that never were there, where bridges decide; each bridge has so many.
    most = max(peer.links or 0 for peer in gpus if peer.model == gpu.model)
    if product is None:
        return max(gpu.links_of_driver, most)
    of_bridge = product.links_of_bridge or 1
    return max(product.links or 0, -(-most // of_bridge) * of_bridge)


def _with_links(facts: NodeFacts, count: int) -> Iterator[FoundLink]:
    """The links, with as many to the switch as there should be, also of GPUs of which none is active, or with those of
    all pairs."""
    to_switch = [link for link in facts.links if "nvswitch" in link.ends]
    generation = NVLINK_OF_ARCH.get(facts.gpus[0].arch)
    gpus = {f"gpu{gpu.index}" for gpu in facts.gpus}
    between = _between(facts.links, gpus)
    if between and (count == len(gpus) - 1 or _is_mesh(between)):
        yield from _missing_pairs(between, [f"gpu{gpu.index}" for gpu in facts.gpus])
    peers = {sum(gpu in link.ends for link in between) for gpu in gpus}
    others = [link for link in facts.links if re.match(r"NVLink\d", link.technology) and link not in between]
    # All have as many peers, and no NVLink to anything else.
    of_pair = count // max(peers) if between and not others and len(peers) == 1 and count % max(peers) == 0 else 0
    if not to_switch and not between and len(facts.gpus) == 8 and generation is not None and generation > 2:
        rate = nvlink_gbps(generation, None)
        to_switch = [FoundLink(("", "nvswitch"), f"NVLink{generation}", count, rate, "the data sheet")]
    for link in facts.links:
        yield replace(link, count=count if link in to_switch else max(link.count, of_pair if link in between else 0))
    there = {link.ends[0] for link in to_switch}
    for gpu in facts.gpus if to_switch else ():
        if (name := f"gpu{gpu.index}") not in there:
            source = f"{to_switch[0].source}: none was active at `init`"
            yield replace(to_switch[0], ends=(name, "nvswitch"), count=count, source=source)


def _pcie(facts: NodeFacts) -> _Rule:
    """GPUs whose PCIe link is less than that of their peers or of their data sheet."""
    models = {f"gpu{gpu.index}": gpu.model for gpu in facts.gpus}
    best: dict[str, tuple[int, int]] = {}
    own: dict[int, tuple[int, int]] = {}
    for at, link in enumerate(facts.links):
        if link.ends[0] in models and (match := _PCIE.fullmatch(link.technology)):
            own[at] = int(match[1]), int(match[2])
            model = models[link.ends[0]]
            # Where bridges or the CPU are slower than the GPU, its peers tell what should be, and not its data sheet.
            sheet = None if link.source == SLOWEST_ON_THE_WAY else pcie_of(gpu_product(model))
            before = best.get(model) or sheet or own[at]
            best[model] = max(before, own[at], key=_speed)
    doubts, links = [], list(facts.links)
    for at, is_now in own.items():
        link, should = facts.links[at], best[models[facts.links[at].ends[0]]]
        if _speed(is_now) < _speed(should):
            links[at] = pcie_link(*link.ends, *should, f"{link.source}: its peers or data sheet")
            text = (
                f"{link.ends[0]} has {link.technology}, and its peers or its data sheet have {links[at].technology}: "
                "lspci -vv (LnkSta); the slot, its riser, BIOS, or the board"
            )
            doubts.append(Doubt(SLOW_PCIE, (link.ends[0],), text))
    return doubts, replace(facts, links=tuple(links)) if doubts else facts


def _speed(link: tuple[int, int]) -> int:
    """Relative: a lane doubles with each generation."""
    generation, width = link
    return (1 << generation) * width


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
                    f"{links[best]['technology']}: cable or port"
                )
                doubts.append(Doubt(SLOW_CABLE, slow, text))
                if SLOW_CABLE not in accepted:
                    links[at] = {**links[at], "technology": links[best]["technology"], "rate": links[best]["rate"]}
    return tuple(doubts), {**network, "network": {**network["network"], "links": links}}
