"""Writes docs/when-it-is-red.md, the guide by symptom and by code, from the catalogue: `make docs` calls it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fabricheck.records.catalogue import CATALOGUE, SYMPTOMS, Entry
from fabricheck.report.lines import named

PAGE = Path("docs/when-it-is-red.md")
_HEAD = """# When it is red

By symptom, and [by code](#by-code): what it means, what decides it, how sure it is, and what to do, the first first.
Made by `make docs` from the catalogue of findings, as `fabricheck explain CODE` prints it; `fabricheck explain` prints
that of each finding of the latest run, with its own names in the commands.

NODE, PART, N (the index of a GPU), SYSTEM, RUN (its folder below output/runs/) and TEST stand for those of the finding;
BEFORE and AFTER are two sessions, spans of dates or `software:NAME=VERSION`. The commands only read, but those that
reset a GPU or run tests; `ci/drain.py` prints how to drain a node, and drains none.
[read-a-failure.md](read-a-failure.md) says how a report is read.
"""


def render() -> str:
    """The page, as Markdown."""
    return "\n".join([_HEAD, *_by_symptom(), *_by_code()])


def _by_symptom() -> Iterator[str]:
    for symptom in SYMPTOMS:
        yield f"## {symptom}\n"
        for code, entry in CATALOGUE.items():
            if entry.symptom == symptom:
                yield from _section(code, entry)


def _section(code: str, entry: Entry) -> Iterator[str]:
    yield f"### {code}\n"
    yield _escaped(f"**{entry.alone}.** {entry.decides} *{entry.certainty.value.capitalize()}.*") + "\n"
    yield from (_escaped(f"{place}. {named(each, {})}") for place, each in enumerate(entry.steps, start=1))
    if entry.steps:
        yield ""


def _by_code() -> Iterator[str]:
    yield "## By code\n"
    yield "| code | what is wrong | symptom |"
    yield "|---|---|---|"
    for code, entry in sorted(CATALOGUE.items()):
        yield f"| [{code}](#{code}) | {_escaped(entry.alone)} | {_escaped(entry.symptom)} |"
    yield ""


def _escaped(text: str) -> str:
    """The star of `*CCL` is no emphasis, those around a sentence are."""
    return text.replace("*CCL", r"\*CCL")


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
