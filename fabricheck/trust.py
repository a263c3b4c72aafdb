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


def why_untrusted(path: Path) -> str:
    """Return who else can change what is at a path, and what to do; empty if the path is safe.

    Users other than root may share what they run with their group. What is not there is judged by the folders above it.
    """
    path = Path(os.path.abspath(path))
    for place in (*reversed(path.parents), path):
        if why := _why_of(place, above=place != path):
            return why
    return ""


def why_untrusted_tree(folder: Path) -> str:
    """As `why_untrusted`, of a folder and all that is in it, also behind links."""
    seen: set[str] = set()
    places = [folder]
    while places:
        place = places.pop()
        if why := why_untrusted(place) if place == folder else _why_of(place):
            return why
        real = os.path.realpath(place)
        if real not in seen and os.path.isdir(real):
            seen.add(real)
            places += [Path(entry.path) for entry in os.scandir(real)]
    return ""


def _why_of(place: Path, *, above: bool = False) -> str:
    """As `why_untrusted` of one place. `above`: names in it matter, which the sticky bit of a folder protects."""
    try:
        status = place.lstat()
    except OSError:
        return ""  # nothing is run from there
    is_root = os.geteuid() == 0
    # In a user namespace / is not 0's.
    owners = {0, os.geteuid(), Path("/").stat().st_uid, Path(__file__).stat().st_uid}
    if is_root and status.st_uid not in owners:
        return f"{place} belongs to user {status.st_uid}: chown it to root, or run as that user"
    if stat.S_ISLNK(status.st_mode):
        target = Path(os.path.realpath(place))
        return why_untrusted(target) if target != place else f"{place} is a link to itself: remove it"
    shared = stat.S_IWOTH | (stat.S_IWGRP if is_root else 0)
    sticky = above and status.st_mode & stat.S_ISVTX
    if status.st_mode & shared and not sticky:
        who = "all users" if status.st_mode & stat.S_IWOTH else "its group"
        return f"{who} can change {place}: chmod {'o' if who == 'all users' else 'g'}-w it first"
    return ""


def require_trusted_by_root(what: str, path: Path) -> None:
    """Raise UserError where root would write into a place that somebody else can change."""
    if os.geteuid() == 0 and (why := why_untrusted(path)):
        raise UserError(f"{what} is {path}, and {why}")


if __name__ == "__main__":
    sys.exit(f"fabricheck: {why}" if os.geteuid() == 0 and (why := why_untrusted(Path(sys.argv[1]))) else 0)
