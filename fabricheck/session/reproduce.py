"""REPRODUCE.md of a bundle: which file is the failing run, and the lines that build, launch and judge it elsewhere."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabricheck import __version__
from fabricheck.errors import UserError
from fabricheck.jsonfile import read_json
from fabricheck.records.case import Case
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.results.node_state import FOLDER as STATES
from fabricheck.session.reading import VERDICT, FinishedSession
from fabricheck.suite import site_root, suite_root

NAME = "REPRODUCE.md"
#: Where the archive has the files of the system, which `--site` takes, and fabricbench's sources.
SITE, SOURCES = "site", "src"
# The lines that are shown: as many runs as a vendor tries, as many reasons as a case has.
_MOST_RUNS, _MOST_REASONS = 3, 5


@dataclass(frozen=True)
class _Measured:
    """A result file of a test case, its name in the folder of the run, and the verdict on it."""

    case: Case
    verdict: Verdict
    file: Path
    name: str

    @property
    def script(self) -> list[str]:
        return _lines(self.file.parent / "rfm_job.sh")


def files_of_system(folder: Path) -> Iterator[tuple[str, Path]]:
    """The names in the archive of what a run is judged by, and the files: link graph and references of its system."""
    with contextlib.suppress(UserError, TypeError, LookupError):
        system = str(read_json(folder / VERDICT)["system"])
        root = site_root(system)
        references = root / "reference_values" / f"{system}.yaml"
        for file in (*sorted((root / "site_configs" / system).glob("*.yaml")), references):
            if file.is_file():
                yield f"{SITE}/{file.relative_to(root)}", file


def sources() -> Iterator[tuple[str, Path]]:
    """The names in the archive of fabricbench's sources, and the files."""
    for file in sorted((suite_root() / "src").rglob("*")):
        if file.is_file():
            yield f"{SOURCES}/{file.relative_to(suite_root() / 'src')}", file


def text(folder: Path, session: FinishedSession) -> str:
    """The page, for the run in `folder`. Raises UserError where its verdict cannot be read."""
    verdict = read_json(folder / VERDICT)
    said = {str(run["file"]).rpartition(f"/{folder.resolve().name}/")[2]: run for run in verdict.get("runs", [])}
    measured = sorted(_measured(folder, session, said), key=lambda each: -[*Verdict].index(each.verdict))
    slow = [each for each in measured if each.verdict is not Verdict.PASS]
    lines = [f"# {verdict.get('verdict', 'A run')} of {verdict.get('system', 'a system')}: how to reproduce it", ""]
    lines += [f"- {reason}" for reason in _reasons(verdict)]
    lines += ["", "## Files", "", "| verdict | test | result |", "|---|---|---|"]
    lines += [f"| {each.verdict.value} | `{each.case}` | `{each.name}` |" for each in measured]
    lines += ["", f"Beside each result: job script, output, errors, and the node's state in `{STATES}/`."]
    built = ""
    for result in (slow or measured)[:_MOST_RUNS]:
        build = [] if result.case.environment == built else _build(session, result)
        lines += ["", f"## {result.case}", "", "```", *build, *_launch(result), "```"]
        built = result.case.environment
    first = (slow or measured)[0].name if measured else "RESULT"
    lines += [
        "",
        f"## Judge (Fabricheck {__version__})",
        "",
        "```",
        f"fabricheck judge {shlex.quote(first)} --site {SITE}      # the result in this archive",
        f"fabricheck judge result.jsonl --site {SITE}      # the result of your own launch, by the commands above",
        "```",
    ]
    return "\n".join(lines) + "\n"


def _measured(folder: Path, session: FinishedSession, said: Mapping[str, Any]) -> Iterator[_Measured]:
    for case in session.cases:
        for file in case.result_files():
            name = str(file.relative_to(folder) if file.is_relative_to(folder) else file)
            run = said.get(name, {})
            yield _Measured(case, Verdict(run["verdict"]) if run else case.verdict, file, name)


def _reasons(verdict: Mapping[str, Any]) -> Iterator[str]:
    findings = [*verdict.get("causes", []), *verdict.get("problems", [])]
    findings += [each for run in verdict.get("runs", []) for each in run["problems"]]
    for finding in findings[:_MOST_REASONS]:
        yield f"{finding.get('verdict', '')} {finding.get('message', '')}".strip()


def _build(session: FinishedSession, measured: _Measured) -> Iterator[str]:
    """CMake's lines, with the options that the environment of the run was built with, and its modules and variables."""
    scripts = (
        _lines(case.folder / "rfm_build.sh")
        for case in session.cases
        if case.is_build and case.folder is not None and case.environment == measured.case.environment
    )
    built = next((line for script in scripts for line in script if "build_once.sh" in line), "")
    options = [word for word in _words(built) if word.startswith("-D")]
    options = options or [f"-DFABRICHECK_BACKEND={read_run(measured.file).header.get('backend', 'host')}"]
    yield from _set_up(measured.script)
    yield f"cmake -S {SOURCES} -B build {shlex.join(options)}"
    yield "cmake --build build --parallel --target fabricbench"


def _launch(measured: _Measured) -> Iterator[str]:
    """The line that started the ranks, with its launcher."""
    for line in measured.script:
        words = line.split()
        program = next((word for word in words if word.strip("'").endswith("/fabricbench")), "")
        if program and STATES not in line:
            yield line.replace(program, "build/fabricbench", 1)


def _set_up(script: Sequence[str]) -> Iterator[str]:
    """What a job script loads and sets before it measures."""
    for line in dict.fromkeys(script):
        if line.startswith(("export ", "module ", "spack ", ". ", "source ")):
            yield line


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
