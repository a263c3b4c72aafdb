"""Where a vendor suite comes from: what the site has, else the pinned release, whose sum must be known.

A site says what it has in the variable of the tool (`FABRICHECK_OSU`, …) or in `extras["vendor"]` of an environment:
an installed prefix, the name of a module, a tarball, a source directory, or `release`. An environment without
`extras["vendor"]` has the release of every tool; one that has it without a tool leaves that tool out.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter

from fabricheck.errors import UserError
from fabricheck.suite import suite_root
from fabricheck.yamlfile import read_yaml

RELEASE = "release"
#: The folder of a suite from an offline archive that has the pinned releases; with them nothing is downloaded.
RELEASES = "vendor"

_STRICT = ConfigDict(extra="forbid", strict=True)
_Text = Annotated[str, Field(min_length=1)]


class SourceKind(str, Enum):
    """What a source is. A prefix and a module are installed; the others are built."""

    PREFIX = "prefix"
    MODULE = "module"
    TARBALL = "tarball"
    DIRECTORY = "directory"
    RELEASE = "release"


class NotAvailableError(Exception):
    """A source that cannot be had here, as one line that says what to set. The check is skipped, not failed."""


@dataclass(frozen=True)
class Release:
    """A pinned version and where it lies. `sha256_from` says who states the sum; without a sum nothing is fetched."""

    __pydantic_config__ = _STRICT

    version: _Text
    url: Annotated[str, Field(pattern=r"^https://\S+$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    sha256_from: _Text | None = None

    @property
    def file(self) -> str:
        """The file name of the archive."""
        return self.url.rsplit("/", 1)[1]


@dataclass(frozen=True)
class KnownFailure:
    """A line of a build's output (regular expression) whose cause is known."""

    __pydantic_config__ = _STRICT

    pattern: _Text
    cause: _Text


@dataclass(frozen=True)
class Tool:
    """One vendor suite. `program` is in an installed one, one of `source` at the top of its source tree."""

    __pydantic_config__ = _STRICT

    title: _Text
    variable: Annotated[str, Field(pattern=r"^FABRICHECK_[A-Z_]+$")]
    program: _Text
    source: Annotated[tuple[_Text, ...], Field(min_length=1)]
    release: Release | None = None
    known_failures: tuple[KnownFailure, ...] = ()

    @property
    def how_to_say(self) -> str:
        """The next step for a user whose tool has no source."""
        return (
            f"set {self.variable} to an installed prefix, a module, a tarball or a directory of {self.title}, "
            "or name it under `vendor` in the extras of the environment"
        )


@dataclass(frozen=True)
class Source:
    """What the site has: `where` is a path, the name of a module, or the URL of the release."""

    kind: SourceKind
    where: str

    @property
    def is_installed(self) -> bool:
        """Whether the programs exist already and are not built."""
        return self.kind in (SourceKind.PREFIX, SourceKind.MODULE)


@dataclass(frozen=True)
class _File:
    __pydantic_config__ = _STRICT

    tools: dict[str, Tool]


def load_tools(path: str | PathLike[str]) -> Mapping[str, Tool]:
    """The tools of a YAML file such as config/vendor.yaml, by name. UserError names the line of a mistake."""
    file = read_yaml(Path(path))
    tools = file.validated(TypeAdapter(_File).validate_json, file.as_json).tools
    for name, tool in tools.items():
        release = tool.release
        if release is not None and (release.sha256 is None) != (release.sha256_from is None):
            file.fail(("tools", name, "release"), "sha256 and sha256_from belong together: name the source of the sum")
    return tools


def site_setting(
    name: str, tool: Tool, extras: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> str | None:
    """What the site has of the tool in an environment with these `extras`; `None` where it leaves the tool out."""
    variables = os.environ if environment is None else environment
    if variables.get(tool.variable):
        return variables[tool.variable]
    if "vendor" not in extras:
        return RELEASE
    said = extras["vendor"].get(name)
    return str(said) if said else None


def find_source(tool: Tool, said: str) -> Source:
    """What `said` is. Raises UserError for a path that is none of the things that it can be."""
    if said == RELEASE:
        return Source(SourceKind.RELEASE, tool.release.url if tool.release is not None else "")
    if not said.startswith(("/", "~", ".")):
        return Source(SourceKind.MODULE, said)
    path = Path(said).expanduser()
    if path.is_file():
        if not tarfile.is_tarfile(path):
            raise UserError(f"{path} is not a tarball: {tool.how_to_say}")
        return Source(SourceKind.TARBALL, str(path.resolve()))
    if not path.is_dir():
        raise UserError(f"{path} does not exist: {tool.how_to_say}")
    if find_program(path, tool.program) is not None:
        return Source(SourceKind.PREFIX, str(path.resolve()))
    if _is_source(tool, path):
        return Source(SourceKind.DIRECTORY, str(path.resolve()))
    raise UserError(
        f"{path} has neither the program {tool.program} nor {' or '.join(tool.source)}, so it is not {tool.title}: "
        f"{tool.how_to_say}"
    )


def find_program(root: Path, program: str) -> Path | None:
    """The executable file of that name below `root`, the one nearest to it; `None` where there is none."""
    programs = [path for path in root.rglob(program) if path.is_file() and os.access(path, os.X_OK)]
    return min(programs, key=lambda path: (len(path.parts), str(path)), default=None)


def fetch_releases(folder: Path, download: Callable[[str, Path], None] | None = None) -> list[str]:
    """Downloads the pinned releases, each checked by its sum; a line for each that cannot be had."""
    missing = []
    for tool in load_tools(suite_root() / "config" / "vendor.yaml").values():
        try:
            if tool.release is not None:
                _fetch_release(tool, folder, download or _download)
        except (NotAvailableError, UserError) as error:
            missing.append(str(error))
    return missing


def fetch(tool: Tool, source: Source, folder: Path, download: Callable[[str, Path], None] | None = None) -> Path | None:
    """Lays the source tree below `folder` and returns it; `None` for what is installed.

    Raises NotAvailableError where there is no release to fetch, no sum to check it by or no network, and UserError
    where the sum is another one or what was fetched is not the tool.
    """
    if source.is_installed:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    if source.kind is SourceKind.DIRECTORY:
        tree = folder / "source"
        shutil.copytree(source.where, tree, symlinks=True, ignore=shutil.ignore_patterns(".git"))
        return tree
    archive = (
        Path(source.where) if source.kind is SourceKind.TARBALL else _fetch_release(tool, folder, download or _download)
    )
    return unpack(tool, archive, folder / "source")


def unpack(tool: Tool, archive: Path, folder: Path) -> Path:
    """The source tree in a tarball, unpacked below `folder`. UserError where it cannot be, or is not the tool."""
    try:
        extract(archive, folder)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise UserError(f"{archive} cannot be unpacked: {' '.join(str(error).split())}") from None
    entries = [entry for entry in folder.iterdir() if entry.name != "pax_global_header"]
    tree = entries[0] if len(entries) == 1 and entries[0].is_dir() else folder
    if not _is_source(tool, tree):
        raise UserError(
            f"{archive} has no {' or '.join(tool.source)} at its top, so it is not a source of {tool.title}"
        )
    return tree


def extract(archive: Path, folder: Path) -> None:
    """All that is in a tar archive, and nothing outside `folder`. Raises TarError, OSError or EOFError."""
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(folder, filter="data")
            return
        top = os.path.abspath(folder)
        for member in tar.getmembers():  # Python before 3.10.12 and 3.11.4
            link = os.path.join(os.path.dirname(member.name) if member.issym() else "", member.linkname)
            places = [Path(os.path.abspath(os.path.join(top, name))) for name in (member.name, link)]
            if member.isdev() or not all(place.is_relative_to(top) for place in places):
                raise tarfile.TarError(f"{member.name} would be outside")
        tar.extractall(folder)


def _fetch_release(tool: Tool, folder: Path, download: Callable[[str, Path], None]) -> Path:
    release = tool.release
    if release is None:
        raise NotAvailableError(f"{tool.title} has no release to fetch: {tool.how_to_say}")
    if release.sha256 is None:
        raise NotAvailableError(
            f"no source states the SHA-256 of {tool.title} {release.version}, so it is not fetched: {tool.how_to_say}"
        )
    archive = folder / release.file
    kept = suite_root() / RELEASES / release.file  # of an archive for machines without a network
    try:
        if kept.exists():
            shutil.copyfile(kept, archive)
        else:
            download(release.url, archive)
    except OSError as error:
        archive.unlink(missing_ok=True)
        reason = getattr(error, "reason", None) or error
        raise NotAvailableError(f"{release.url} cannot be fetched ({reason}): {tool.how_to_say}") from None
    sum_ = hashlib.sha256(archive.read_bytes()).hexdigest()
    if sum_ != release.sha256:
        archive.unlink()
        raise UserError(
            f"{release.url} has the SHA-256 {sum_} instead of {release.sha256} ({release.sha256_from}): "
            "not the pinned file; it was removed"
        )
    return archive


class _OnlyHttps(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any) -> urllib.request.Request | None:
        if not str(arguments[-1]).startswith("https://"):
            raise urllib.error.URLError(f"redirected to {arguments[-1]}, which is not https")
        return super().redirect_request(*arguments)


def _download(url: str, file: Path) -> None:
    with urllib.request.build_opener(_OnlyHttps).open(url, timeout=60) as answer, file.open("wb") as target:
        shutil.copyfileobj(answer, target)


def _is_source(tool: Tool, folder: Path) -> bool:
    return any((folder / name).is_file() for name in tool.source)
