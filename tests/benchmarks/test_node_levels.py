from __future__ import annotations

from benchmarks.node_levels import line


def cells(levels: bool) -> list[str]:
    return [each.strip() for each in line("the sum of both", 120, levels, 1, 4).split("|")[1:-1]]


def test_levels_of_nodes_find_what_their_differences_hide() -> None:
    without, with_levels = cells(False), cells(True)
    assert float(with_levels[4].rstrip("%")) < float(without[4].rstrip("%")) / 3
    assert with_levels[5:8] == without[5:8] == ["0.00% of 48"] * 3
    assert (without[8], with_levels[8]) == ("0.00% of 48", "100.00% of 48")
