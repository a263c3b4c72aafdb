"""How long the model takes: every described system, and graphs of 72 and 256 GPUs.

    python benchmarks/model.py

For each graph: GPUs, seconds of the optima, of the named algorithms, and of the whole table of `fabricheck expected`.
Each in a fresh graph, with nothing kept from before; seconds are those of the processor, which a busy machine does not
lengthen.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import replace

from fabricheck.limits import optimum
from fabricheck.limits.gpus import algorithm_of
from fabricheck.records.operations import COLLECTIVES
from fabricheck.suite import suite_root
from fabricheck.topology.model import Cpu, Gpu, Link, Switch, Topology, find_topology
from fabricheck.yardsticks.expected_table import expected_rows

_Pairs = list[tuple[int, int]]


def node(name: str, gpus: int, pairs: _Pairs, *, star: bool = False, rates: tuple[float, ...] = (400.0,)) -> Topology:
    """A node of GPUs with a link for each pair, or one each to a switch."""
    choose = random.Random(1)
    links = [Link((f"gpu{a}", f"gpu{b}"), "test", 1, choose.choice(rates), "made up") for a, b in pairs]
    links += [Link((f"gpu{one}", "switch"), "test", 1, 3600.0, "made up") for one in range(gpus) if star]
    return Topology(
        system=name,
        description="made up",
        gpus=tuple(Gpu(f"gpu{one}", one, "test") for one in range(gpus)),
        cpus=(Cpu("cpu0"),),
        switches=(Switch("switch", "test"),) if star else (),
        links=tuple(links),
    )


def graphs(largest: int) -> Iterator[Topology]:
    root = suite_root()
    for folder in sorted((root / "site_configs").iterdir()):
        if (folder / "topology.yaml").is_file():
            topology = find_topology(folder.name, root / "site_configs")
            yield replace(topology)  # a new object: nothing is kept of it
    mesh = [(a, b) for a in range(72) for b in range(a)]
    tree = [(random.Random(one).randrange(one), one) for one in range(1, 72)]
    more = [(a, b) for a, b in random.Random(2).sample(mesh, 130) if (b, a) not in tree and (a, b) not in tree]
    yield node("star of 72", 72, [], star=True)
    yield node("mesh of 72", 72, mesh)
    yield node("ring of 72", 72, [(one, (one + 1) % 72) for one in range(72)])
    yield node("random, 72", 72, tree + more, rates=(100.0, 200.0, 400.0))
    if largest >= 256:
        yield node("ring of 256", 256, [(one, (one + 1) % 256) for one in range(256)])
        yield node("star of 256", 256, [], star=True)


def seconds_of(topology: Topology) -> str:
    start = time.process_time()
    several = len(topology.gpus) > 1
    best = {each: optimum.collective(topology, each, topology.gpus) for each in COLLECTIVES if several}
    middle = time.process_time()
    for operation in COLLECTIVES if best else ():
        algorithm_of(topology, operation, "ccl", topology.gpus)
    end = time.process_time()
    count = sum(1 for _ in expected_rows(topology))
    last = time.process_time()
    known = f"alltoall {best['alltoall']:.4g} Gb/s" if best else "-"
    times = f"{middle - start:9.2f} {end - middle:11.2f} {last - start:12.2f}"
    return f"{topology.system:<18} {len(topology.gpus):>5} {times} {count:>8}  {known}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--largest", type=int, default=256, help="leave out graphs with more GPUs (default: %(default)s)"
    )
    largest = parser.parse_args().largest
    print(f"{'graph':<18} {'GPUs':>5} {'optima, s':>9} {'algorithms':>11} {'with table':>12} {'rows':>8}  optima")
    for topology in graphs(largest):
        print(seconds_of(topology), flush=True)


if __name__ == "__main__":
    main()
