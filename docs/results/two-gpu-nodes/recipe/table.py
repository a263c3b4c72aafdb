"""table.py FOLDER: a line of a table for each run of run.sh: verdict, goodputs, and what the findings name."""

import json
import sys
from pathlib import Path


def named(finding):
    parts = [":".join(filter(None, (each.get("node"), each.get("name")))) for each in finding["components"]]
    return f"{finding['code']}{' ' * bool(parts)}{', '.join(parts)}"


print("| run | verdict | goodput of the largest size | findings |\n|---|---|---|---|")
for file in sorted(Path(sys.argv[1]).glob("*/verdict.json"), key=lambda each: each.stat().st_mtime):
    told = json.loads(file.read_text())
    runs, causes = told["runs"], [each.get("finding", each) for each in told.get("causes", [])]
    metrics = [each for run in runs for each in run["metrics"] if each["unit"] == "Gb/s"]
    values = sorted(each["value"] for each in metrics)
    goodput = f"{values[0]:.4g} to {values[-1]:.4g} Gb/s" if values else "-"
    found = [*causes, *told["problems"], *(each for run in runs for each in run["problems"])]
    codes = dict.fromkeys(named(each) for each in found)
    worse = sum(each["verdict"] != "PASS" for each in metrics)
    passed = sum(run["verdict"] == "PASS" for run in runs)
    verdict = f"{told['verdict']}, {passed} of {len(runs)} runs PASS"
    print(f"| {file.parent.name} | {verdict} | {goodput}, {worse} not PASS | {'; '.join(codes)} |")
