"""Makes the picture of a report that README.md shows.

    python -m benchmarks.picture

It is made again when the page changes: the picture has the sum of what the page shows before its runs as a text, which
`tests/browser/test_picture.py` compares with today's page. The runs are those of the recorded acceptance of four H200
(docs/results/h200x4-2026-11-21), of which all pairs over GPU 2 are made 5% slower here; two checks, which the README of
those results explains, are left out. So it is no measurement.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import sys
import tempfile
import zlib
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
from fabricheck.report.html import render_html
from fabricheck.results.fabricbench import read_run
from fabricheck.suites.sources import extract

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results" / "h200x4-2026-11-21" / "raw.tar.xz"
IMAGES = ROOT / "docs" / "images"
SLOW_GPU, FACTOR = 2, 1.05
WIDTH, HEIGHT = 1200, 640


def main(images: Path = IMAGES) -> Path:
    """Write report.png into a folder and return its path."""
    images.mkdir(exist_ok=True)
    picture = images / "report.png"
    text = page()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        file.write_text(text, encoding="utf-8")
        photograph(file, picture)
    picture.write_bytes(with_text(picture.read_bytes(), sum_of(text)))
    return picture


def page() -> str:
    """The report that is photographed."""
    os.environ["VIRTUAL_ENV"] = sys.prefix  # else commands are printed with the path of this environment
    with tempfile.TemporaryDirectory() as folder:
        extract(RESULTS, Path(folder))
        outcome = judged(Path(folder) / "raw" / "acceptance")
    diagnosis = diagnose(outcome.runs, outcome.problems, outcome.findings)
    title = "hgx-h200, acceptance (GPU 2 made 5% slower)"
    return render_html(outcome.runs, title=title, system="hgx-h200", diagnosis=diagnosis)


def sum_of(text: str) -> bytes:
    """The chunk of a PNG file with the SHA-256 of a page, style included, up to its runs, which the picture has not."""
    shown, _, _ = text.partition('<section aria-labelledby="runs">')
    return b"tEXtpage\0" + hashlib.sha256(shown.encode()).hexdigest().encode()


def with_text(picture: bytes, chunk: bytes) -> bytes:
    """Put a chunk behind the header of a PNG file, which ends at byte 33 (PNG, sections 5.3 and 11.3.4)."""
    length = struct.pack(">I", len(chunk) - len("tEXt"))
    return picture[:33] + length + chunk + struct.pack(">I", zlib.crc32(chunk)) + picture[33:]


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
