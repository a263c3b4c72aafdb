"""A suite of its own on an emulated cluster: the checks of the network, run, and what came of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabricheck.records.finding import Finding
from fabricheck.suite import suite_root
from fabricheck_lab import node
from fabricheck_lab.cluster import Cluster

TOPOLOGY = suite_root() / "site_configs" / "emulated" / "topology.yaml"
HEADER = """\
$sources:
  healthy: {kind: vendor, source: this cluster before anything was planted}
$provenance:
  NodePairs: healthy
$uncalibrated: {'*': nothing else is compared}
NodePairs:
"""


def line_of(problem: Mapping[str, Any]) -> str:
    """A finding of verdict.json as one line, with code and components at its end: what tests ask for."""
    components = " or ".join(each.text for each in Finding.from_json(problem).components)
    return f"{problem['verdict']}: {problem['message']} [{' '.join(filter(None, (problem['code'], components)))}]"


@dataclass(frozen=True)
class Finished:
    """A run of `fabricheck run` on the cluster. `problems`: all found, those of the session first."""

    status: int
    verdict: str
    folder: Path
    output: str
    problems: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass
class Site:
    """A suite of its own with the checks of the network, on a cluster. With `store`, that keeps what is measured.

    `size`: of the messages; None for those of the check, with latencies (`let_waiting_ranks_sleep`). `asks_nodes`:
    whether nodes are asked for their state, which takes the cores of this machine for some seconds of a run.
    """

    cluster: Cluster
    root: Path
    programs: Path
    store: Path | None = None
    size: str | None = "2MiB"
    asks_nodes: bool = True
    runs: int = 0

    def __post_init__(self) -> None:
        root = suite_root()
        (self.root / "checks").mkdir()
        for name in ("network.py", "group_patterns.py", "application.py"):
            shutil.copy(root / "checks" / name, self.root / "checks")
        (self.root / "src").symlink_to(root / "src")
        shutil.copytree(root / "config", self.root / "config")
        shutil.copytree(root / "site_configs" / "emulated", self.root / "site_configs" / "emulated")
        (self.root / "reference_values").mkdir()

    @property
    def enter(self) -> str:
        """For a shell: the folder of the suite is the current one, and commands use the suite."""
        return f'cd "{self.root}" && export FABRICHECK_SUITE="{self.root}"'

    def let_waiting_ranks_sleep(self) -> None:
        """What ranks that spin on fewer cores wait for is each other, for milliseconds, and not the network."""
        source = node.SOURCES / "yield.cpp"
        library = self.root / "libyield.so"
        subprocess.run(["c++", "-std=c++17", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
        with (self.root / "site_configs/emulated/modulefiles/fabricheck-openmpi").open("a") as module:
            module.write(f"setenv LD_PRELOAD {library}\n")

    def command(
        self, partition: str, *options: str, environment: str = "openmpi", name: str = "NodePairs"
    ) -> list[str]:
        self.runs += 1
        selected = [f"--system=emulated:{partition}", f"--environment={environment}", f"--name={name}"]
        kept = f"--store={self.store}" if self.store else "--no-store"
        where = [f"--built={self.programs}", f"--output={self.root / f'output{self.runs}'}", kept]
        program = [sys.executable, "-m", "fabricheck", "run", *selected, *where]
        # Latencies of more ranks than cores say nothing.
        large = [
            *([] if "--" in options else ["--"]),
            "--setvar=NodePairs.warmup=1",
            *([f"--setvar=NodePairs.sizes=host:{self.size}"] if self.size else []),
            *([] if self.asks_nodes else [f"--setvar={name}.node_state=no"]),
        ]
        return ["sh", "-c", f'{self.enter}; exec "$@"', "sh", *program, *options, *large]

    def run(self, partition: str, *options: str, environment: str = "openmpi", name: str = "NodePairs") -> Finished:
        command = self.command(partition, *options, environment=environment, name=name)
        done = self.cluster.run(command, timeout_s=240)
        return self.finished(done.returncode, done.stdout + done.stderr)

    def finished(self, status: int, output: str) -> Finished:
        (folder,) = (self.root / f"output{self.runs}" / "runs").iterdir()
        assert (folder / "verdict.json").exists(), output
        written = json.loads((folder / "verdict.json").read_text(encoding="utf-8"))
        metrics = {one["name"]: one["value"] for run in written["runs"] for one in run["metrics"]}
        problems = [line_of(each) for each in written["problems"]]
        for run in written["runs"]:
            problems += map(line_of, run["problems"])
            bad = [each for each in run["metrics"] if each["verdict"] != "PASS"]
            problems += [f"{each['verdict']}: {each['name']}: {each['reason']} [{each['code']}]" for each in bad]
        findings = tuple(each["message"] for each in written["findings"])
        return Finished(status, written["verdict"], folder, output, tuple(problems), findings, metrics)

    def calibrate(self, partition: str, bound: float = 0.1) -> None:
        """References from a run on the cluster as it is: the goodput of each pair, within `bound`.

        Of three runs the first green one: an emulated link counts headers of whole segments, up to 64 KiB, and those of
        some pairs are smaller for a while, which costs them 4%.
        """
        done = self.run(partition)
        for _ in range(2):
            done = done if done.status == 0 else self.run(partition)
        assert done.status == 0, done.output
        goodputs = {name: value for name, value in done.metrics.items() if name.endswith("_goodput")}
        assert goodputs
        lines = [f"    {name}: [{value}, {-bound}, {bound}, Gb/s]\n" for name, value in goodputs.items()]
        references = f"{HEADER}  emulated:{partition}:\n{''.join(lines)}"
        (self.root / "reference_values" / "emulated.yaml").write_text(references, encoding="utf-8")
