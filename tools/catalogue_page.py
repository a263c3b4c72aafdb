"""Writes docs/when-it-is-red.md and docs/findings.md from the catalogue of findings: `make docs` calls it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from fabricheck.records.catalogue import CATALOGUE, SYMPTOMS, Certainty, Entry
from fabricheck.report.lines import named

GUIDE, REFERENCE = Path("docs/when-it-is-red.md"), Path("docs/findings.md")
_GUIDE_HEAD = """# When it is red

Made by `make docs` from the catalogue of findings.

A run that is not PASS ends with the verdict, then the suspect part, by how much it is slow, and what to do next:

```
DEGRADED    1 run: 1 DEGRADED; 24 metrics: 6 DEGRADED, 18 PASS, judged by
            siblings 24; 4 of 4 nodes and their network tested
SUSPECT     nid002 NIC hsn0, or nid002:rank 1, or nid002: 6 measurements in 1
            run at 89.2 % of their peers
            next: on nid002: ethtool -S hsn0, or the counters below
            /sys/class/infiniband/hsn0, then fabricheck run --system emulated
            --name NodePairs
```

(An emulated cluster of four nodes; one port lost 10% of its rate.)

1. Read the first line. It is the worst one.
2. Print all findings of the latest run, with the commands to paste:

        fabricheck explain --system SYSTEM

3. Open `report.html` in the folder of the run: the pair matrix shows a slow GPU as one row and one column, a slow
   link as one cell, a setting as everything. [Read a report](read-a-failure.md) explains each part.
4. INVALID or INCOMPLETE: fix that first. Nothing was measured that can be compared.
5. FAIL or DEGRADED with a node, GPU, NIC or link: run the step below, then drain and tell the vendor:

        python ci/drain.py output/runs/RUN/verdict.json            # prints the commands, runs none
        fabricheck bundle output/runs/RUN --hide-names

6. FAIL or DEGRADED everywhere: look at software and settings, not at parts
   ([after an upgrade](after-an-upgrade.md)).

Find your finding below, with its first step. [Findings](findings.md) has all steps, what decides it and how sure it
is, as `fabricheck explain CODE` does. NODE, PART, N (index of a GPU), SYSTEM and TEST stand for those of the finding.
"""
_REFERENCE_HEAD = """# Findings

Made by `make docs` from the catalogue, as `fabricheck explain CODE` prints it: what a finding means, what decides it,
how sure it is, and what to do, in that order. [When it is red](when-it-is-red.md) has them by symptom.

{certainties}

NODE, PART, N (the index of a GPU), SYSTEM, RUN (its folder below output/runs/) and TEST stand for those of the finding;
BEFORE and AFTER are two sessions, spans of dates or `software:NAME=VERSION`. The commands only read, except those that
reset a GPU or run tests. A code never changes its meaning: alert on codes, not on sentences.
"""


def guide() -> str:
    """The findings by symptom, each with its first step, as Markdown."""
    return "\n".join([_GUIDE_HEAD, *_by_symptom()])


def reference() -> str:
    """Everything that the catalogue has, by code, as Markdown."""
    certainties = "\n".join(f"- *{each.value.replace(' (', '* (', 1)}" for each in Certainty)
    return "\n".join(
        [
            _REFERENCE_HEAD.format(certainties=certainties),
            *(line for code in sorted(CATALOGUE) for line in _section(code)),
        ]
    )


def _by_symptom() -> Iterator[str]:
    for symptom in SYMPTOMS:
        entries = {code: entry for code, entry in CATALOGUE.items() if entry.symptom == symptom}
        yield f"## {symptom}\n"
        if symptom == SYMPTOMS[-1]:  # they change no verdict
            yield ", ".join(_link(code) for code in entries) + "\n"
            continue
        yield "| finding | what is wrong | first step |"
        yield "|---|---|---|"
        yield from (_row(code, entry) for code, entry in entries.items())
        yield ""


def _row(code: str, entry: Entry) -> str:
    step = named(entry.steps[0], {}).replace("|", "&#124;") if entry.steps else ""
    return f"| {_link(code)} | {_escaped(entry.alone)} | {step} |"


def _link(code: str) -> str:
    return f"[{code}](findings.md#{code})"


def _section(code: str) -> Iterator[str]:
    entry = CATALOGUE[code]
    yield f"## {code}\n"
    yield _escaped(f"**{entry.alone}.** {entry.decides} *{_tag(entry.certainty)}.*") + "\n"
    yield from (_escaped(f"{place}. {named(each, {})}") for place, each in enumerate(entry.steps, start=1))
    if entry.steps:
        yield ""


def _tag(certainty: Certainty) -> str:
    return certainty.value.partition(" (")[0].capitalize()


def _escaped(text: str) -> str:
    """The star of `*CCL` is no emphasis, those around a sentence are."""
    return text.replace("*CCL", r"\*CCL")


#: What is written, by page.
PAGES: Mapping[Path, str] = {GUIDE: guide(), REFERENCE: reference()}

if __name__ == "__main__":
    for page, text in PAGES.items():
        page.write_text(text, encoding="utf-8")
