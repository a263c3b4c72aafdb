"""A corpus of damaged outputs: 100,000 by default, always the same, none of which may be taken for another result.

A mutated text is *accepted silently* where the parser finds no problem in it and yet its measurements (operation, size,
ranks, placement, wrong bytes, statistic, times) are not those of the text that was mutated. What no parser can find is
left out by construction, and only there:

- A digit that becomes another digit is no mutation here: where the tool says a number once, the other is as good. Where
  it says it twice, test_redundancy.py changes every digit.
- Two rows of the same size in two tables of one output that change places, and two cells of a row for which all that
  the tool guarantees holds either way round: the maximum over ranks and a percentile in OSU, the time and the rate in
  IMB, whose product is the size. These are counted as `indistinguishable`.
- Warm-up counts, versions, device names and dates are no measurements.

`python -m tests.vendor.mutations [COUNT]` prints how many of each kind were found, harmless and silent.
"""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fabricheck.records.vendor_output import VendorOutput
from tests.vendor import render
from tests.vendor.reading import read_one, read_report

DATA = Path(__file__).parents[1] / "data" / "suites"
COUNT = 100_000
OUTCOMES = ("found", "harmless", "indistinguishable")

Mutation = Callable[[str, random.Random], str]


@dataclass(frozen=True)
class Source:
    """An output and how a check, which knows what it ran, has it parsed."""

    name: str
    text: str
    parse: Callable[[str], VendorOutput]
    exchangeable: frozenset[tuple[int, int]] = frozenset()  # columns that may change places in a row unnoticed


def _osu(  # noqa: PLR0917
    name: str, tool: str, ranks: int, low: int, high: int, exchangeable: frozenset[tuple[int, int]] = frozenset()
) -> Source:
    """A recorded output of OSU, and of a long one only the rows from `low` to `high` bytes."""
    lines = (DATA / "osu" / f"{name}.txt").read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line[:1].isdigit() or low <= int(line.split()[0]) <= high]
    sizes = [int(line.split()[0]) for line in kept if line[:1].isdigit()]

    def parse(text: str) -> VendorOutput:
        return read_one(text, "out.txt", ranks=ranks, sizes=sizes, tool=tool)

    return Source(name, "".join(kept), parse, exchangeable)


def _nccl(parser: Callable[..., VendorOutput], text: str, tool: str, ranks: int, name: str) -> Source:
    return Source(f"{tool} {name}", text, lambda each: parser(each, "out", ranks=ranks, tool=tool))


def _imb(name: str, text: str, ranks: int, tool: str, exchangeable: frozenset[tuple[int, int]] = frozenset()) -> Source:
    return Source(
        name, text, lambda each: read_one(each, "out.txt", ranks=ranks, tool=f"IMB-MPI1 {tool}"), exchangeable
    )


def _oneccl(name: str) -> Source:
    text = (DATA / "oneccl" / f"{name}.txt").read_text()
    sizes = tuple(4 << power for power in range(0, 18, 2))
    return Source(name, text, lambda each: read_one(each, "out.txt", ranks=2, sizes=sizes))


def sources() -> list[Source]:
    """Recorded outputs and, where the recorded ones are long or of one version, rendered ones."""
    times = [(21.55, 21.93), (31.58, 30.11), (614.74, 615.01)]
    reduce = render.NcclTable("all_reduce_perf", 4, 65536, 32, times)
    gather = render.NcclTable("all_gather_perf", 8, 1 << 20, 16, times)
    send = render.NcclTable("sendrecv_perf", 2, 1 << 20, 64, times[1:])
    columns = ("#bytes", "#repetitions", "Mbytes/sec", "Msg/sec")
    rows = [("0", "100", "0.00", "1610121"), ("8", "100", "12.00", "1500000"), ("16", "100", "24.80", "1550000")]
    files = {name: (DATA / "imb" / f"host_imb_{name}.txt").read_text() for name in ("4np2", "label")}
    return [
        _osu("h200_osu_bw_DD", "osu_bw", 2, 1 << 22, 1 << 28),
        _osu("host_osu_latency_v", "osu_latency", 2, 1, 1 << 7),
        _osu("host_osu_bibw", "osu_bibw", 2, 64, 1 << 12),
        _osu("host_osu_mbw_mr_4", "osu_mbw_mr", 4, 64, 1 << 11),
        _osu("host_osu_alltoall_v4", "osu_alltoall", 4, 64, 1 << 11),
        _osu("host_osu_alltoall_pct", "osu_alltoall", 2, 64, 1 << 10, frozenset({(1, 5), (3, 5), (3, 6), (3, 7)})),
        _osu("emulated_shm_openmpi_n4_osu_allreduce", "osu_allreduce", 4, 64, 1 << 11),
        _nccl(read_one, reduce.text(), "all_reduce_perf", 4, "2.19"),
        _nccl(read_one, gather.text("rccl-tests"), "all_gather_perf", 8, "rccl-tests"),
        _nccl(read_one, send.text(timestamps=True), "sendrecv_perf", 2, "with time stamps"),
        _nccl(read_one, reduce.text("2.9"), "all_reduce_perf", 4, "2.9"),
        _nccl(read_report, reduce.json(), "all_reduce_perf", 4, "JSON"),
        _nccl(read_report, gather.json(iterations=5), "all_gather_perf", 8, "JSON with iterations"),
        _nccl(read_report, send.json(iterations=3), "sendrecv_perf", 2, "JSON with iterations"),
        _imb("IMB of 4", files["4np2"], 4, "PingPong,Sendrecv,Alltoall", frozenset({(2, 3), (3, 5)})),
        _imb("IMB with tags", files["label"], 2, "PingPong", frozenset({(3, 4)})),
        _oneccl("host_allreduce"),
        _oneccl("host_alltoall"),
        _imb("IMB Uniband", render.imb("Uniband", columns, rows, (3, 4)), 2, "Uniband"),
    ]


def meaning(output: VendorOutput) -> list[object]:
    return [
        output.tool,
        output.ranks,
        *(
            (
                each.operation,
                each.bytes,
                each.ranks,
                each.placement,
                each.wrong_bytes,
                each.statistic,
                each.times_ns.tobytes(),
            )
            for each in output.samples
        ),
    ]


def _lines(change: Callable[[list[str], random.Random], None]) -> Mutation:
    def mutate(text: str, draw: random.Random) -> str:
        lines = text.split("\n")
        change(lines, draw)
        return "\n".join(lines)

    return mutate


def _delete_line(lines: list[str], draw: random.Random) -> None:
    del lines[draw.randrange(len(lines))]


def _double_line(lines: list[str], draw: random.Random) -> None:
    lines.insert(draw.randrange(len(lines) + 1), draw.choice(lines))


def _swap_lines(lines: list[str], draw: random.Random) -> None:
    one, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]


def _split_line(lines: list[str], draw: random.Random) -> None:
    at = draw.randrange(len(lines))
    place = draw.randrange(len(lines[at]) + 1)
    lines[at : at + 1] = [lines[at][:place], lines[at][place:]]


def _join_lines(lines: list[str], draw: random.Random) -> None:
    at = draw.randrange(len(lines))
    lines[at : at + 2] = [draw.choice(("", " ")).join(lines[at : at + 2])]


def _cut_line(lines: list[str], draw: random.Random) -> None:
    at = draw.randrange(len(lines))
    lines[at] = lines[at][: draw.randrange(len(lines[at]) + 1)]


_NOISE = (
    "WARNING: There was an error initializing an OpenFabrics device.",
    "[nid001:123] 1 more process has sent help message help-mpi-btl-openib.txt / no device params found",
    "nid001:123:124 [0] NCCL INFO comm 0x1 rank 0 nranks 4 cudaDev 0 busId c1000 - Init COMPLETE",
    "srun: warning: can't honor --ntasks-per-node",
    "SECRET_TOKEN=planted",
    "",
)
_PIECES = ("8                      14.23\n", "1024", "# Size      Bandwidth (MB/s)\n", "  0.00  ", "mpirun noticed ")
_BAD = ("nan", "inf", "-1", "N/A", "1e999", "0x10", "1,000", "*****", "", "1e-3", "+5", "\u0661", "1_0", "--", "NULL")


def _noise(lines: list[str], draw: random.Random) -> None:
    lines.insert(draw.randrange(len(lines) + 1), draw.choice(_NOISE))


def _swap_cells(lines: list[str], draw: random.Random) -> None:
    """Two cells of a line, header or row, change places, each right-aligned where the other was."""
    at = draw.randrange(len(lines))
    cells = lines[at].split()
    if len(cells) < 2:
        return
    one, other = draw.sample(range(len(cells)), 2)
    ends = [each.end() for each in _tokens(lines[at])]
    cells[one], cells[other] = cells[other], cells[one]
    line = ""
    for cell, end in zip(cells, ends, strict=True):
        line += cell.rjust(end - len(line)) if len(line) + len(cell) < end else " " + cell
    lines[at] = line


def _tokens(line: str) -> list[re.Match[str]]:
    return list(re.finditer(r"\S+", line))


def _unparsable(lines: list[str], draw: random.Random) -> None:
    """A cell becomes something that is no number, under the same column."""
    at = draw.randrange(len(lines))
    tokens = _tokens(lines[at])
    if not tokens:
        return
    token = draw.choice(tokens)
    bad = draw.choice(_BAD)
    start, end = token.start(), token.end()
    padded = bad.rjust(end - start) if len(bad) < end - start else bad
    lines[at] = lines[at][:start] + padded + lines[at][end:]


def _truncate(text: str, draw: random.Random) -> str:
    return text[: draw.randrange(len(text))]


def _delete_span(text: str, draw: random.Random) -> str:
    at = draw.randrange(len(text))
    return text[:at] + text[at + draw.randint(1, 12) :]


def _double_span(text: str, draw: random.Random) -> str:
    at = draw.randrange(len(text))
    end = at + draw.randint(1, 12)
    return text[:end] + text[at:]


def _insert_letter(text: str, draw: random.Random) -> str:
    at = draw.randrange(len(text))
    return text[:at] + draw.choice("xeE-,;:#*\t\r\x00\x1b\u2028é|") + text[at:]


def _replace_by_letter(text: str, draw: random.Random) -> str:
    at = draw.randrange(len(text))
    return text[:at] + draw.choice("xeE-,;:#*\t\x00\u2028é|") + text[at + 1 :]


def _interleave(text: str, draw: random.Random) -> str:
    at = draw.randrange(len(text))
    return text[:at] + draw.choice(_PIECES) + text[at:]


def _second_run(text: str, draw: random.Random) -> str:
    """A part of the same output, as if it had been written twice into one file."""
    at, start = draw.randrange(len(text)), draw.randrange(len(text))
    return text[:at] + text[start : start + draw.randint(20, 400)] + text[at:]


MUTATIONS: dict[str, Mutation] = {
    "delete line": _lines(_delete_line),
    "double line": _lines(_double_line),
    "swap lines": _lines(_swap_lines),
    "split line": _lines(_split_line),
    "join lines": _lines(_join_lines),
    "cut line": _lines(_cut_line),
    "noise": _lines(_noise),
    "swap cells": _lines(_swap_cells),
    "unparsable": _lines(_unparsable),
    "truncate": _truncate,
    "delete span": _delete_span,
    "double span": _double_span,
    "insert letter": _insert_letter,
    "replace by letter": _replace_by_letter,
    "interleave": _interleave,
    "second run": _second_run,
}


@dataclass(frozen=True)
class Silent:
    """A mutated text that was taken for another result."""

    source: str
    kind: str
    text: str
    output: VendorOutput


def indistinguishable(source: Source, text: str) -> bool:
    """Whether `text` differs from the source only in a way that no parser can see, as said above."""
    lines, others = source.text.split("\n"), text.split("\n")
    if len(lines) != len(others):
        return False
    changed = [(line.split(), other.split()) for line, other in zip(lines, others, strict=True) if line != other]
    if len(changed) == 2 and changed[0] == changed[1][::-1] and changed[0][0][:1] == changed[0][1][:1]:
        return True
    return all(
        sorted(cells) == sorted(found)
        and tuple(index for index, (one, two) in enumerate(zip(cells, found, strict=True)) if one != two)
        in source.exchangeable
        for cells, found in changed
    )


def run(count: int = COUNT, seed: int = 20261121) -> tuple[Counter[tuple[str, str]], list[Silent]]:
    """How often each outcome (kind, one of OUTCOMES) came, and the inputs that were accepted silently.

    Each source and kind gets the same share. An exception of a parser is not caught: it is a failure by itself.
    """
    draw = random.Random(seed)
    outcomes: Counter[tuple[str, str]] = Counter()
    silent: list[Silent] = []
    corpus = [(source, meaning(source.parse(source.text))) for source in sources()]
    kinds = list(MUTATIONS.items())
    for number in range(count):
        source, original = corpus[number % len(corpus)]
        kind, mutate = kinds[number // len(corpus) % len(kinds)]
        text = mutate(source.text, draw)
        if draw.random() < 0.1:
            text = mutate(text, draw) if text else text
        output = source.parse(text)
        if output.problems:
            outcomes[kind, "found"] += 1
        elif meaning(output) == original:
            outcomes[kind, "harmless"] += 1
        elif indistinguishable(source, text):
            outcomes[kind, "indistinguishable"] += 1
        else:
            silent.append(Silent(source.name, kind, text, output))
    return outcomes, silent


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    outcomes, silent = run(count)
    for kind in MUTATIONS:
        print(f"{kind:18}", *(f"{each} {outcomes[kind, each]:6d}" for each in OUTCOMES))
    for each in silent[:10]:
        print(f"silent: {each.kind} of {each.source}\n{each.text}")
    print(f"{count} mutated inputs, {len(silent)} accepted silently")
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
