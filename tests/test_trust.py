"""The one rule of trust: a table of cases, for the function and for the shell of the cache of programs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fabricheck.cli import main
from fabricheck.errors import UserError
from fabricheck.session.abandoned import only_run
from fabricheck.store.folders import FILES, commit, create
from fabricheck.suite import suite_root
from fabricheck.trust import why_untrusted, why_untrusted_tree
from tests.support.users import SOMEONE, give, public

__all__ = ["public"]

#: Of a file: mode, owner, and whether root may run it.
CASES = [
    (0o644, 0, True),
    (0o755, 0, True),
    (0o664, 0, False),  # root:users, as an administrator's umask leaves it
    (0o646, 0, False),
    (0o644, SOMEONE, False),
    (0o600, SOMEONE, False),
]


def by_shell(folder: Path) -> bool:
    """What src/build_once.sh says of a folder that root built."""
    script = (suite_root() / "src" / "build_once.sh").read_text()
    rule = re.search(r"^trusted\(\) \{.*?^\}[^\n]*", script, re.MULTILINE | re.DOTALL)
    assert rule is not None
    command = ["sh", "-c", f"me=0 maker=0\n{rule[0]}\ntrusted {folder}"]
    return subprocess.run(command, check=False).returncode == 0


@pytest.mark.parametrize(("mode", "owner", "good"), CASES)
@pytest.mark.parametrize("place", ["file", "folder"])
def test_the_table(public: Path, mode: int, owner: int, good: bool, place: str) -> None:
    folder = public / "folder"
    folder.mkdir()
    (folder / "file").touch()
    changed = folder / "file" if place == "file" else folder
    changed.chmod(mode | 0o111)
    os.chown(changed, owner, SOMEONE)
    assert (why_untrusted(folder / "file") == "") is good
    assert (why_untrusted_tree(folder) == "") is good
    assert by_shell(folder) is good
    command = [sys.executable, "-m", "fabricheck.trust", str(folder / "file")]
    done = subprocess.run(command, cwd=suite_root(), capture_output=True, text=True, check=False)
    assert (done.returncode == 0, len(done.stderr.splitlines())) == (good, 0 if good else 1)


def test_a_link_is_as_good_as_who_made_it_and_what_it_leads_to(public: Path) -> None:
    good, bad = public / "good", public / "bad"
    for target in (good, bad):
        target.mkdir()
        (target / "settings.py").touch()
    (bad / "settings.py").chmod(0o666)
    for name, target in (("mine", good), ("to bad", bad), ("theirs", good), ("loop", public / "loop")):
        (public / name).symlink_to(target)
    os.chown(public / "theirs", SOMEONE, SOMEONE, follow_symlinks=False)
    assert why_untrusted(public / "mine" / "settings.py") == ""
    assert why_untrusted(public / "to bad" / "settings.py")
    assert why_untrusted(public / "theirs" / "settings.py")
    assert why_untrusted(public / "loop")
    suite = public / "suite"
    suite.mkdir()
    (suite / "site_configs").symlink_to(bad)
    assert why_untrusted_tree(suite)


def test_each_link_and_each_step_back_counts_as_the_system_takes_it(public: Path) -> None:
    """A path is judged by the places that it leads over, not by where it ends today."""
    good, theirs = public / "good", public / "theirs"
    (good / "inside").mkdir(parents=True)
    (theirs / "inside").mkdir(parents=True)
    (theirs / "way").symlink_to(good)
    (public / "way").symlink_to(theirs / "way")  # ours, over theirs, to ours
    (public / "relative").symlink_to("theirs/../good")
    (good / "there").symlink_to(theirs / "inside")
    give(theirs)
    assert why_untrusted(public / "way" / "inside")
    assert why_untrusted_tree(public / "way")
    assert why_untrusted(public / "relative")
    assert why_untrusted(good / "there" / ".." / "new")
    assert why_untrusted(good / "inside" / ".." / "new") == ""


def test_what_cannot_be_examined_is_not_trusted(public: Path) -> None:
    """As root finds it on a file system of other machines."""
    (public / "folder").mkdir()

    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied")

    for place, call in ((os, "scandir"), (Path, "lstat")):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(place, call, refuse)
            assert why_untrusted_tree(public)


def test_root_makes_nothing_where_another_s_link_leads(public: Path) -> None:
    theirs, elsewhere = public / "theirs", public / "elsewhere"
    elsewhere.mkdir()
    theirs.mkdir()
    (theirs / "way").symlink_to(elsewhere)
    give(theirs)
    with pytest.raises(UserError), only_run(theirs / "way" / "output", "toy"):
        pass
    with pytest.raises(UserError):
        create(theirs / "way" / "store")
    assert not [*elsewhere.iterdir()]


def test_root_writes_no_entry_where_others_can_plant_links(public: Path) -> None:
    system = public / "alps"
    system.mkdir()
    system.chmod(0o777)
    with pytest.raises(UserError):
        commit(system, "20261121T083632Z", "s", dict.fromkeys(FILES, b""))
    assert not [*system.iterdir()]


@pytest.mark.parametrize("command", [["doctor"], ["run"], ["upgrade"]])
def test_root_starts_no_program_that_others_can_change(
    public: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    program = public / "built" / "openmpi" / "fabricbench"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ntouch {public / 'ran'}\n")
    program.chmod(0o775)
    os.chown(program, 0, SOMEONE)
    with pytest.raises(SystemExit) as ended:
        main([*command, f"--built={public / 'built'}"])
    assert ended.value.code == 2 and str(program) in capsys.readouterr().err
    assert not (public / "ran").exists()


def test_a_sticky_folder_above_protects_names(public: Path) -> None:
    shared = public / "shared"
    (shared / "mine").mkdir(parents=True)
    shared.chmod(0o1777)
    assert why_untrusted(shared / "mine") == ""
    assert why_untrusted(shared)
    shared.chmod(0o777)
    assert why_untrusted(shared / "mine")
