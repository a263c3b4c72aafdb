"""Writes docs/papers.md, each figure of the papers with its command, what was concluded and our own results beside it:
`make docs` calls it. The drawings and tables lie in docs/results/papers."""

from __future__ import annotations

import re
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from fabricheck.judge.system import SystemJudge
from fabricheck.records.rehearsal import REHEARSAL, any_rehearsal
from fabricheck.report.figures.chart import MOST_COLORED, Figure
from fabricheck.report.figures.paper import as_csv, draw
from fabricheck.report.html import own_file, render_paper
from fabricheck.report.paper_figures import Cited, conclusion, load_figures, measured
from fabricheck.results.fabricbench import read_run

PAGE = Path("docs/papers.md")
DRAWINGS = Path("docs/results/papers")
_HEAD = """# The papers, reproduced

Made by `make docs` from `reference_values/published/figures` and recorded sessions.

This suite measures what these papers did. `fabricheck reproduce` lists their figures; with the name of one
and a system it runs the tests that the figure needs, and draws what was measured here with the paper's points
in grey (crosses):

```
fabricheck reproduce sc24-3 --system alps
fabricheck reproduce sc24-3 --from output/runs/RUN
```

It leaves a page and a table (CSV). Points are numbers that the text, a caption or a table of the paper
states; none was read off a drawing. The ratios behind *holds here*, *does not hold here* and *is open here*
have 95% intervals; *expected* and *nominal* are those of [the
model](methodology.md#what-the-links-allow). `NetworkCollectives`, `NetworkCollectivesOverSizes` and
`GroupsOfMoreNodes` take 2, 4 and 8 nodes; others with ReFrame's `-P`, and their figure from that run:

```
fabricheck run --system alps --name NetworkCollectives -- -P NetworkCollectives.nodes=2,16,64
fabricheck reproduce sc24-9 --from output/runs/RUN
```
"""


@dataclass(frozen=True)
class Recorded:
    """A recorded session: an archive of docs/results, the folder in it, and the system whose model it is."""

    of: str
    archive: str
    folder: str
    system: str


SESSIONS = (
    Recorded("four H200 of one node", "h200x4-2026-11-21/raw.tar.xz", "raw/acceptance", "hgx-h200"),
    Recorded("one H200, a week later", "h200-2026-11-29/acceptance.tar.xz", "acceptance", "hgx-h200"),
)


def main() -> None:
    """Write the page and the drawings."""
    figures = load_figures(Path("reference_values/published"))
    DRAWINGS.mkdir(exist_ok=True)
    for old in DRAWINGS.iterdir():
        old.unlink()
    sections: dict[str, list[str]] = {name: [] for name in figures}
    for session in SESSIONS:
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(Path("docs/results") / session.archive) as archive:
                archive.extractall(folder, filter="data")
            runs = [read_run(file) for file in sorted((Path(folder) / session.folder).glob("*.jsonl"))]
        judge = SystemJudge.of(session.system)
        for name, cited in figures.items():
            rows = {shown: measured(cited.figure, shown, runs, judge) for shown in cited.figure.quantities}
            if not any(rows.values()):
                continue
            drawn = [draw(cited, shown, rows[shown]) for shown in rows if rows[shown]]
            note = f"{REHEARSAL}: " if any_rehearsal(runs) else ""
            # Without what the paper concluded, which stands above it.
            _, _, answer = conclusion(cited, rows).partition(f"{cited.figure.concluded}.")
            sections[name].append(f"**{session.of[:1].upper()}{session.of[1:]}**: {note}{answer.strip() or 'drawn.'}\n")
            sections[name] += list(_files(f"{name}-{session.archive.split('-')[0]}", cited, drawn))
    PAGE.write_text("\n".join([_HEAD, *_body(figures, sections)]), encoding="utf-8")


def _body(figures: dict[str, Cited], sections: dict[str, list[str]]) -> Iterator[str]:
    paper = ""
    for name, cited in figures.items():
        if cited.paper != paper:
            paper = cited.paper
            yield f"## {paper}\n"
        yield f"### {name}: {cited.figure.title}\n"
        yield f"{cited.figure.section}. The paper: {cited.figure.concluded}.\n"
        if cited.figure.not_here:
            yield f"Not measured: {cited.figure.not_here}.\n"
        else:
            yield f"Tests: {', '.join(cited.figure.tests)}.\n"
        yield from sections[name]


def _files(name: str, cited: Cited, drawn: list[Figure]) -> Iterator[str]:
    """Write the drawings and the table of a figure; yield the lines that show them."""
    (DRAWINGS / f"{name}.csv").write_text(as_csv(drawn), encoding="utf-8")
    page = render_paper(cited, drawn, "")
    for figure, svg in zip(drawn, re.findall(r'<svg class="chart".*?</svg>', page, re.DOTALL), strict=True):
        file = f"{name}-{figure.title.split()[0]}.svg"
        (DRAWINGS / file).write_text(_alone(svg, figure), encoding="utf-8")
        yield f"![{figure.title}](results/papers/{file})\n"
    yield f"[The table](results/papers/{name}.csv)\n"


def _alone(svg: str, figure: Figure) -> str:
    """A drawing of the page as a file of its own, with its colours and legend."""
    lines = figure.chart.lines[:MOST_COLORED]
    # Rules of the page that are about charts; a file of its own has no dark mode.
    rules = re.findall(r"^\.(?:chart|k\d|expected).*$", own_file("report.css"), re.MULTILINE)
    style = " ".join([".chart { --ink: #1c2024; --line: #c9ced4; }", *rules])
    legend = "".join(
        f'<text class="k{place}" style="fill: currentColor" x="{220 * (place % 3)}" y="{338 + 18 * (place // 3)}">'
        f"{escape(line.label)}</text>"
        for place, line in enumerate(lines)
    )
    svg = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace("720 336", "720 410", 1)
    begin = svg.index(">") + 1
    background = '<rect x="-66" y="-12" width="720" height="410" fill="#fff"/>'
    return f"{svg[:begin]}<style>{style}</style>{background}{svg[begin:].removesuffix('</svg>')}{legend}</svg>\n"


if __name__ == "__main__":
    main()
