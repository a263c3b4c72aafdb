"""The output of a vendor tool, read by the parser of the tool."""

from __future__ import annotations

from fabricheck.results.imb import parse_imb
from fabricheck.results.nccl_tests import parse_nccl_tests
from fabricheck.results.oneccl_benchmark import parse_oneccl_benchmark
from fabricheck.results.osu import parse_osu
from fabricheck.results.vendor_output import VendorOutput
from fabricheck.suites.benchmarks import Asked


def parse(asked: Asked, text: str, path: str) -> VendorOutput:
    """What a tool printed, held against what it was asked for; whatever the text holds, this returns."""
    if asked.benchmark.tool == "osu":
        return parse_osu(text, path, ranks=asked.ranks, sizes=asked.sizes, tool=asked.benchmark.program)
    if asked.benchmark.tool == "imb":
        return parse_imb(text, path, ranks=asked.ranks)
    if asked.benchmark.tool == "oneccl":
        return parse_oneccl_benchmark(text, path, ranks=asked.ranks, sizes=asked.sizes)
    return parse_nccl_tests(text, path, ranks=asked.ranks, tool=asked.benchmark.program)
