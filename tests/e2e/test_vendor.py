"""Vendor suites through ReFrame: the Intel MPI Benchmarks for real, and what has to turn red.

OMB and nccl-tests cannot be had from a package registry, so their builds are tried on small stand-ins here: source
trees that fail as the real ones do. docs/vendor-tools.md says what was tried with the real ones, and where.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from fabricheck import mpi
from fabricheck.records.case import Case
from fabricheck.results.fabricbench import read_run
from fabricheck.session.reframe_report import read_cases
from fabricheck.suite import suite_root
from tests.support.files import replace
from tools import build

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.full]

BENCHMARKS = {"PingPong", "Sendrecv", "Alltoall", "Allreduce"}


@dataclass(frozen=True)
class Finished:
    """A run of `fabricheck run`: its exit status, what it said, and the cases by a name for each."""

    status: int
    output: str
    folder: Path
    cases: dict[str, Case]

    def reason(self, name: str) -> str:
        return " ".join((self.cases[name].reason or "").split())


def run(root: Path, *options: str, **variables: str) -> Finished:
    output = root / f"output-{len(list(root.glob('output-*')))}"
    command = [sys.executable, "-m", "fabricheck", "run", "--system=local", "--environment=mpich"]
    job = subprocess.run(
        [*command, f"--built={root / 'built'}", f"--output={output}", *options],
        cwd=root,
        env={**os.environ, "FABRICHECK_SUITE": str(root), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    folders = list((output / "runs").glob("local-*"))
    assert len(folders) == 1, job.stdout + job.stderr
    cases = {}
    for case in read_cases(folders[0] / "reframe.json"):
        cases[str(case.attributes.get("operation") or case.attributes.get("bench") or case.test)] = case
    return Finished(job.returncode, job.stdout + job.stderr, folders[0], cases)


@pytest.fixture(scope="module")
def imb() -> Path:
    """The prefix with the Intel MPI Benchmarks: what the site says, else what `make test` has unpacked."""
    prefix = Path(os.environ.get("FABRICHECK_IMB") or Path(sys.prefix) / "mpi" / "impi")
    if not (prefix / "bin" / "IMB-MPI1").is_file():
        pytest.skip("needs the Intel MPI Benchmarks: `make test` brings them")
    if mpi.find("mpich") is None:
        pytest.skip("needs MPICH: `make test` brings it")
    return prefix


def copy_suite(root: Path, check: str, **edits: str) -> Path:
    """A suite with one check file, in which what has to be there is replaced; the rest is this repository's."""
    (root / "checks").mkdir(parents=True)
    shutil.copy(suite_root() / "checks" / check, root / "checks")
    for old, new in edits.items():
        replace(root / "checks" / check, old, new)
    shutil.copytree(suite_root() / "config", root / "config")
    shutil.copytree(suite_root() / "site_configs" / "local", root / "site_configs" / "local")
    (root / "src").symlink_to(suite_root() / "src")
    for folder in ("reference_values", "built"):
        (root / folder).mkdir()
    (root / "built" / "mpich").symlink_to(build.build("host-mpich", tests=False))
    return root


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory, imb: Path) -> Path:
    return copy_suite(tmp_path_factory.mktemp("imb") / "suite", "vendor_imb.py", **{"1B:4MiB": "1B:256KiB"})


@pytest.fixture(scope="module")
def measured(suite: Path, imb: Path) -> Finished:
    return run(suite, FABRICHECK_IMB=str(imb))


def test_imb_is_measured_and_judged_for_real(measured: Finished) -> None:
    assert measured.status == 0, measured.output
    assert set(measured.cases) >= BENCHMARKS
    for name in BENCHMARKS:
        (file,) = measured.cases[name].result_files()
        result = read_run(file)
        assert result.problems == ()
        assert result.header["program"] == f"IMB-MPI1 {name}"
        assert result.header["libraries"]["mpi"]["name"] == "MPICH"
        assert len(result.ranks) >= 2
        assert {each.statistic for each in result.samples} == {"mean"}
    sizes = [each.bytes for each in read_run(measured.cases["PingPong"].result_files()[0]).samples]
    assert sizes == [4**power for power in range(10)]


def test_the_judge_says_that_the_wheel_does_not_check_its_data(measured: Finished) -> None:
    for name in BENCHMARKS:
        (file,) = measured.cases[name].result_files()
        assert read_run(file).header["plan"]["verify"] == "off"


# What stands between the program and its output, by benchmark, with the verdict and what it has to say.
PLANTED = {
    "PingPong": ("sed '/^ *1024 /d'", "INCOMPLETE", "pingpong"),
    "Sendrecv": ("sed 's/^ *1024 /        2048 /'", "INVALID", "2048"),
    "Alltoall": ("sed 's/^\\( *1024  *[0-9]*  *\\)[0-9.]*/\\1     nan/'", "INVALID", "nan"),
    "Allreduce": ("sed '$!b;q1'", "INCOMPLETE", "exit status"),
}


@pytest.fixture(scope="module")
def planted(suite: Path, imb: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A run with a program in front of the real one that spoils its output, for each benchmark in another way."""
    prefix = tmp_path_factory.mktemp("planted")
    cases = "\n".join(f"  {name}) {edit};;" for name, (edit, *_) in PLANTED.items())
    program = prefix / "bin" / "IMB-MPI1"
    program.parent.mkdir()
    program.write_text(f'#!/bin/bash\nset -o pipefail\n"{imb}/bin/IMB-MPI1" "$@" | case $1 in\n{cases}\nesac\n')
    program.chmod(0o755)
    return run(suite, FABRICHECK_IMB=str(prefix))


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_red(name: str, planted: Finished) -> None:
    _, verdict, said = PLANTED[name]
    assert planted.status == 5, planted.output
    assert planted.cases[name].result == "fail"
    assert f"error: {verdict}: " in planted.reason(name), planted.reason(name)
    assert said in planted.reason(name)


def stand_in(folder: Path, **files: str) -> Path:
    """A tarball that looks like the source of OMB."""
    tree = folder / "osu-micro-benchmarks-0"
    tree.mkdir(parents=True)
    for name, text in {"configure": "#!/bin/sh\n", **files}.items():
        (tree / name).write_text(text)
        (tree / name).chmod(0o755)
    file = folder / "osu-micro-benchmarks-0.tar.gz"
    with tarfile.open(file, "w:gz") as tar:
        tar.add(tree, tree.name)
    return file


@pytest.fixture(scope="module")
def osu_suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if mpi.find("mpich") is None:
        pytest.skip("needs MPICH: `make test` brings it")
    return copy_suite(tmp_path_factory.mktemp("osu") / "suite", "vendor_osu.py")


ONE = "--name=OsuPairs.*%bench=latency"


def test_a_build_that_fails_shows_its_first_error_and_the_known_cause(osu_suite: Path, tmp_path: Path) -> None:
    source = "int cudaMemPrefetchAsync(int);\nint main(void) { return cudaMemPrefetchAsync(1, 2); }\n"
    makefile = "all: osu.o\nosu.o: osu.c\n\tcc -c osu.c\ninstall:\n"
    tarball = stand_in(tmp_path, **{"osu.c": source, "Makefile": makefile})
    done = run(osu_suite, ONE, FABRICHECK_OSU=str(tarball))
    assert done.status == 4, done.output
    reason = " ".join(done.reason(next(name for name in done.cases if name.startswith("BuildOsu"))).split())
    assert "INCOMPLETE: OSU Micro-Benchmarks does not build" in reason
    assert "osu.c:2:" in reason
    assert "error: too many arguments to function" in reason
    assert "Known cause: CUDA 13 changed cudaMemPrefetchAsync" in reason


def test_two_benchmarks_interleaved(imb: Path, tmp_path: Path) -> None:
    """The job alternates and both are read; whether they agree is no matter on a machine that others use too."""
    edits = {"8B:32MiB": "1KiB:64KiB", '"bidirectional", "alltoall", "allreduce"]': '"alltoall"]'}
    root = copy_suite(tmp_path / "suite", "cross_check.py", **edits)
    settings = root / "site_configs" / "local" / "settings.py"
    replace(settings, '"launcher": "mpirun",', '"launcher": "mpirun", "features": ["exclusive"],')
    done = run(root, "--name=CrossCheckImb", FABRICHECK_IMB=str(imb))
    assert done.status == 0, done.output
    # The share of a rank of 64 KiB is 32 KiB, and sizes go up by four.
    for operation, sizes in (("pingpong", 4), ("alltoall", 3)):
        folder = done.cases[operation].folder
        assert folder is not None
        lines = (folder / "ratios.md").read_text().splitlines()[2:]
        assert len(lines) == sizes
        assert all("nan" not in line and line.endswith("| PASS |") for line in lines)
