"""A run over a fleet that goes on where an earlier one ended: what single nodes have whole is not measured again.

Their network is: pairs are compared with each other, so that all of them are of one job.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from fabricheck.fleet.record import TROUBLES, Fleet, read_findings, write_findings
from fabricheck.records.case import NODES
from fabricheck.records.finding import Finding

#: fabricbench's exit statuses of a node that did what it was asked: measured, with wrong data, and unsupported.
DONE = (0, 5, 6)
#: What the exit status of each node is left in, beside its result.
STATUS = "exit-status"
#: Beside what was copied: from where.
TAKEN = "taken-over"
#: Variable of ReFrame's environment: the folder of the run that is resumed without --nodes.
RESUMES = "FABRICHECK_RESUMES"
#: In the folder of a shared job: its scheduler, its name and its number.
JOB_ID = "job-id.json"


def folders_in(run: Path, test: Path) -> tuple[Path, ...]:
    """Where a run may have left the files of a test, a path below stage/: ReFrame moves them where it passed."""
    return tuple(run / place / test for place in ("output", "stage"))


def carry_on(fleet: Fleet) -> None:
    """Excludes what the resumed run proved guilty: nothing more is measured there either."""
    before = Fleet.of_run(Path(fleet.earlier[0])) if fleet.earlier else None
    if before is not None:
        fleet.exclude([each for each in before.excluded if each.node in fleet.nodes])


def take_nodes(fleet: Fleet) -> tuple[str, ...]:
    """The good nodes whose results of the test of the current folder are there from an earlier run, copied just now or
    by a step of the test before this one."""
    before = _folders_before(fleet)
    taken: list[str] = []
    findings: list[Finding] = []
    for node in fleet.good if before else ():
        own = Path(NODES) / node
        folder = next((each for each in before if _is_done(each / NODES / node)), None)
        if folder is not None and not own.exists():
            _copy_folder(folder / NODES / node, own)
            findings += [each for each in read_findings(folder / TROUBLES) if each.node == node]
        if (own / TAKEN).exists():
            taken.append(node)
    if findings:
        write_findings(Path(TROUBLES), findings)
    return tuple(taken)


def is_taken_over(file: Path) -> bool:
    """Whether a result file was copied from an earlier run."""
    return file.with_name(TAKEN).exists()


def _folders_before(fleet: Fleet) -> tuple[Path, ...]:
    """Where earlier runs left the files of the test of the current folder, which is its stage directory."""

    def places() -> Iterator[Path]:
        own = Path.cwd().resolve().relative_to(fleet.folder.resolve().parent / "stage")
        for run in fleet.earlier:
            yield from folders_in(Path(run), own)

    return tuple(each for each in places() if each.is_dir()) if fleet.earlier else ()


def _is_done(folder: Path) -> bool:
    try:
        status = int((folder / STATUS).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # it was not waited for until its end
        return False
    return status in DONE and any(file.stat().st_size > 0 for file in folder.glob("*.jsonl"))


def _copy_folder(source: Path, target: Path) -> None:
    """Copies a folder so that it is whole where it is there."""
    draft = Path(f"{target.name}.part")
    shutil.copytree(source, draft)
    (draft / TAKEN).write_text(f"{source}\n", encoding="utf-8")
    target.parent.mkdir(exist_ok=True)
    draft.rename(target)
