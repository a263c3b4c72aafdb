"""The outputs of vendor tools in a text of which nobody says what it is: one after the other, each by its parser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.results.imb import parse_imb
from fabricheck.results.nccl_tests import parse_nccl_tests, parse_nccl_tests_json
from fabricheck.results.oneccl_benchmark import parse_oneccl_benchmark
from fabricheck.results.osu import parse_osu
from fabricheck.results.vendor_output import VendorOutput
from fabricheck.results.vendor_text import read_lines

_LARGEST = 64 << 20

# How an output begins, by tool; the later ones of nccl-tests are not in all versions.
_BEGINNINGS = (
    ("osu", re.compile(r"# OSU (?:MPI|NCCL|RCCL|XCCL)[ _-]")),
    ("imb", re.compile(r"#\s+Intel\(R\) MPI Benchmarks ")),
    ("oneccl", re.compile(r"options:$")),
    ("oneccl", re.compile(r"# Benchmarking: ")),
    ("nccl", re.compile(r"# nccl-tests version |#? ?rccl-tests:? [Vv]ersion")),
    ("nccl", re.compile(r"# Collective test starting: ")),
    ("nccl", re.compile(r"(?:# )?nThread [0-9]+ nGpus ")),
    ("nccl", re.compile(r"(?:#\s+)?size +count +type ")),
)


def read_vendor_outputs(path: Path, *, ranks: int | None = None, tool: str | None = None) -> tuple[VendorOutput, ...]:
    """Every output of a tool that is known here in a file; none where nothing in it is how one begins.

    `ranks` and `tool` are for outputs that do not say them themselves. Raises UserError for a file that cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read: {error.strerror}") from None
    if len(content) > _LARGEST:
        raise UserError(f"{path}: has {len(content)} bytes, and an output of a vendor's tool has {_LARGEST} at most")
    return vendor_outputs(content.decode("utf-8", "replace"), str(path), ranks=ranks, tool=tool)


def vendor_outputs(
    text: str, path: str = "", *, ranks: int | None = None, tool: str | None = None
) -> tuple[VendorOutput, ...]:
    """The same of a text."""
    if text.lstrip().startswith("{") and '"nccl' in text[:100_000]:
        return (parse_nccl_tests_json(text, path),)
    parts = list(_parts(text))
    return tuple(
        _numbered(_parse(kind, part, path, ranks, tool), path, number if len(parts) > 1 else 0)
        for number, (kind, part) in enumerate(parts, start=1)
    )


def _parts(text: str) -> Iterator[tuple[str, str]]:
    """Kind and text of each output. What stands before the first one belongs to it, such as a launcher's complaints."""
    lines = text.splitlines(keepends=True)
    begin, kind, seen = 0, "", -1
    for index, line in enumerate(read_lines("".join(lines))[: len(lines)]):
        found = next((at for at, (_, how) in enumerate(_BEGINNINGS) if how.match(line.text.strip())), None)
        if found is None:
            continue
        if kind and (_BEGINNINGS[found][0] != kind or found <= seen):
            yield kind, "".join(lines[begin:index])
            begin = index
        kind, seen = _BEGINNINGS[found][0], found
    if kind:
        yield kind, "".join(lines[begin:])


def _parse(kind: str, text: str, path: str, ranks: int | None, tool: str | None) -> VendorOutput:
    parse: Callable[[], VendorOutput] = {
        "osu": lambda: parse_osu(text, path, ranks=ranks),
        "imb": lambda: parse_imb(text, path, ranks=ranks),
        "oneccl": lambda: parse_oneccl_benchmark(text, path, ranks=ranks),
        "nccl": lambda: parse_nccl_tests(text, path, ranks=ranks, tool=tool),
    }[kind]
    return parse()


def _numbered(output: VendorOutput, path: str, number: int) -> VendorOutput:
    """The output with its number in the file, where lines are counted from its own beginning."""
    if not number:
        return output
    where = f"{path or 'the text'}, output {number}"
    problems = [replace(one, message=one.message.replace(path or "the output", where, 1)) for one in output.problems]
    return replace(output, path=where, problems=tuple(problems))


def not_judged(output: VendorOutput) -> Finding:
    """Why a vendor's output by itself is never PASS."""
    text = (
        f"{output.path or 'the output'}: says nothing that proves where and over which path it ran, so it is not judged"
    )
    return Finding(
        "not-judged-by-hand", Verdict.INCOMPLETE, f"{text}: run the same from the suite (docs/vendor-suites.md)"
    )
