"""Makes the picture of a report that README.md shows.

    python -m benchmarks.picture

The runs are those of the recorded acceptance of four H200 (docs/results/h200x4-2026-11-21), of which all pairs over
GPU 2 are made 5% slower here; two checks, which the README of those results explains, are left out. So it is no
measurement.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from fabricheck.diagnosis.causes import diagnose
from fabricheck.judge.siblings import Compared
from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.run import Samples
from fabricheck.report.html import write_html
from fabricheck.results.fabricbench import read_run
from fabricheck.suites.sources import extract

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results" / "h200x4-2026-11-21" / "raw.tar.xz"
IMAGES = ROOT / "docs" / "images"
SLOW_GPU, FACTOR = 2, 1.05
WIDTH, HEIGHT = 1200, 640


def main() -> None:
    """Writes report.png into docs/images."""
    IMAGES.mkdir(exist_ok=True)
    os.environ["VIRTUAL_ENV"] = sys.prefix  # else commands are printed with the path of this environment
    with tempfile.TemporaryDirectory() as folder:
        extract(RESULTS, Path(folder))
        outcome = judged(Path(folder) / "raw" / "acceptance")
        title = "hgx-h200, acceptance (GPU 2 made 5% slower)"
        page = Path(folder) / "report.html"
        diagnosis = diagnose(outcome.runs, outcome.problems, outcome.findings)
        write_html(outcome.runs, page, title=title, system="hgx-h200", diagnosis=diagnosis)
        photograph(page, IMAGES / "report.png")


def judged(folder: Path) -> Compared:
    """The recorded runs with the planted loss, judged as a session."""
    judge = SystemJudge.of("hgx-h200")
    return judge.compare(list(_slowed(folder, judge)))


def _slowed(folder: Path, judge: SystemJudge) -> Iterator[RunJudgement]:
    for file in sorted(folder.glob("*.jsonl")):
        check, _, rest = file.stem.partition("-")
        if check == "MpiHostAndDevice":
            continue
        run = read_run(file)
        run = replace(run, path=file.name, samples=tuple(map(_slow, run.samples)))
        test = f"{check} %transport={rest}" if rest else check
        yield replace(judge.judge_alone(run), test=f"{test} @hgx-h200:gpu+openmpi-ucx", nodes=1)


def _slow(samples: Samples) -> Samples:
    if SLOW_GPU not in samples.ranks or len(samples.ranks) != 2:
        return samples
    return replace(samples, times_ns=np.rint(samples.times_ns * FACTOR).astype(np.int64))


def photograph(page: Path, picture: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        opened.goto(page.as_uri())
        opened.wait_for_selector("html[data-ready]", state="attached")
        opened.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    main()
