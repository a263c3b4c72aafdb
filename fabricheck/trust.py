"""The one rule of trust for what root executes, reads as settings, or writes into.

    python -m fabricheck.trust FOLDER

It belongs to root, to this user or to the owner of this Fabricheck, and neither its group nor others may change it or
put another in its place; a link is as good as who made it and what it leads to. ci/site.sh asks by the command above,
and src/build_once.sh, which runs where this Python may not, has the same rule in shell.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from fabricheck.errors import UserError

#: As of Linux (path_resolution(7)).
_MOST_LINKS = 40


def why_untrusted(path: Path) -> str:
    """Return who else can change what is at a path, and what to do; empty if the path is safe.

    Users other than root may share what they run with their group. What is not there is judged by the folders above it.
    """
    here, links = Path("/"), 0
    names = list(reversed(path.parts if path.is_absolute() else (Path.cwd() / path).parts))
    while names:
        place = here / names.pop()
        if place.name == "..":
            here = here.parent  # of what a link led to, as the system takes it
            continue
        try:
            status = place.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return ""  # nothing is run from there
        except OSError as error:
            return _unseen(place, error)
        if why := _why_of(place, status, above=bool(names)):
            return why
        if not stat.S_ISLNK(status.st_mode):
            here = place
        elif (links := links + 1) > _MOST_LINKS:
            return f"{place} is a link to itself: remove it"
        else:
            # One step: each link on the way could be changed by its owner.
            names += reversed(Path(os.readlink(place)).parts)
    return ""


def why_untrusted_tree(folder: Path) -> str:
    """As `why_untrusted`, of a folder and all that is in it, also behind links."""
    if why := why_untrusted(folder):
        return why
    seen: set[str] = set()
    folders = [str(folder)]
    while folders:
        real = os.path.realpath(folders.pop())
        if real in seen or not os.path.isdir(real):
            continue
        seen.add(real)
        try:
            entries = [*os.scandir(real)]
        except OSError as error:
            return _unseen(Path(real), error)
        for entry in entries:
            if why := _why_of_entry(entry):
                return why
        folders += [entry.path for entry in entries if entry.is_dir()]
    return ""


def _why_of_entry(entry: os.DirEntry[str]) -> str:
    """As `why_untrusted`, of what is in a folder that was judged with all above it: a link has a way of its own."""
    if entry.is_symlink():
        return why_untrusted(Path(entry.path))
    try:
        return _why_of(Path(entry.path), entry.stat(follow_symlinks=False))
    except FileNotFoundError:
        return ""  # removed since
    except OSError as error:
        return _unseen(Path(entry.path), error)


def _unseen(place: Path, error: OSError) -> str:
    return f"{place} cannot be examined ({error.strerror}): run as a user who can read it"


def _why_of(place: Path, status: os.stat_result, *, above: bool = False) -> str:
    """As `why_untrusted` of one place. `above`: names in it matter, which the sticky bit of a folder protects."""
    is_root = os.geteuid() == 0
    # In a user namespace / is not 0's.
    owners = {0, os.geteuid(), Path("/").stat().st_uid, Path(__file__).stat().st_uid}
    if is_root and status.st_uid not in owners:
        return f"{place} belongs to user {status.st_uid}: chown it to root, or run as that user"
    shared = stat.S_IWOTH | (stat.S_IWGRP if is_root else 0)
    sticky = above and status.st_mode & stat.S_ISVTX
    if status.st_mode & shared and not sticky and not stat.S_ISLNK(status.st_mode):
        who = "all users" if status.st_mode & stat.S_IWOTH else "its group"
        return f"{who} can change {place}: chmod {'o' if who == 'all users' else 'g'}-w it first"
    return ""


def require_trusted_by_root(what: str, path: Path, *, tree: bool = False) -> None:
    """Raise UserError where somebody else can change a place that root would write into, or run what is in its tree."""
    if os.geteuid() == 0 and (why := why_untrusted_tree(path) if tree else why_untrusted(path)):
        raise UserError(f"{what} is {path}, and {why}")


if __name__ == "__main__":
    sys.exit(f"fabricheck: {why}" if os.geteuid() == 0 and (why := why_untrusted(Path(sys.argv[1]))) else 0)
