"""How much a measurement differs from launch to launch: the table of recorded launches of the same commands.

    python -m benchmarks.launch_noise docs/results/h200-2026-11-22/launches-4-gpus.tar.xz

The archive holds a result file of fabricbench for each launch and command, `NUMBER-COMMAND.jsonl`. A metric's value in
a launch is its median; the table has, for each operation and size, the spread of these values between launches (as
robust standard deviation over all pairs or groups, in % of their median over all launches), the worst deviation towards
the slow side, and the spread inside a launch for comparison.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from fabricheck.errors import UserError
from fabricheck.records.metrics import metrics_of
from fabricheck.records.operations import PAIRS
from fabricheck.results.fabricbench import read_run
from fabricheck.suites.sources import extract
from fabricheck.units import format_size

# A normal distribution's standard deviation over its median absolute deviation.
_NORMAL = 1.4826

Key = tuple[str, str, int, str]


def launches(archive: Path) -> Iterator[tuple[str, Path]]:
    """Name of the command and result file of each launch, while the archive is unpacked. UserError where it is none."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            extract(archive, Path(folder))
        except (OSError, tarfile.TarError) as error:
            raise UserError(f"{archive}: cannot be unpacked: {error}") from None
        for file in sorted(Path(folder).glob("[0-9]*-*.jsonl")):
            yield file.stem.partition("-")[2], file


def values(archive: Path) -> tuple[int, Mapping[Key, Mapping[str, list[np.ndarray]]]]:
    """How many launches there are, and by operation, transport, bytes and quantity each metric's values: for each
    launch an array of its iterations."""
    values_by_key: dict[Key, dict[str, list[np.ndarray]]] = defaultdict(lambda: defaultdict(list))
    numbers = set()
    for _, file in launches(archive):
        run = read_run(file)
        if run.footer is None:
            continue
        numbers.add(file.stem.partition("-")[0])
        for metric in metrics_of(run):
            access = run.header["plan"].get("access") if metric.samples.operation in PAIRS else None
            operation = f"{metric.samples.operation}, {access}" if access else metric.samples.operation
            key = (operation, str(run.header["transport"]), metric.samples.bytes, metric.quantity)
            values_by_key[key][metric.name].append(metric.values)
    return len(numbers), values_by_key


def row(key: Key, metrics: Mapping[str, Sequence[np.ndarray]]) -> str:
    operation, transport, size, quantity = key
    between, worst, inside, level = [], [], [], []
    for series in metrics.values():
        medians = np.array([np.median(each) for each in series])
        centre = float(np.median(medians))
        level.append(centre)
        deviation = (medians / centre - 1) * (1 if quantity == "goodput" else -1)
        between.append(_NORMAL * float(np.median(np.abs(deviation))))
        worst.append(float(deviation.min()))
        inside += [_NORMAL * float(np.median(np.abs(each / np.median(each) - 1))) for each in series]
    unit = "Gb/s" if quantity == "goodput" else "µs"
    return (
        f"| {operation} | {transport} | {format_size(size)} | {len(metrics)} | {np.median(level):.4g} {unit} "
        f"| {100 * np.median(between):.2f}% | {100 * min(worst):+.1f}% | {100 * np.median(inside):.2f}% |"
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path)
    given = parser.parse_args(arguments)
    try:
        count, values_by_key = values(given.archive)
    except UserError as error:
        print(f"fabricheck: {error}", file=sys.stderr)
        return 2
    print(f"{count} launches\n")
    print("| operation | transport | size | metrics | median | between launches | slowest launch | inside a launch |")
    print("|---|---|---|---|---|---|---|---|")
    for key, metrics in values_by_key.items():
        print(row(key, metrics))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
