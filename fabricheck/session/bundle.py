"""What a vendor asks for, as one archive: verdict, evidence, versions, state, raw series and logs of a run, and how to
reproduce it."""

from __future__ import annotations

import contextlib
import io
import pwd
import re
import shlex
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabricheck import __version__
from fabricheck.errors import UserError, refused
from fabricheck.fleet.record import Fleet
from fabricheck.jsonfile import read_json
from fabricheck.mpi import NAMES
from fabricheck.records.verdict import Verdict
from fabricheck.results import job_script
from fabricheck.results.fabricbench import read_run
from fabricheck.results.node_state import FOLDER as STATES
from fabricheck.session.hiding import HOME, RUN, SUITE, Hiding
from fabricheck.session.reframe_report import read_info
from fabricheck.session.run_folders import REPORT, VERDICT
from fabricheck.suite import site_root, suite_root
from fabricheck.wholefile import whole_file

REPRODUCE = "REPRODUCE.md"
#: Where the archive has the files of the system, which `--site` takes, and fabricbench's sources.
SITE, SOURCES = "site", "src"
# The lines that are shown: as many runs as a vendor tries, as many reasons as a case has.
_MOST_RUNS, _MOST_REASONS = 3, 5
# The programs of an MPI library from a wheel, which no other machine has: there, those on the search path are taken.
_OF_WHEEL = re.compile(rf"/[^\s='\":]*/mpi/(?:{'|'.join(NAMES)})/bin\b/?")


@dataclass(frozen=True)
class _Result:
    """A result file of a run: the verdict on it, its test, and its name in the folder of the run."""

    run: Path
    verdict: Verdict
    test: str
    name: str

    @property
    def script(self) -> list[str]:
        return job_script.read_script((self.run / self.name).parent / job_script.NAME)

    @property
    def environment(self) -> str:
        """SYSTEM/PARTITION/ENVIRONMENT, below which ReFrame left the test."""
        parts = Path(self.name).parts
        top = next((place for place, part in enumerate(parts) if part in ("output", "stage")), 0)
        return "/".join(parts[top + 1 : top + 4])

    @property
    def build_folder(self) -> str:
        return shlex.quote(f"build-{self.environment.rpartition('/')[2]}")


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


def how_to_reproduce(folder: Path) -> str:
    """The page, for the run in `folder`. Raises UserError where its verdict cannot be read."""
    verdict = read_json(folder / VERDICT)
    results = sorted(_results(folder, verdict), key=lambda result: -[*Verdict].index(result.verdict))
    slow = [result for result in results if result.verdict is not Verdict.PASS]
    first = results[0].name if results else "RESULT"
    lines = [f"# {verdict.get('verdict', 'A run')} of {verdict.get('system', 'a system')}: how to reproduce it", ""]
    lines += [f"- {reason}" for reason in _reasons(verdict)]
    lines += ["", "## Files", "", "| verdict | test | result |", "|---|---|---|"]
    lines += [f"| {result.verdict.value} | `{result.test}` | `{result.name}` |" for result in results]
    lines += ["", f"Beside each result: job script, output, errors, and the node's state in `{STATES}/`.", ""]
    lines += [
        "Take a new shell for each block, and your own compilers, MPI library and launcher where the paths differ."
    ]
    built: set[str] = set()
    for number, result in enumerate((slow or results)[:_MOST_RUNS], 1):
        build = [] if result.environment in built else _build(result)
        launch = _launch(result, f"result-{number}.jsonl")
        loads = [line for line in job_script.set_up(result.script) if not _OF_WHEEL.search(line)]
        lines += ["", f"## {result.test}", "", "```", *loads, *build, *launch, "```"]
        built.add(result.environment)
    lines += [
        "",
        f"## Judge (Fabricheck {__version__})",
        "",
        f"`{VERDICT}` has the verdict on each result. These lines judge again, and need Fabricheck:",
        "",
        "```",
        f"fabricheck judge {shlex.quote(first)} --site {SITE}      # the result in this archive",
        f"fabricheck judge result-1.jsonl --site {SITE}      # that of your own first launch, by the commands above",
        "```",
    ]
    return "\n".join(lines) + "\n"


def _results(folder: Path, verdict: Mapping[str, Any]) -> Iterator[_Result]:
    for run in verdict.get("runs", []):
        # A run that came from another machine names its folder there.
        name = str(run["file"]).rpartition(f"/{folder.resolve().name}/")[2]
        if (folder / name).is_file():
            yield _Result(folder, Verdict(run["verdict"]), str(run.get("test") or name), name)


def _reasons(verdict: Mapping[str, Any]) -> Iterator[str]:
    findings = [*verdict.get("causes", []), *verdict.get("problems", [])]
    findings += [each for run in verdict.get("runs", []) for each in run["problems"]]
    for finding in findings[:_MOST_REASONS]:
        yield f"{finding.get('verdict', '')} {finding.get('message', '')}".strip()


def _build(result: _Result) -> Iterator[str]:
    """CMake's lines, with the options that the environment of the run was built with."""
    scripts = map(job_script.read_script, result.run.glob(f"*/{result.environment}/*/rfm_build.sh"))
    built = next((line for script in scripts for line in script if "build_once.sh" in line), "")
    options = [_in_archive(word) for word in _words(built) if word.startswith("-D")]
    options = options or [f"-DFABRICHECK_BACKEND={read_run(result.run / result.name).header.get('backend', 'host')}"]
    yield f"cmake -S {SOURCES} -B {result.build_folder} {shlex.join(options)}"
    yield f"cmake --build {result.build_folder} --parallel --target fabricbench"


def _launch(result: _Result, output: str) -> Iterator[str]:
    """The line that started the ranks, with its launcher; it writes `output`."""
    for line, program in job_script.launches(result.script):
        own = line.replace(program, f"{result.build_folder}/fabricbench", 1)
        yield _in_archive(re.sub(r"(--output[= ])\S*result\.jsonl", rf"\g<1>{output}", own))


def _in_archive(line: str) -> str:
    """The line with the files of fabricbench's sources where the archive has them, wherever they were, and with the MPI
    library of the reader where it had one from a wheel."""

    def place(path: re.Match[str]) -> str:
        return f"{SOURCES}/{path[1]}" if (suite_root() / "src" / path[1]).exists() else path[0]

    return _OF_WHEEL.sub("", re.sub(r"/[^\s='\",]*/src/([\w./-]+)", place, line))


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()


_LARGEST = 256 << 20


def write_bundle(
    folder: Path, output: Path, *, hide: bool, more: Iterable[str] = (), nodes: Iterable[str] = ()
) -> tuple[str, ...]:
    """Writes the text files of the run in `folder` to the archive `output` (tar.gz), with what reproduces it; returns
    their names in it.

    `hide`: the names of nodes, users and addresses, and those of `more`, are hashes everywhere, and so are folders;
    `nodes` are those of the system, whether they ran or not. Raises UserError where the folder is not a run that was
    judged, or the archive cannot be written.
    """
    if not (folder / VERDICT).is_file():
        raise UserError(f"{folder}: has no {VERDICT}: name the folder of a run, below output/runs/")
    instructions = how_to_reproduce(folder)
    called: Callable[[str], str] = _hiding(folder, more, nodes, instructions) if hide else str
    members = [*((str(file.relative_to(folder)), file) for file in _files(folder)), *files_of_system(folder)]
    written: list[str] = []

    def add(name: str, data: bytes, time: float) -> None:
        info = tarfile.TarInfo(f"{called(folder.resolve().name)}/{name}")
        info.size, info.mtime = len(data), int(time)
        archive.addfile(info, io.BytesIO(data))
        written.append(name)

    def without_names(text: str) -> bytes:
        return called(text).encode("utf-8", "surrogateescape")

    writing = refused(f"the bundle {output}", "written")
    with writing, whole_file(output) as unfinished, tarfile.open(unfinished, "w:gz") as archive:
        add(REPRODUCE, without_names(instructions), (folder / VERDICT).stat().st_mtime)
        for name, file in members:
            content = without_names(file.read_bytes().decode("utf-8", "surrogateescape"))
            add(called(name), content, file.stat().st_mtime)
        for name, file in sources():  # which are the same everywhere
            add(name, file.read_bytes(), file.stat().st_mtime)
    return tuple(written)


def _files(folder: Path) -> Iterator[Path]:
    """Text, of whatever kind: programs that were built are nothing for a vendor."""
    for file in sorted(folder.rglob("*")):
        if file.is_symlink() or not file.is_file() or file.stat().st_size > _LARGEST:
            continue
        with file.open("rb") as opened:
            if b"\0" not in opened.read(8192):
                yield file


def _hiding(folder: Path, more: Iterable[str], nodes: Iterable[str], instructions: str) -> Hiding:
    info = read_info(folder / REPORT)
    told = read_json(folder / REPORT)["session_info"]
    hosts = [host for run in read_json(folder / VERDICT).get("runs", []) for host in run["hosts"]]
    users = {str(told.get("user") or ""), *_owners(folder)} - {"root"}  # which is a word, too, and nobody's name
    # A run that came from another machine names its folder there.
    paths = {folder.resolve(): RUN, info.outputs.parent: RUN, suite_root(): SUITE, Path.home(): HOME}
    called = {str(path): name for path, name in paths.items() if len(path.parts) > 1}
    # What the instructions start is nobody's, also where another run was busy with it.
    processes = {*_processes(folder)} - {*re.findall(r"[\w.+-]+", instructions)}
    return Hiding([*hosts, info.host, *_of_fleet(folder), *nodes], [*users, *processes, *more], called)


def _processes(folder: Path) -> Iterator[str]:
    """What others ran on the nodes."""
    for file in folder.rglob(f"{STATES}/*.json"):
        with contextlib.suppress(UserError, TypeError, AttributeError, LookupError):
            state = read_json(file)
            yield from (str(one["name"]) for gpu in state["gpus"] for one in gpu["processes"])
            yield from (str(each).rpartition(" ")[0] for each in state["busiest"])


def _owners(folder: Path) -> Iterator[str]:
    """The users whose files these are."""
    for user in {file.lstat().st_uid for file in (folder, *folder.iterdir())}:
        with contextlib.suppress(KeyError):
            yield pwd.getpwuid(user).pw_name


def _of_fleet(folder: Path) -> tuple[str, ...]:
    """The nodes of a run over many, also those that it did not get."""
    fleet = Fleet.of_run(folder)
    return (*fleet.nodes, *fleet.unchecked) if fleet is not None else ()
