from __future__ import annotations

from pathlib import Path

from benchmarks.nights import NIGHTS, sessions


def test_the_latest_night_of_each_kind_has_sessions(tmp_path: Path) -> None:
    for archive in [sorted(NIGHTS.glob(f"{kind}-*.tar.xz"))[-1] for kind in ("h200", "h200x2")]:
        assert sessions(archive, tmp_path / archive.name)["session"].n_unique() >= 2
