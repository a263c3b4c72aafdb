"""A drawing of a node as SVG: devices on rings, and links as wide as their bandwidth."""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from fabricheck.topology.host import host_paths
from fabricheck.topology.model import Link, Topology
from fabricheck.topology.nic import nic_of
from fabricheck.visible import escaped

STYLE = {"gpus": "#76b900", "cpus": "#4a7ebb", "switches": "#b8860b", "nics": "#999999"}
_LEAST_SIZE = 720.0
_WIDEST_PX = 12.0
_GAP_PX = 78.0  # between rings: a box, and room for links between two of them
_MARGIN_PX = 50.0
_STEPS = 24  # of a link

Place = tuple[float, float]


@dataclass(frozen=True)
class Layout:
    """The middle of each device's box by its name, in a square of `size` pixels, and the NIC of each GPU.

    Switches lie inside, GPUs around them, then CPUs, then NICs: each kind on a ring of its own, near what it belongs
    to.
    """

    size: float
    places: Mapping[str, Place]
    radii: Mapping[str, float]
    gpu_radius: float
    associated: tuple[tuple[str, str], ...]

    def curve(self, ends: tuple[str, str]) -> list[Place]:
        """Places on the link between two devices. Inside the ring of GPUs it is straight, and bends inwards between two
        of one ring; outside it turns round the middle and leaves the inner ring at once: it runs behind no GPU."""
        inner, outer = sorted(ends, key=lambda end: self.radii[end])
        shares = [step / _STEPS for step in range(_STEPS + 1)]
        middle = complex(self.size, self.size) / 2
        start, last = (complex(*self.places[end]) - middle for end in (inner, outer))
        if self.radii[outer] <= self.gpu_radius or not start:
            control = (start + last) / (4 if self.radii[inner] == self.radii[outer] else 2)
            line = [(1 - t) ** 2 * start + 2 * t * (1 - t) * control + t**2 * last for t in shares]
        else:
            angle, growth = cmath.phase(last / start), abs(last) - abs(start)
            line = [
                cmath.rect(abs(start) + growth * math.sin(t * math.pi / 2), cmath.phase(start) + t * angle)
                for t in shares
            ]
        return [((middle + place).real, (middle + place).imag) for place in line]


def _path(places: Sequence[Place]) -> str:
    """Of an SVG path."""
    return "M " + " L ".join(f"{x:.1f} {y:.1f}" for x, y in places)


def layout(topology: Topology) -> Layout:
    """Where each device of a node lies."""
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
        for number, name in enumerate(names):
            # The first of each ring lies before the middle of its share, so that rings of different sizes agree.
            angle = (2 * number + 1) * math.pi / len(names) - math.pi / 2
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
        way = {"d": _path(made.curve(ends)), "fill": "none"}
        add(add(top, "path", **way, stroke=STYLE["nics"], stroke_dasharray="4 4"), "title", " uses ".join(ends))
    labels = []
    for link in topology.links:
        curve, width = made.curve(link.ends), f"{width_of(link, topology):.2f}"
        line = {"d": _path(curve), "fill": "none", "stroke": "#444444", "stroke_opacity": "0.55", "class_": "link"}
        add(add(top, "path", **line, stroke_width=width), "title", describe(link))
        labels.append((curve[_STEPS // 3], f"{link.total_gbps:g}"))
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
