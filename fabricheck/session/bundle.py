"""What a vendor asks for, as one archive: verdict, evidence, versions, state, raw series and logs of a run, and how to
reproduce it."""

from __future__ import annotations

import contextlib
import io
import pwd
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.fleet.record import Fleet
from fabricheck.jsonfile import read_json
from fabricheck.records.run import Run
from fabricheck.results.fabricbench import read_run
from fabricheck.results.node_state import FOLDER as STATES
from fabricheck.session import reproduce
from fabricheck.session.hiding import HOME, RUN, SUITE, Hiding
from fabricheck.session.reading import REPORT, VERDICT, FinishedSession, read_info, read_session
from fabricheck.suite import suite_root
from fabricheck.wholefile import whole_file

_LARGEST = 256 << 20
# The page is left out where names are hidden: what it carries is packed, and names in it would not be found.
_PACKED = ".html"


@dataclass(frozen=True)
class Bundle:
    """The names of the files in an archive; `left`: words in it that may be names, where names were hidden."""

    files: tuple[str, ...]
    left: tuple[str, ...]


def write_bundle(
    folder: Path, output: Path, *, hide: bool, more: Iterable[str] = (), nodes: Iterable[str] = ()
) -> Bundle:
    """Writes the text files of the run in `folder` to the archive `output` (tar.gz), with what reproduces it.

    `hide`: nodes, users, addresses and folders are called node1, user1 and so on everywhere, and so is what `more`
    names; `nodes` are those of the system, whether they ran or not. Raises UserError where the folder is no run that
    was judged, or the archive cannot be written.
    """
    if not (folder / VERDICT).is_file():
        raise UserError(f"{folder}: has no {VERDICT}: name the folder of a run, below output/runs/")
    session = read_session(folder)
    hiding = _hiding(session, folder, more, nodes) if hide else None
    called: Callable[[str], str] = hiding or str
    own = [file for file in _files(folder) if not (hide and file.suffix == _PACKED)]
    members = [*((str(file.relative_to(folder)), file) for file in own), *reproduce.files_of_system(folder)]
    written: list[str] = []

    def add(name: str, data: bytes, time: float) -> None:
        info = tarfile.TarInfo(f"{called(folder.resolve().name)}/{name}")
        info.size, info.mtime = len(data), int(time)
        archive.addfile(info, io.BytesIO(data))
        written.append(name)

    def without_names(text: str) -> bytes:
        return called(text).encode("utf-8", "surrogateescape")

    try:
        with whole_file(output) as unfinished, tarfile.open(unfinished, "w:gz") as archive:
            add(reproduce.NAME, without_names(reproduce.text(folder, session)), (folder / VERDICT).stat().st_mtime)
            for name, file in members:
                content = without_names(file.read_bytes().decode("utf-8", "surrogateescape"))
                add(called(name), content, file.stat().st_mtime)
            for name, file in reproduce.sources():  # which are the same everywhere
                add(name, file.read_bytes(), file.stat().st_mtime)
    except OSError as error:
        raise UserError(f"the bundle {output} cannot be written: {error.strerror}") from None
    return Bundle(tuple(written), hiding.left if hiding is not None else ())


def _files(folder: Path) -> Iterator[Path]:
    """Text, of whatever kind: programs that were built are nothing for a vendor."""
    for file in sorted(folder.rglob("*")):
        if file.is_symlink() or not file.is_file() or file.stat().st_size > _LARGEST:
            continue
        with file.open("rb") as opened:
            if b"\0" not in opened.read(8192):
                yield file


def _hiding(session: FinishedSession, folder: Path, more: Iterable[str], nodes: Iterable[str]) -> Hiding:
    info = read_info(folder / REPORT)
    told = read_json(folder / REPORT)["session_info"]
    known = [*_hosts([read_run(file) for file in session.files]), info.host, *_of_fleet(folder), *nodes]
    users = {str(told.get("user") or ""), *_owners(folder)} - {"root"}  # which is a word, too, and nobody's name
    # A run that came from another machine names its folder there.
    paths = {folder.resolve(): RUN, info.outputs.parent: RUN, suite_root(): SUITE, Path.home(): HOME}
    called = {str(path): name for path, name in paths.items() if len(path.parts) > 1}
    return Hiding(known, users, more, _processes(folder), called)


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


def _hosts(runs: Iterable[Run]) -> Iterator[str]:
    for run in runs:
        for rank in run.ranks:
            yield rank.host
