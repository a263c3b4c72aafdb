"""An emulated cluster for the tests of this folder, with programs for it and references measured on it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ci import build
from fabricheck import mpi
from fabricheck.emulation import faults
from fabricheck.emulation.cluster import Cluster, emulated_cluster, require_machine
from fabricheck.errors import UserError
from fabricheck.suite import suite_root
from tests.toy import toy

__all__ = ["toy"]

TOPOLOGY = suite_root() / "site_configs" / "emulated" / "topology.yaml"
HEADER = """\
$sources:
  healthy: {kind: vendor, source: this cluster before anything was planted}
$provenance:
  NodePairs: healthy
$uncalibrated: {'*': nothing else is compared}
NodePairs:
"""


@dataclass(frozen=True)
class Finished:
    """A run of `fabricheck run` on the cluster. `problems`: all found; `lines`: those of the worst verdict."""

    status: int
    verdict: str
    lines: tuple[str, ...]
    folder: Path
    output: str
    problems: tuple[str, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass
class Site:
    """A suite of its own with the checks of the network, on a cluster."""

    cluster: Cluster
    root: Path
    programs: Path
    runs: int = 0

    def command(
        self, partition: str, *options: str, environment: str = "openmpi", name: str = "NodePairs"
    ) -> list[str]:
        self.runs += 1
        selected = [f"--system=emulated:{partition}", f"--environment={environment}", f"--name={name}"]
        where = [f"--built={self.programs}", f"--output={self.root / f'output{self.runs}'}", "--no-store"]
        program = [sys.executable, "-m", "fabricheck", "run", *selected, *where]
        # Latencies of more ranks than cores say nothing.
        large = [*([] if "--" in options else ["--"]), "--setvar=NodePairs.sizes=host:4MiB"]
        return ["sh", "-c", f'cd "{self.root}" && exec "$@"', "sh", *program, *options, *large]

    def run(self, partition: str, *options: str, environment: str = "openmpi", name: str = "NodePairs") -> Finished:
        command = self.command(partition, *options, environment=environment, name=name)
        done = self.cluster.run(command, timeout_s=240)
        return self.finished(done.returncode, done.stdout + done.stderr)

    def finished(self, status: int, output: str) -> Finished:
        (folder,) = (self.root / f"output{self.runs}" / "runs").iterdir()
        written = json.loads((folder / "verdict.json").read_text(encoding="utf-8"))
        metrics = {one["name"]: one["value"] for run in written["runs"] for one in run["metrics"]}
        lines = [each["message"] for each in written["problems"] if each["verdict"] == written["verdict"]]
        problems = tuple(each["message"] for each in written["problems"])
        return Finished(status, written["verdict"], tuple(lines), folder, output, problems, metrics)

    def calibrate(self, partition: str, bound: float = 0.1) -> None:
        """References from a run on the cluster as it is: the goodput of each pair, within `bound`."""
        done = self.run(partition)
        assert done.status == 0, done.output
        file = self.root / "reference_values" / "emulated.yaml"
        known = file.read_text(encoding="utf-8") if file.exists() else ""
        if "NodePairs:" not in known:
            known = HEADER
        goodputs = {name: value for name, value in done.metrics.items() if name.endswith("_goodput")}
        assert goodputs
        lines = [f"    {name}: [{value}, {-bound}, {bound}, Gb/s]" for name, value in goodputs.items()]
        file.write_text("\n".join([known.rstrip("\n"), f"  emulated:{partition}:", *lines, ""]), encoding="utf-8")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    try:
        require_machine()
    except UserError as error:
        pytest.skip(str(error))
    # A name of its own: a cluster that somebody is looking at stays as it is.
    with emulated_cluster(TOPOLOGY, f"test{os.getpid() % 100000}") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """fabricbench with the MPI libraries of the machine, which Slurm's plugins know."""
    folder = tmp_path_factory.mktemp("programs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FABRICHECK_MPI", "machine")
        for name in mpi.NAMES:
            if mpi.find(name) is None:
                pytest.skip(f"needs {name} of the machine (Debian: openmpi-bin libopenmpi-dev mpich libmpich-dev)")
            built = build.build(f"host-{name}", folder=suite_root() / "build" / f"machine-{name}")
            (folder / name).symlink_to(built)
    for name in ("packed", "round-robin"):
        (folder / f"openmpi-{name}").symlink_to(folder / "openmpi")
    return folder


@pytest.fixture(scope="session")
def calibrated(cluster: Cluster, programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The suite with references of what the cluster gave while nothing was wrong."""
    root = tmp_path_factory.mktemp("site")
    (root / "checks").mkdir()
    for name in ("network.py", "group_patterns.py"):
        shutil.copy(suite_root() / "checks" / name, root / "checks")
    shutil.copytree(suite_root() / "config", root / "config")
    shutil.copytree(suite_root() / "site_configs" / "emulated", root / "site_configs" / "emulated")
    (root / "reference_values").mkdir()
    site = Site(cluster, root, programs)
    for partition in ("one-leaf", "two-leaves"):
        site.calibrate(partition)
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
    return file.is_file() and not re.match(r"output\d+/", str(file.relative_to(root)))
