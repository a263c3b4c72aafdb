"""Writes docs/when-it-is-red.md and docs/findings.md from the catalogue of findings: `make docs` calls it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from fabricheck.records.finding_texts import CATALOGUE, SYMPTOMS, Certainty
from fabricheck.report.lines import fill_names

GUIDE, REFERENCE = Path("docs/when-it-is-red.md"), Path("docs/findings.md")
_GUIDE_HEAD = """# When it is red

The output of a run that is not PASS begins with the verdict, the suspect part, its loss and the next command:

```
DEGRADED    1 run: 1 DEGRADED; 24 metrics: 6 DEGRADED, 18 PASS, baseline:
            peers for 24; inside of 0 of 4 nodes; network of 4 of 4, 6 of 6
            pairs, 2 of 2 trunks not seen
SUSPECT     nid002 NIC hsn0, or nid002:rank 1, or nid002: 6 measurements in 1
            run at 89.2 % of their peers
            next: on nid002: ethtool -S hsn0, or the counters in
            /sys/class/infiniband/hsn0
            then: fabricheck run --system emulated --name NodePairs
```

(An emulated cluster of four nodes; one port lost 10% of its rate. The suspect is one of the three that it names.)

1. Read the first line. It begins with the worst verdict (from the worst: INVALID, INCOMPLETE, FAIL, DEGRADED, PASS),
   and then has the number of each. A FAIL counts, even if the line begins with INCOMPLETE.
2. Print all findings of the latest run, with the commands to paste:

        fabricheck explain --system mysite

3. Open `report.html` in the folder of the run: a slow GPU is one row and one column of the map, a slow link one
   cell, a wrong setting the whole matrix. [Read a report](read-a-failure.md) explains each part.
4. INVALID or INCOMPLETE: fix that first. These runs have no result to compare.
5. FAIL or DEGRADED that names a node, GPU, NIC or link: do the steps that `explain` prints, in order. Drain only if a
   step says so, and then open a case with the vendor:

        python ci/drain.py output/runs/RUN/verdict.json --system mysite      # prints the commands, runs none
        fabricheck bundle output/runs/RUN --hide-names

   `drain.py` prints commands for nodes that are proven bad: FAIL or DEGRADED in a run with `--nodes`, else FAIL in a
   test on that node alone. If there is none, it says so. The vendor starts with `REPRODUCE.md` of
   the archive: three commands build and launch a failing test, and one judges the result.

6. FAIL or DEGRADED everywhere: check software and settings, not parts ([after an upgrade](after-an-upgrade.md)).

Each finding has a code. `fabricheck explain CODE` prints its meaning, what decides it, and all steps: the same text as
[findings](findings.md). `make docs` writes both from the catalogue of findings.

| symptom | first | codes |
|---|---|---|"""
_FIRST = dict(
    zip(
        SYMPTOMS,
        (
            "Is the node idle? Then check the part that it names: the run has launched the test again already",
            "Take the node out of service, then run the test over another transport",
            "Read the reason with `sinfo -R`; on the node: `nvidia-smi -L`, `ip -br link`, `dmesg -T`",
            "The numbers are not those of the requested test: check modules, plugins, variables and --system",
            "Read rfm_job.err in the stage folder of the test, then run again",
            "Read the node's own report: `fabricheck doctor --system mysite` there",
            "`fabricheck validate --system mysite`",
            "Nothing to do",
        ),
        strict=True,
    )
)
_REFERENCE_HEAD = """# Findings

Made by `make docs` from the catalogue, as `fabricheck explain CODE` prints it: what a finding means, what decides it,
how sure it is, and what to do, in that order. [When it is red](when-it-is-red.md) has them by symptom.

{certainties}

Replace NODE, PART, N (the index of a GPU), SYSTEM, RUN (the path of its folder, output/runs/NAME) and TEST by those of
the finding; other words in capitals, such as PORT or ADDRESS, by what the commands before print. LIST is a list of
nodes, and OTHERS are idle nodes. BEFORE and AFTER are two sessions, spans of dates or `software:NAME=VERSION`. Most
commands only read. Those that set, load or reset something change the node; `fabricheck run` runs tests. A code never
changes its meaning: alert on codes, not on sentences.
"""


def guide() -> str:
    """What to do first, and the codes by symptom, as Markdown."""
    return "\n".join([_GUIDE_HEAD, *_by_symptom(), ""])


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
        codes = [_link(code) for code, entry in CATALOGUE.items() if entry.symptom == symptom]
        yield f"| {symptom} | {_FIRST[symptom]} | {' '.join(codes)} |"


def _link(code: str) -> str:
    return f"[{code}](findings.md#{code})"


def _section(code: str) -> Iterator[str]:
    entry = CATALOGUE[code]
    yield f"## {code}\n"
    yield _escaped(f"**{entry.alone}.** {entry.decides} *{_tag(entry.certainty)}.*") + "\n"
    yield from (_escaped(f"{place}. {fill_names(each, {})}") for place, each in enumerate(entry.steps, start=1))
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
