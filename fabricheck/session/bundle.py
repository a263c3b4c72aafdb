"""What a vendor asks for, as one archive: verdict, evidence, versions, state, raw series and logs of a run."""

from __future__ import annotations

import contextlib
import io
import re
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from fabricheck.errors import UserError
from fabricheck.fleet.record import Fleet
from fabricheck.jsonfile import read_json
from fabricheck.records.run import Run
from fabricheck.results.fabricbench import read_run
from fabricheck.session.reading import REPORT, VERDICT, Session, read_info, read_session
from fabricheck.state.paths import ADDRESSES
from fabricheck.topology.network import fold
from fabricheck.wholefile import whole_file

_LARGEST = 256 << 20
# The page is left out where names are hidden: what it carries is packed, and names in it would not be found.
_PACKED = ".html"


def write_bundle(folder: Path, output: Path, *, hide: bool, more: Iterable[str] = ()) -> tuple[str, ...]:
    """Writes the text files of the run in `folder` to the archive `output` (tar.gz), and returns their names in it.

    `hide`: nodes, users and folders are called node1, user1 and so on everywhere, and so is what `more` names. Raises
    UserError where the folder is no run that was judged, or the archive cannot be written.
    """
    if not (folder / VERDICT).is_file():
        raise UserError(f"{folder}: has no {VERDICT}: name the folder of a run, below output/runs/")
    session = read_session(folder)
    names = _names(session, folder, more) if hide else {}
    members = [file for file in _files(folder) if not (hide and file.suffix == _PACKED)]
    written = []
    try:
        with whole_file(output) as unfinished, tarfile.open(unfinished, "w:gz") as archive:
            for file in members:
                name = _hidden(str(file.relative_to(folder)), names)
                content = _hidden(file.read_bytes().decode("utf-8", "surrogateescape"), names)
                info = tarfile.TarInfo(f"{_hidden(folder.name, names)}/{name}")
                data = content.encode("utf-8", "surrogateescape")
                info.size, info.mtime = len(data), int(file.stat().st_mtime)
                archive.addfile(info, io.BytesIO(data))
                written.append(name)
    except OSError as error:
        raise UserError(f"the bundle {output} cannot be written: {error.strerror}") from None
    return tuple(written)


def _files(folder: Path) -> Iterator[Path]:
    """Text, of whatever kind: programs that were built are nothing for a vendor."""
    for file in sorted(folder.rglob("*")):
        if file.is_symlink() or not file.is_file() or file.stat().st_size > _LARGEST:
            continue
        with file.open("rb") as opened:
            if b"\0" not in opened.read(8192):
                yield file


def _names(session: Session, folder: Path, more: Iterable[str]) -> dict[str, str]:
    """What stands for each name that is hidden, the longest first: a host is part of its full name."""
    runs = [read_run(file) for file in session.files]
    info = read_info(folder / REPORT)
    nodes = list(dict.fromkeys([*_hosts(runs), info.host, *_of_fleet(folder)]))
    found = {each: f"node{number}" for number, each in enumerate(nodes, start=1)}
    found |= {str(folder.resolve()): "/run", str(Path.home()): "/home/user"}
    user = read_json(folder / REPORT)["session_info"].get("user")
    if user and user != "root":  # which is a word, too, and nobody's name
        found[str(user)] = "user1"
    found |= {each: f"address{number}" for number, each in enumerate(_addresses(folder), start=1)}
    found |= {each: f"name{number}" for number, each in enumerate(more, start=1)}
    return dict(sorted(found.items(), key=lambda item: -len(item[0])))


def _addresses(folder: Path) -> list[str]:
    """Those that the nodes left for each other, by which they are known as well as by their names."""
    found: set[str] = set()
    for file in folder.rglob(f"*{ADDRESSES}"):
        with contextlib.suppress(UserError, TypeError, AttributeError, IndexError):
            found.update(str(each[0]) for each in read_json(file).values())
    return sorted(found)


def _of_fleet(folder: Path) -> tuple[str, ...]:
    """The nodes of a run over many, and the lists of them in short form that it says."""
    fleet = Fleet.of_run(folder)
    if fleet is None:
        return ()
    left = [each.node for each in fleet.unchecked]
    lists = (fleet.asked, *(fold(each) for each in (fleet.nodes, left, [*fleet.nodes, *left]) if each))
    return (*fleet.nodes, *left, *(each for each in lists if "[" in each))


def _hosts(runs: Iterable[Run]) -> Iterator[str]:
    for run in runs:
        for rank in run.ranks:
            yield rank.host
            yield rank.host.partition(".")[0]


def _hidden(text: str, names: dict[str, str]) -> str:
    for name, shown in names.items():
        if len(name) > 1:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", shown, text)
    return text
