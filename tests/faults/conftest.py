"""The suite on an emulated cluster, with references measured on it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabricheck_lab import faults
from fabricheck_lab.cluster import Cluster
from fabricheck_lab.network_suite import Site


@pytest.fixture(scope="session")
def calibrated(cluster: Cluster, programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The suite with references of what the cluster gave while nothing was wrong."""
    root = tmp_path_factory.mktemp("site")
    site = Site(cluster, root, programs, size="1MiB", asks_nodes=False)
    site.calibrate("one-leaf")
    return site


@pytest.fixture
def site(calibrated: Site) -> Iterator[Site]:
    """The calibrated suite; what a test breaks, on the cluster or in its files, is mended after it."""
    kept = {file: file.read_bytes() for file in calibrated.root.glob("*/**/*") if _is_source(file, calibrated.root)}
    yield calibrated
    for file, content in kept.items():
        file.write_bytes(content)
    calibrated.cluster.run(["scancel", "--user=root"], timeout_s=20)
    faults.clear(calibrated.cluster)


def _is_source(file: Path, root: Path) -> bool:
    """Whether it is the suite's own. `src` is the repository's: where it is written, all is compiled again."""
    return file.is_file() and not re.match(r"(output\d+|src)/", str(file.relative_to(root)))
