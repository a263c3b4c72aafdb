"""Where a tool says a number twice, a digit that changes is found, down to what the printed decimals can show."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from fabricheck.records.vendor_output import VendorOutput
from tests.vendor import render
from tests.vendor.mutations import DATA
from tests.vendor.reading import read_one, read_report

TABLE = render.NcclTable("all_reduce_perf", 4, 65536, 64, [(21.55, 21.93), (31.58, 30.11), (1514.64, 1523.95)])
MBW_MR = (DATA / "osu" / "host_osu_mbw_mr_4.txt").read_text()
PINGPONG = (DATA / "imb" / "host_imb_zero.txt").read_text()


# Parser, text, what all rows hold, and the columns that say something twice.
CASES: dict[str, tuple[Callable[[str], VendorOutput], str, str, tuple[int, ...]]] = {
    "nccl-tests": (read_one, TABLE.text(), "float", (0, 1, 5, 6, 7, 9, 10, 11)),
    "rccl-tests": (
        lambda text: read_one(text, tool="all_reduce_perf"),
        TABLE.text("rccl-tests"),
        "float",
        (0, 1, 5, 6, 7, 9, 10, 11),
    ),
    "osu_mbw_mr": (lambda text: read_one(text, ranks=4), MBW_MR, "Pass", (0, 1, 2)),
    "IMB PingPong": (read_one, PINGPONG, " 20 ", (2, 3)),
}


def _relative(cell: str) -> float:
    decimals = len(cell.partition(".")[2])
    return 0.5 * 10.0**-decimals / max(float(cell), 1e-9)


@pytest.mark.parametrize("name", CASES)
def test_a_changed_digit_is_found(name: str) -> None:
    parse, text, mark, places = CASES[name]
    lines = text.split("\n")
    tried = missed = 0
    for number, line in enumerate(lines):
        cells = list(re.finditer(r"\S+", line))
        if mark not in line or line.startswith("#") or len(cells) <= max(places):
            continue
        # As fine as the two coarsest of the numbers that have to belong together allow.
        measured = [_relative(cells[place][0]) for place in places if "." in cells[place][0]]
        resolution = sum(sorted(measured)[-2:])
        for place in places:
            cell = cells[place]
            for index, digit in enumerate(cell[0]):
                if not digit.isdigit():
                    continue
                other = "8" if digit != "8" else "3"
                changed = cell[0][:index] + other + cell[0][index + 1 :]
                if abs(float(changed) - float(cell[0])) <= 2 * resolution * (1 + resolution) * float(cell[0]):
                    continue
                row = line[: cell.start()] + changed + line[cell.end() :]
                tried += 1
                missed += not parse("\n".join([*lines[:number], row, *lines[number + 1 :]])).problems
    assert tried > 10
    assert missed == 0


def test_a_changed_digit_in_an_iteration_is_found() -> None:
    text = TABLE.json(iterations=4)
    assert read_report(text).problems == ()
    start = text.index('"times_us"')
    for match in re.finditer(r"[0-9](?=[0-9]*\.[0-9])|(?<=\.)[0-9]", text[start:]):
        if match.start() > 60:
            break
        at = start + match.start()
        changed = text[:at] + ("8" if text[at] != "8" else "3") + text[at + 1 :]
        assert read_report(changed).problems, changed[start : start + 60]
