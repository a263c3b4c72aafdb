"""Writes docs/papers.md, each figure of the papers with its command, what was concluded and our own results beside it:
`make docs` calls it. The drawings and tables lie in docs/results/papers."""

from __future__ import annotations

import re
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

from fabricheck.judge.system import SystemJudge
from fabricheck.records.rehearsal import any_rehearsal
from fabricheck.report.figures.chart import MOST_COLORED, Figure
from fabricheck.report.figures.paper import as_csv, draw
from fabricheck.report.html import own_file, render_paper
from fabricheck.report.paper_figures import Cited, answer, load_figures, measured
from fabricheck.results.fabricbench import read_run
from fabricheck.topology.model import load_topology

PAGE = Path("docs/papers.md")
DRAWINGS = Path("docs/results/papers")
_HEAD = """# The papers, reproduced

Made by `make docs` from `reference_values/published/figures` and recorded sessions.

This suite measures what these papers did. `fabricheck reproduce` lists their figures and the tests that each needs;
with the name of one and a system it runs these, and draws what was measured here with the paper's points in grey
(crosses):

```
fabricheck reproduce sc24-3 --system alps
fabricheck reproduce sc24-3 --from output/runs/RUN
```

It leaves a page and a table (CSV), to which the name of a session leads below. Points are numbers that the text, a
caption or a table of the paper states; none was read off a drawing: our copies of the papers have none. The ratios
behind *holds here*, *does not hold here* and *is open here* have 95% intervals; *expected* and *nominal* are those of
[the model](methodology.md#what-the-links-allow), and lines with a system's name are what its points are shares of.

Two sessions measured GPUs: four H200 of one node, and one a week later. *Miniatures* are [rehearsals on emulated
nodes](results/miniatures-2026-11-29/README.md), with stand-ins for GPUs and their libraries and links of 25 to 100
Mb/s; eight *emulated nodes* have no GPUs and ports of 100 Mb/s. They draw the figures over several nodes beside the
model of that system, and are no evidence of what its machine does. Their latencies are left out: they are those of
two busy cores.

`NetworkCollectives`, `NetworkCollectivesOverSizes` and `GroupsOfMoreNodes` take 2, 4 and 8 nodes; others with
ReFrame's `-P`, and their figure from that run:

```
fabricheck run --system alps --name NetworkCollectives -- -P NetworkCollectives.nodes=2,16,64
fabricheck reproduce sc24-9 --from output/runs/RUN
```
"""


@dataclass(frozen=True)
class Recorded:
    """A recorded session: its name in those of files, what it is of, an archive of docs/results and the folder in it,
    and the system whose model it is (of a miniature, what it stands for).

    Of emulated nodes: the papers whose figures it draws. Their rates are in a topology.yaml beside the results.
    """

    name: str
    of: str
    archive: str
    folder: str
    system: str
    papers: tuple[str, ...] = ()


def _miniature(system: str, of: str, *papers: str) -> Recorded:
    return Recorded(system, f"{of} (miniature)", f"miniatures-2026-11-29/{system}.tar.xz", system, system, papers)


SESSIONS = (
    Recorded("h200x4", "four H200", "h200x4-2026-11-21/raw.tar.xz", "raw/acceptance", "hgx-h200"),
    Recorded("h200", "one H200", "h200-2026-11-29/acceptance.tar.xz", "acceptance", "hgx-h200"),
    _miniature("alps", "Alps", "sc24"),
    _miniature("leonardo", "Leonardo", "sc24"),
    _miniature("lumi", "LUMI", "sc24", "schieffer"),
    _miniature("frontier", "Frontier", "commbench"),
    _miniature("summit", "Summit", "commbench", "openpower"),
    Recorded(
        "emulated",
        "emulated nodes",
        "miniatures-2026-11-29/emulated.tar.xz",
        "emulated",
        "emulated",
        ("sc24", "commbench"),
    ),
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
            own = Path(folder) / session.folder / "topology.yaml"
            if own.exists():
                judge = replace(judge, topology=load_topology(own))
        for name, cited in figures.items():
            if session.papers and name.partition("-")[0] not in session.papers:
                continue
            # A latency of emulated nodes is that of two busy cores.
            quantities = [shown for shown in cited.figure.quantities if shown != "latency" or not session.papers]
            rows = {shown: measured(cited.figure, shown, runs, judge) for shown in quantities}
            if not any(rows.values()):
                continue
            drawn = [draw(cited, shown, rows[shown]) for shown in rows if rows[shown]]
            links = _files(f"{name}-{session.name}", session.of, cited, drawn)
            # Stand-ins for GPUs and their libraries are no evidence of what these do.
            told = "" if any_rehearsal(runs) else answer(cited.figure, rows[quantities[0]])
            sections[name].append(f"- {links}. {told}" if told.startswith("That") else f"- {links}")
    for name, cited in figures.items():
        if not sections[name]:
            alone = [draw(cited, shown, []) for shown in cited.figure.quantities if any(cited.points(shown))]
            sections[name] = [f"- {_files(f'{name}-paper', 'the paper', cited, alone)}"] if alone else []
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
        yield "\n".join([*sections[name], ""])


def _files(name: str, of: str, cited: Cited, drawn: list[Figure]) -> str:
    """Write the drawings and the table of a figure; return the links to them: `of` to the table."""
    links = [f"[{of[:1].upper()}{of[1:]}](results/papers/{name}.csv)"]
    (DRAWINGS / f"{name}.csv").write_text(as_csv(drawn), encoding="utf-8")
    page = render_paper(cited, drawn, "")
    for figure, svg in zip(drawn, re.findall(r'<svg class="chart".*?</svg>', page, re.DOTALL), strict=True):
        file = f"{name}-{figure.title.split()[0]}.svg"
        (DRAWINGS / file).write_text(_alone(svg, figure), encoding="utf-8")
        links.append(f"[{figure.title.split()[0]}](results/papers/{file})")
    return " ".join(links)


def _alone(svg: str, figure: Figure) -> str:
    """A drawing of the page as a file of its own, with its colours and legend."""
    lines = figure.chart.lines[:MOST_COLORED]
    # Rules of the page that are about charts; a file of its own has no dark mode.
    rules = re.findall(r"^\.(?:chart|k\d|expected).*$", own_file("report.css"), re.MULTILINE)
    style = " ".join([".chart { --ink: #1c2024; --line: #c9ced4; }", *rules])
    legend = "".join(
        f'<text class="k{place}" style="fill: currentColor" x="{330 * (place % 2)}" y="{338 + 18 * (place // 2)}">'
        f"{escape(line.label)}</text>"
        for place, line in enumerate(lines)
    )
    svg = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace("720 336", "720 410", 1)
    begin = svg.index(">") + 1
    background = '<rect x="-66" y="-12" width="720" height="410" fill="#fff"/>'
    return f"{svg[:begin]}<style>{style}</style>{background}{svg[begin:].removesuffix('</svg>')}{legend}</svg>\n"


if __name__ == "__main__":
    main()
