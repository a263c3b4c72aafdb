"""Files that others may have made: what has no end, or more in it than was ever measured, is refused unread."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from fabricheck.cli import main
from fabricheck.store.metric_rows import SCHEMA, from_parquet, to_parquet

pytestmark = pytest.mark.timeout(60)
COMMANDS = {
    "judge": ["judge", "FILE"],
    "judge of a vendor's output": ["judge", "FILE", "--ranks=2"],
    "policy": ["judge", "FILE", "--policy=FILE"],
    "report": ["judge", "FILE", "--system=alps", "--html=report.html"],
    "bundle": ["bundle", "RUN"],
    "import": ["store", "import", "RUN", "--store=store"],
    "topology": ["expected", "--system", "bad"],
}


@pytest.fixture(params=["pipe", "device", "hole"])
def bomb(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "bomb"
    if request.param == "pipe":
        os.mkfifo(file)
    elif request.param == "device":
        file.symlink_to("/dev/zero")
    else:
        file.touch()
        os.truncate(file, 1 << 40)
    yield file


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_it_is_one_line(
    bomb: Path, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, site = tmp_path / "run", tmp_path / "site" / "site_configs" / "bad"
    for file in (run / "reframe.json", run / "verdict.json", site / "topology.yaml"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(bomb)
    (site / "settings.py").write_text("site_configuration = {}")
    monkeypatch.setenv("FABRICHECK_SITES", str(tmp_path / "site"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main([each.replace("FILE", str(bomb)).replace("RUN", str(run)) for each in words])
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert (said.out, len(said.err.splitlines())) == ("", 1)


def test_a_table_with_more_rows_than_bytes_is_refused() -> None:
    content = to_parquet(pl.DataFrame([], schema=dict(SCHEMA)).clear(1_000_000))
    assert len(content) < 1_000_000
    with pytest.raises(ValueError, match="cannot be measurements"):
        from_parquet(content)
