"""Writes docs/findings.md from the catalogue of findings: `make docs` calls it."""

from __future__ import annotations

from pathlib import Path

from fabricheck.records.finding_texts import CATALOGUE, SYMPTOMS, Certainty

PAGE = Path("docs/findings.md")
_HEAD = """# Findings

Made by `make docs` from the catalogue: what decides each finding. `fabricheck explain CODE` also prints its sentence
and the steps with their commands; a report has them with the names of its parts. A code never changes its meaning:
alert on codes, not on sentences. How sure a finding is:

{certainties}
"""


def render() -> str:
    """What decides each finding, by symptom, as Markdown."""
    certainties = "\n".join(f"- *{each.value.replace(' (', '* (', 1)}" for each in Certainty)
    return "\n".join([_HEAD.format(certainties=certainties), *map(_section, SYMPTOMS)])


def _section(symptom: str) -> str:
    codes = [code for code, entry in CATALOGUE.items() if entry.symptom == symptom]
    return "\n".join([f"## {symptom}\n", *(_entry(code) for code in sorted(codes))])


def _entry(code: str) -> str:
    entry = CATALOGUE[code]
    certainty = entry.certainty.value.partition(" (")[0]
    # The star of `*CCL` is no emphasis, those around a sentence are.
    text = entry.decides.replace("*CCL", r"\*CCL")
    return f"### {code}\n\n{text} *{certainty.capitalize()}.*\n"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
