"""A drawing of a node as SVG: devices, and links as wide as their bandwidth."""

from __future__ import annotations

import math
from xml.etree import ElementTree

from fabricheck.topology.model import Link, Topology

SIZE = 720
STYLE = {"gpus": "#76b900", "cpus": "#4a7ebb", "switches": "#b8860b", "nics": "#999999"}
_WIDEST_PX = 12.0


def draw(topology: Topology) -> str:
    """The SVG document. GPUs lie on a circle in the order of their indexes, what joins them inside or outside of it.

    The area between the two edges of a line grows with the rate of all parallel links: its width is a share of the
    widest link's. A line's tooltip and label name technology, count and rate.
    """
    places = places_of(topology)
    names = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {SIZE} {SIZE}",
            "font-family": "sans-serif",
            "font-size": "12",
            "text-anchor": "middle",
        },
    )
    ElementTree.SubElement(names, "title").text = f"{topology.system}: {topology.description}"
    ElementTree.SubElement(names, "rect", {"width": "100%", "height": "100%", "fill": "white"})
    for link in topology.links:
        (x1, y1), (x2, y2) = places[link.ends[0]], places[link.ends[1]]
        line = ElementTree.SubElement(
            names,
            "line",
            {
                "x1": f"{x1:.1f}",
                "y1": f"{y1:.1f}",
                "x2": f"{x2:.1f}",
                "y2": f"{y2:.1f}",
                "stroke": "#444444",
                "stroke-opacity": "0.55",
                "stroke-width": f"{width_of(link, topology):.2f}",
            },
        )
        ElementTree.SubElement(line, "title").text = describe(link)
        # Off the middle, where crossing lines would hide each other's labels.
        label = {"x": f"{x1 + 0.38 * (x2 - x1):.1f}", "y": f"{y1 + 0.38 * (y2 - y1) - 3:.1f}", "font-size": "9"}
        ElementTree.SubElement(names, "text", label).text = f"{link.total_gbps:g}"
    for group, colour in STYLE.items():
        for device in getattr(topology, group):
            _box(names, device.name, places[device.name], colour)
    caption = {"x": str(SIZE / 2), "y": str(SIZE - 10), "font-size": "12"}
    ElementTree.SubElement(names, "text", caption).text = f"{topology.system}: rates in Gb/s, one direction"
    return ElementTree.tostring(names, encoding="unicode") + "\n"


def _box(parent: ElementTree.Element, name: str, place: tuple[float, float], colour: str) -> None:
    width = box_width(name)
    ElementTree.SubElement(
        parent,
        "rect",
        {
            "x": f"{place[0] - width / 2:.1f}",
            "y": f"{place[1] - 13:.1f}",
            "width": f"{width:.1f}",
            "height": "26",
            "rx": "5",
            "fill": colour,
            "stroke": "#222222",
        },
    )
    ElementTree.SubElement(parent, "text", {"x": f"{place[0]:.1f}", "y": f"{place[1] + 4:.1f}"}).text = name


def width_of(link: Link, topology: Topology) -> float:
    """Width of a link's line, as a share of the widest link's."""
    widest = max(each.total_gbps for each in topology.links)
    return max(0.6, _WIDEST_PX * link.total_gbps / widest)


def describe(link: Link) -> str:
    return f"{link.ends[0]} - {link.ends[1]}: {link.technology}, {link.count} x {link.rate_gbps:g} Gb/s"


def box_width(name: str) -> float:
    return 14 + 7.5 * len(name)


def places_of(topology: Topology) -> dict[str, tuple[float, float]]:
    """The middle of each device's box by its name, in a square of `SIZE`."""
    middle = SIZE / 2
    places: dict[str, tuple[float, float]] = {}

    def ring(names: list[str], radius: float, turn: float = 0.0) -> None:
        for position, name in enumerate(names):
            angle = 2 * math.pi * (position / len(names) + turn) - math.pi / 2
            places[name] = (middle + radius * math.cos(angle), middle + radius * math.sin(angle))

    gpus = [gpu.name for gpu in sorted(topology.gpus, key=lambda gpu: gpu.index)]
    ring(gpus, 0.31 * SIZE)
    switches = [one.name for one in topology.switches]
    ring(switches, 0.0 if len(switches) == 1 else 0.1 * SIZE)
    # A CPU lies outside, in the direction of the GPUs that are linked to it, if they have one.
    for position, cpu in enumerate(topology.cpus):
        linked = [end for link in topology.links if cpu.name in link.ends for end in link.ends if end in gpus]
        x = sum(places[name][0] - middle for name in linked)
        y = sum(places[name][1] - middle for name in linked)
        angle = math.atan2(y, x) if math.hypot(x, y) > 1 else 2 * math.pi * position / len(topology.cpus) + math.pi / 4
        places[cpu.name] = (middle + 0.42 * SIZE * math.cos(angle), middle + 0.42 * SIZE * math.sin(angle))
    for position, nic in enumerate(topology.nics):
        places[nic.name] = (SIZE * (position + 1) / (len(topology.nics) + 1), 22)
    return places
