"""Files that appear whole: nobody can lead them elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fabricheck.wholefile import whole_file
from tests.support.pages import write_html, write_json
from tests.support.synthetic import pair_run


def page(path: Path) -> None:
    write_html([pair_run()], path, title="t", system="alps")


def verdict(path: Path) -> None:
    write_json([pair_run()], path, system="alps")


@pytest.mark.parametrize("write", [page, verdict])
def test_links_that_others_left_are_not_followed(tmp_path: Path, write: Callable[[Path], None]) -> None:
    """Neither where the file is to be nor under the name that it had before it was whole."""
    shared, mine = tmp_path / "shared", tmp_path / "passwd"
    shared.mkdir()
    mine.write_text("")
    target = shared / "report.html"
    for name in ("report.html", ".report.html.unfinished", ".report.html.new"):
        (shared / name).symlink_to(mine)
    write(target)
    assert mine.read_text() == ""
    assert not target.is_symlink() and target.stat().st_size > 0
    assert len([*shared.iterdir()]) == 3


def test_nothing_is_left_of_a_file_that_did_not_become_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")
    with pytest.raises(ValueError), whole_file(tmp_path / "file") as new:
        new.write_text("half")
        raise ValueError
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "before"


def test_its_mode_is_what_the_user_wants(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with whole_file(tmp_path / "file") as new:
            new.write_text("x")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640
