"""A drawing of a node as SVG: devices on rings, and links as wide as their bandwidth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import networkx as nx

from fabricheck.topology.host import host_paths
from fabricheck.topology.model import Link, Topology
from fabricheck.topology.nic import nic_of
from fabricheck.visible import escaped

STYLE = {"gpus": "#76b900", "cpus": "#4a7ebb", "switches": "#b8860b", "nics": "#999999"}
_LEAST_SIZE = 720.0
_WIDEST_PX = 12.0
_GAP_PX = 78.0  # between rings: a box, and room for links between two of them
_MARGIN_PX = 50.0
_FAR = 1.2  # rad between a GPU and what lies outside: from there on a link goes round

Place = tuple[float, float]


@dataclass(frozen=True)
class DrawnLink:
    """How a link is drawn: `path` is the `d` of an SVG path, `label` where its number stands, `ys` how far up and down
    it goes."""

    path: str
    label: Place
    ys: tuple[float, float]


@dataclass(frozen=True)
class Layout:
    """The middle of each device's box by its name, in a square of `size` pixels, and the NIC of each GPU.

    Switches lie inside, GPUs around them, then CPUs, then NICs: each kind on a ring of its own, near what it belongs
    to. Links between GPUs bend inwards and links to CPUs and NICs outwards, so that none runs behind another GPU.
    """

    size: float
    places: Mapping[str, Place]
    radii: Mapping[str, float]
    gpu_radius: float
    associated: tuple[tuple[str, str], ...]

    def curve(self, ends: tuple[str, str]) -> DrawnLink:
        """The curve between two devices."""
        start, other = (self.places[end] for end in ends)
        inner, outer = sorted(self.radii[end] for end in ends)
        if inner == outer and outer > self.gpu_radius:
            return self._around(start, other, outer)
        if inner == outer:
            # Towards the middle, and the more the nearer the two are.
            control = self._scaled(_middle(start, other), 0.5)
        elif outer > self.gpu_radius:
            near, far = sorted((start, other), key=self._distance)
            if abs(math.remainder(self._angle(far) - self._angle(near), 2 * math.pi)) > _FAR:
                return self._out_and_around(near, far, (self.gpu_radius + outer) / 2)
            control = self._scaled(near, outer / max(inner, 1e-9)) if inner else _middle(near, far)
        else:
            control = _middle(start, other)
        (x1, y1), (cx, cy), (x2, y2) = start, control, other
        path = f"M {x1:.1f} {y1:.1f} Q {cx:.1f} {cy:.1f} {x2:.1f} {y2:.1f}"
        ys = [y1, y2, _on_curve(start, control, other, 0.5)[1]]
        return DrawnLink(path, _on_curve(start, control, other, 0.38), (min(ys), max(ys)))

    @property
    def _middle(self) -> float:
        return self.size / 2

    def _angle(self, place: Place) -> float:
        return math.atan2(place[1] - self._middle, place[0] - self._middle)

    def _at(self, angle: float, radius: float) -> Place:
        return self._middle + radius * math.cos(angle), self._middle + radius * math.sin(angle)

    def _out_and_around(self, near: Place, far: Place, radius: float) -> DrawnLink:
        """Outwards from the inner device, along a ring of its own, and outwards again."""
        way = self._around(self._at(self._angle(near), radius), self._at(self._angle(far), radius), radius)
        path = f"M {near[0]:.1f} {near[1]:.1f} L{way.path[1:]} L {far[0]:.1f} {far[1]:.1f}"
        ys = [near[1], far[1], *way.ys]
        return DrawnLink(path, way.label, (min(ys), max(ys)))

    def _distance(self, place: Place) -> float:
        return math.hypot(place[0] - self._middle, place[1] - self._middle)

    def _scaled(self, place: Place, factor: float) -> Place:
        middle = self._middle
        return middle + factor * (place[0] - middle), middle + factor * (place[1] - middle)

    def _around(self, place: Place, other: Place, radius: float) -> DrawnLink:
        """Along the ring on which both lie."""
        start, end = self._angle(place), self._angle(other)
        turn = (end - start) % (2 * math.pi)
        sweep = turn <= math.pi
        short = turn if sweep else turn - 2 * math.pi
        ys = [self._at(start + short * step / 8, radius)[1] for step in range(9)]
        label = self._at(start + short / 2, radius)
        (x1, y1), (x2, y2) = place, other
        path = f"M {x1:.1f} {y1:.1f} A {radius:.1f} {radius:.1f} 0 0 {int(sweep)} {x2:.1f} {y2:.1f}"
        return DrawnLink(path, label, (min(ys), max(ys)))


def _middle(place: Place, other: Place) -> Place:
    return (place[0] + other[0]) / 2, (place[1] + other[1]) / 2


def _on_curve(place: Place, control: Place, other: Place, at: float) -> Place:
    weights = ((1 - at) ** 2, 2 * at * (1 - at), at**2)
    x, y = (sum(w * point[axis] for w, point in zip(weights, (place, control, other), strict=True)) for axis in (0, 1))
    return x, y


def layout(topology: Topology) -> Layout:
    """Where each device of a node lies, by networkx's circular layout of each ring."""
    gpus = _by_cpu(topology)
    associated = tuple((gpu, nic) for gpu, nic in _associated(topology, gpus))
    nics = [nic.name for nic in topology.nics]
    used = {nic: position for position, nic in enumerate(dict.fromkeys(nic for _, nic in associated))}
    nics.sort(key=lambda nic: used.get(nic, len(used)))
    inner = [one.name for one in topology.switches if not one.host_only]
    outer = [[one.name for one in ring] for ring in (topology.host_switches, topology.cpus) if ring]
    rings = [inner, gpus, *outer, nics]
    radii: list[float] = []
    for position, names in enumerate(rings):
        least = 0.0 if position == 0 and len(names) < 2 else (radii[-1] + _GAP_PX if radii else _GAP_PX)
        if position == 1:
            least = max(least, 150.0)
        room = sum(box_width(name) + 10 for name in names) / (2 * math.pi)
        radii.append(max(least, room))
    size = max(_LEAST_SIZE, 2 * (radii[-1] + _MARGIN_PX))
    places: dict[str, Place] = {}
    radius_of: dict[str, float] = {}
    for names, radius in zip(rings, radii, strict=True):
        if not names:
            continue
        spread: dict[str, Any] = dict(nx.circular_layout(nx.empty_graph(names))) if len(names) > 1 else {}
        # The first of each ring lies before the middle of its share, so that rings of different sizes agree.
        turn = math.pi / len(names) - math.pi / 2
        for name in names:
            x, y = spread.get(name, (1.0, 0.0))
            angle = math.atan2(float(y), float(x)) + turn
            places[name] = (size / 2 + radius * math.cos(angle), size / 2 + radius * math.sin(angle))
            radius_of[name] = radius
    return Layout(size, places, radius_of, radii[1], associated)


def _by_cpu(topology: Topology) -> list[str]:
    """GPUs in the order of the CPUs that they are linked to, then of their indexes."""
    order = {cpu.name: position for position, cpu in enumerate(topology.cpus)}
    nearest = {
        gpu: min((order[path[-1]] for path in host_paths(topology, gpu)), default=len(order)) for gpu in topology.gpus
    }
    return [gpu.name for gpu in sorted(topology.gpus, key=lambda gpu: (nearest[gpu], gpu.index))]


def _associated(topology: Topology, gpus: Sequence[str]) -> Iterator[tuple[str, str]]:
    for name in gpus:
        if topology.nics and (nic := nic_of(topology, topology.gpu(name))) is not None:
            yield name, nic.name


def draw(topology: Topology) -> str:
    """The SVG document.

    The area between the two edges of a line grows with the rate of all parallel links: its width is a share of the
    widest link's. A line's tooltip and label name technology, count and rate; dashes are the NIC that a GPU uses.
    """
    made = layout(topology)
    side = f"{made.size:.0f}"
    top = add(
        *(None, "svg"),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {side} {side}",
        font_family="sans-serif",
        font_size="12",
        text_anchor="middle",
    )
    add(top, "title", f"{topology.system}: {topology.description}")
    add(top, "rect", width="100%", height="100%", fill="white")
    for ends in made.associated:
        way = {"d": made.curve(ends).path, "fill": "none"}
        add(add(top, "path", **way, stroke=STYLE["nics"], stroke_dasharray="4 4"), "title", " uses ".join(ends))
    labels = []
    for link in topology.links:
        curve, width = made.curve(link.ends), f"{width_of(link, topology):.2f}"
        line = {"d": curve.path, "fill": "none", "stroke": "#444444", "stroke_opacity": "0.55", "class_": "link"}
        add(add(top, "path", **line, stroke_width=width), "title", describe(link))
        labels.append((curve.label, f"{link.total_gbps:g}"))
    # So many numbers would hide each other; each link has its own in its tooltip.
    for (x, y), text in labels if len(labels) <= 60 else ():
        style = {"font_size": "9", "stroke": "white", "stroke_width": "3", "paint_order": "stroke"}
        add(top, "text", text, x=f"{x:.1f}", y=f"{y + 3:.1f}", **style)
    for group, colour in STYLE.items():
        for device in getattr(topology, group):
            add_device(top, device.name, made.places[device.name], fill=colour, stroke="#222222")
    text = f"{topology.system}: rates in Gb/s, one direction{'; dashes: the NIC of a GPU' if made.associated else ''}"
    add(top, "text", text, x=f"{made.size / 2:.0f}", y=f"{made.size - 10:.0f}", font_size="12")
    return ElementTree.tostring(top, encoding="unicode") + "\n"


def add(
    parent: ElementTree.Element | None, tag: str, text: str | None = None, **attributes: str
) -> ElementTree.Element:
    """An element below `parent`; ElementTree escapes what it writes, and names are made printable here."""
    named = {_attribute(name): escaped(value, keep="") for name, value in attributes.items()}
    made = ElementTree.Element(tag, named) if parent is None else ElementTree.SubElement(parent, tag, named)
    made.text = None if text is None else escaped(text, keep="")
    return made


def _attribute(name: str) -> str:
    return name if name == "viewBox" else name.rstrip("_").replace("_", "-")


def add_device(parent: ElementTree.Element, name: str, place: Place, **style: str) -> None:
    """A device's box with its name."""
    (x, y), width = place, box_width(name)
    at = {"x": f"{x - width / 2:.1f}", "y": f"{y - 13:.1f}", "width": f"{width:.1f}", "height": "26"}
    add(parent, "rect", **at, rx="5", **style)
    add(parent, "text", name, x=f"{x:.1f}", y=f"{y + 4:.1f}")


def width_of(link: Link, topology: Topology) -> float:
    """Width of a link's line, as a share of the widest link's."""
    widest = max(each.total_gbps for each in topology.links)
    return max(0.6, _WIDEST_PX * link.total_gbps / widest)


def describe(link: Link) -> str:
    """The link as the text beside the drawing: its ends, technology, number, and Gb/s in each direction."""
    back = f" there, {link.back_gbps:g} Gb/s back" if link.back_gbps is not None else ""
    return f"{link.ends[0]} - {link.ends[1]}: {link.technology}, {link.count} x {link.rate_gbps:g} Gb/s{back}"


def box_width(name: str) -> float:
    """The width of a device's box, in pixels."""
    return 14 + 7.5 * len(name)
