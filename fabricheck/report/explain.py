"""What the catalogue says of a code, and of each finding of a run, as text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fabricheck.errors import UserError, suggest
from fabricheck.judge.overall import SEVERITY
from fabricheck.records.finding import Finding
from fabricheck.records.finding_texts import CATALOGUE, SYMPTOMS
from fabricheck.records.verdict import Verdict
from fabricheck.report.content import plain
from fabricheck.report.lines import general_steps, of_entry, steps, summary, wrap
from fabricheck.units import plural

# Of one code in a run, such as of a metric of many pairs.
_MOST_NAMED = 5
_WIDTH = 160  # of the terminal


def explain_code(code: str) -> Iterator[str]:
    """The entry whole. Raises UserError for a code that there is not, with those that are nearly it."""
    entry = CATALOGUE.get(code)
    if entry is None:
        which = suggest(code, CATALOGUE) or "; `fabricheck explain --list` shows all codes"
        raise UserError(f"{code!r} is neither the code of a finding nor a run{which}")
    yield f"{code}: {entry.alone}"
    yield f"  Symptom: {entry.symptom}"
    steps_of_code = general_steps(entry)
    yield from of_entry(entry, steps_of_code)
    if words := re.findall(r"\b(?:NODE|PART|N|SYSTEM|RUN|LIST|FILE|TEST)\b", " ".join(steps_of_code)):
        yield f"  {', '.join(dict.fromkeys(words))}: of the finding. With its names: fabricheck explain --system SYSTEM"


def all_codes() -> Iterator[str]:
    """A line for each code, by symptom."""
    width = max(map(len, CATALOGUE))
    for symptom in SYMPTOMS:
        yield symptom
        yield from (f"  {code:{width}}  {each.alone}" for code, each in CATALOGUE.items() if each.symptom == symptom)


def findings_in(content: Mapping[str, Any]) -> tuple[Finding, ...]:
    """All findings of a verdict.json, worst first: what explains the session (not in those of earlier versions), its
    problems, those of its runs and metrics, and what is told.

    Raises KeyError, ValueError or TypeError for anything else.
    """
    findings = list(map(Finding.from_json, content["problems"]))
    findings = [
        *(each for each in map(Finding.from_json, content.get("causes", ())) if each not in findings),
        *findings,
    ]
    for run in content["runs"]:
        findings += map(Finding.from_json, run["problems"])
        findings += [_of_metric(each) for each in run["metrics"] if each["verdict"] != Verdict.PASS.value]
    findings += map(Finding.from_json, content["findings"])
    return tuple(sorted(findings, key=lambda finding: -SEVERITY[finding.verdict]))


def _of_metric(content: Mapping[str, Any]) -> Finding:
    """As `Judgement.finding`; metrics had no code in earlier versions."""
    yardstick = content["yardstick"]
    return Finding.from_json(
        {
            "code": content.get("code", "recorded"),
            "verdict": content["verdict"],
            "message": f"{content['name']}: {content['reason']}",
            "measured": content["value"],
            "expected": yardstick["value"] if yardstick else None,
            "unit": content["unit"],
            "metrics": [content["name"]],
        }
    )


def explain_run(content: Mapping[str, Any], run: str) -> Iterator[str]:
    """Each finding of a run with its line, its message, what decides it and what to do; what they share once.

    `content`: its verdict.json; `run`: its folder. Raises KeyError, ValueError or TypeError for another content.
    """
    system, findings = str(content["system"]), findings_in(content)
    count = sum(each.is_problem for each in findings)
    counts = f"{plural(count, 'problem')} and {plural(len(findings) - count, 'note')}"
    yield f"{Verdict(content['verdict']).value}: {counts}, in {run}"
    for code in dict.fromkeys(each.code for each in findings):
        own = [each for each in findings if each.code == code]
        first = own[0]
        yield ""
        yield f"{code}: {first.entry.alone}"
        tests = [str(each.get("test", "")) for each in content["runs"] if code in _codes_of(each)]
        for finding in own[:_MOST_NAMED]:
            # The message stands below, whole.
            label = finding.verdict.value if finding.is_problem else "note"
            yield f"  {label} {plain(summary(finding, system=system, run=run, tests=tests, message=''))}"
            yield from wrap(finding.message, _WIDTH, "    ")
        if more := own[_MOST_NAMED:]:
            yield f"  and {len(more)} more"
        yield from of_entry(first.entry, steps(first, system=system, run=run, tests=tests))


def _codes_of(run: Mapping[str, Any]) -> set[str]:
    """Those of a run's problems and of its metrics that are not PASS."""
    problems, metrics = run["problems"], [each for each in run["metrics"] if each["verdict"] != Verdict.PASS.value]
    return {each.get("code", "recorded") for each in (*problems, *metrics)}
