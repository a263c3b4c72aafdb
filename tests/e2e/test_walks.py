"""From a page to its answer, command by command as a person pastes them."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from fabricheck.suite import suite_root
from tests.support.bench import built
from tests.support.nightly_store import write_nights
from tests.support.schedulers import knows
from tests.support.toy import ToySuite

ROOT = suite_root()  # before a test chooses another suite

pytestmark = [pytest.mark.e2e, pytest.mark.quiet]


def paste(lines: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **variables}
    command = ["bash", "-c", lines]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=400
    )


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Laptop:
    """A folder with a session of this machine below `out`, and what `fabricheck run` wrote."""

    folder: Path
    job: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def laptop(tmp_path_factory: pytest.TempPathFactory) -> Laptop:
    folder = tmp_path_factory.mktemp("laptop")
    programs = folder / "built" / "openmpi"
    programs.mkdir(parents=True)
    shutil.copy(built("openmpi").program, programs)
    run = "fabricheck run --tag smoke --environment openmpi --output out --built built"
    return Laptop(folder, paste(run, folder))


@pytest.mark.full
def test_a_laptop(laptop: Laptop) -> None:
    """What `make demo` runs, with fewer tests, and the sample of README."""
    assert laptop.job.returncode in (0, 4), laptop.job.stdout + laptop.job.stderr
    said = laptop.job.stdout.splitlines()
    assert said[0].startswith("local: smoke")
    (folder,) = (laptop.folder / "out" / "runs").glob("local-*")
    assert said[-1].endswith(str(folder / "report.html")) and (folder / "report.html").is_file()
    if laptop.job.returncode == 0:  # 4: others keep this machine busy
        (sample,) = re.findall(r"^```\n…\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
        tests, total = sample.partition("PASS        ")[::2]
        assert all(re.match(r"\d+/\d+ +\w+ mpi +PASS +[\d.]+ Gb/s", line) for line in tests.splitlines())
        output = re.sub(r"RFM_PREFIX=\S+ ", "", laptop.job.stdout)  # of a folder for results, which `make demo` has not
        require_lines("README.md", ["PASS", *total.splitlines()], output)
    for output, words in (("out", "2 took"), ("new", "2 take at most")):
        listed = paste(f"fabricheck run --list --tag smoke --environment openmpi --output {output}", laptop.folder)
        assert f"2 tests: {words}" in listed.stderr


@pytest.mark.full
def test_the_samples_of_a_first_run(laptop: Laptop, tmp_path: Path) -> None:
    """The red run of the page and its explanation."""
    for (command, lines), status in zip(samples("first-run.md"), (3, 0), strict=True):
        built_here = command.replace(" -- ", f" --built {laptop.folder / 'built'} -- ")
        check_sample("first-run.md", built_here, tmp_path, lines, status=status)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of this machine below `sites`; the samples by which it came are checked."""
    folder = tmp_path_factory.mktemp("site")
    for command, lines in [*samples("your-system.md")][:3]:
        check_sample("your-system.md", command, folder, lines, FABRICHECK_SITES=str(folder / "sites"))
    return folder


def test_the_samples_of_a_new_system(site: Path) -> None:
    assert (site / "sites" / "site_configs" / "mysite" / "topology.yaml").is_file()


#: Preloaded by the new stack; the first does nothing.
LIBRARIES = {
    "calm": "int calm(void) { return 0; }",
    "slow": """
#include <mpi.h>
#include <unistd.h>
int MPI_Allreduce(const void* a, void* b, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  usleep(100);
  return PMPI_Allreduce(a, b, count, type, op, comm);
}
""",
}
NEW_STACK = """
new = {{**site_configuration["environments"][0], "name": "openmpi-next", "env_vars": [["LD_PRELOAD", "{preload}"]]}}
site_configuration["environments"].append(new)
site_configuration["systems"][0]["partitions"][0]["environs"].append("openmpi-next")
"""


@pytest.mark.full
def test_the_sample_of_an_upgrade(site: Path, laptop: Laptop) -> None:
    """Of two libraries that the new stack preloads the slow one is named, by an exchange."""
    preload = []
    for name, source in LIBRARIES.items():
        (site / "next" / name).mkdir(parents=True)
        preload.append(str(site / "next" / name / f"lib{name}.so"))
        (site / f"{name}.c").write_text(source)
        compiled = paste(f"mpicc.openmpi -shared -fPIC -o {preload[-1]} {name}.c", site)
        assert compiled.returncode == 0, compiled.stderr
    for name in ("openmpi", "openmpi-next"):
        shutil.copytree(laptop.folder / "built" / "openmpi", site / "built" / name)
    with (site / "sites" / "site_configs" / "mysite" / "settings.py").open("a") as settings:
        settings.write(NEW_STACK.format(preload=":".join(preload)))
    command, lines = next(samples("after-an-upgrade.md"))
    quick = "-- --setvar=Collectives.operations=allreduce --setvar=Collectives.budget=0.05"
    command += f" --name ^Collectives% --built built {quick}"
    (calm,) = [line for line in lines if "same: libcalm:" in line]
    lines.remove(calm)
    said = check_sample("after-an-upgrade.md", command, site, lines, status=1, FABRICHECK_SITES=str(site / "sites"))
    assert re.search("(same|cannot say): libcalm:", said)  # neither blames; noise decides which it is


@pytest.mark.full
def test_a_site_with_its_own_reframe(tmp_path: Path) -> None:
    """Its settings are taken as they are; with the topology that `init` writes, what they measure is judged."""
    settings = tmp_path / "theirs.py"
    settings.write_text(
        """site_configuration = {
    "systems": [{"name": "mycluster", "hostnames": [".*"], "partitions": [
        {"name": "login", "scheduler": "local", "launcher": "mpirun", "environs": ["gnu"], "max_jobs": 1}]}],
    "environments": [{"name": "gnu", "features": ["mpi"], "target_systems": ["mycluster"]}],
}
"""
    )
    text = page("your-own-reframe.md")
    (line,) = re.findall(r"^reframe -C theirs.py .* -r$", text, re.MULTILINE)
    listed = paste(f"{line[:-2]}-l", tmp_path)
    assert listed.returncode == 0 and "EveryMessage %transport=mpi" in listed.stdout, listed.stdout + listed.stderr
    assert "`fabricheck init`" in listed.stderr
    # What init cannot know is written into its files; those of the site stay theirs.
    (lines,) = re.findall(r"^(mkdir -p mysites.*?)^(fabricheck run .*?)$", text, re.MULTILINE | re.DOTALL)
    assert len("".join(lines).splitlines()) == 4 and "Four commands" in text
    done = paste(f"set -e\n{lines[0]}", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    kept = tmp_path / "mysites" / "site_configs" / "mycluster" / "settings.py"
    assert kept.read_text() == settings.read_text()
    (tmp_path / "built" / "gnu").mkdir(parents=True)
    shutil.copy(built("openmpi").program, tmp_path / "built" / "gnu")
    run = lines[1].replace("--tag smoke", "--name EveryMessage --output out --built built")
    job = paste(f"fabricheck validate --site mysites --system mycluster && {run}", tmp_path)
    (verdict,) = (json.loads(file.read_text()) for file in tmp_path.glob("out/runs/*/verdict.json"))
    assert job.returncode == verdict["exit_status"] and verdict["runs"][0]["metrics"], job.stdout + job.stderr
    assert verdict["verdict"] in ("PASS", "INCOMPLETE")  # the second where others keep this machine busy


#: What differs between two runs of a sample: folders, and digits, of which a row of a table has more or fewer.
_VARIES = re.compile(r"(?:[\w.~-]*/)+|\b[0-9a-f]{8}(-[0-9a-f]+)*\b|\bx?\d\w*|\W+")


def shape(line: str) -> str:
    return " ".join(_VARIES.sub(" ", line).split())


def samples(name: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a page that have their output below them, and the lines of it."""
    blocks = re.findall(r"^```\n(\$ .*?)^```", page(name), re.MULTILINE | re.DOTALL)
    for sample in "".join(blocks).removeprefix("$ ").split("\n$ "):
        command, *lines = sample.splitlines()
        yield command, [line.removesuffix("…") for line in lines]


def check_sample(
    name: str, command: str, folder: Path, lines: Sequence[str], *, status: int = 0, **variables: str
) -> str:
    """Run a command; the lines of the sample stand in its output, which is returned."""
    job = paste(command, folder, RFM_PREFIX=str(folder), COLUMNS="80", **variables)
    assert job.returncode == status, job.stdout + job.stderr
    require_lines(name, lines, job.stdout)
    return job.stdout


def require_lines(name: str, lines: Sequence[str], output: str) -> None:
    """The lines of a sample stand in an output in their order, but for what varies and where a terminal breaks them."""
    printed, at = " ".join(map(shape, output.replace(platform.node(), "vm").splitlines())), 0
    for line in lines:
        at = printed.find(shape(line), at)
        assert at >= 0, f"{name}: {line}\n{output}"


@pytest.mark.parametrize(
    ("name", "status"), [("every-night.md", (0, 1)), ("after-an-upgrade.md", (1,)), ("your-system.md", (0,))]
)
def test_the_samples_of_a_history(name: str, status: Sequence[int], tmp_path: Path) -> None:
    """Of the recorded sessions of two H100 night after night; the last eight have an NCCL that is 6% slower."""
    write_nights(tmp_path / "store", 0 if name == "your-system.md" else 8)
    of_history = [(command, lines) for command, lines in samples(name) if "hgx-h100" in command or "store" in command]
    for (command, lines), expected in zip(of_history, status, strict=True):
        check_sample(name, command, tmp_path, lines, status=expected)


def damage(toy: ToySuite) -> None:
    """Has the next run of it find a wrong byte."""
    lines = toy.result.read_text().splitlines(keepends=True)
    lines[1], lines[-1] = (line.replace('"wrong_bytes":0', '"wrong_bytes":1') for line in (lines[1], lines[-1]))
    toy.result.write_text("".join(lines))


def test_printed_commands_find_the_site_and_the_output(toy: ToySuite, tmp_path: Path) -> None:
    damage(toy)
    shutil.move(toy.suite.root / "site_configs", tmp_path / "mysites" / "site_configs")
    (toy.suite.root / "site_configs").mkdir()
    (toy.suite.root / "ci").symlink_to(ROOT / "ci")
    job = paste("fabricheck run --system toy --site mysites --output out", tmp_path)
    assert job.returncode == 3, job.stdout + job.stderr
    (explain,) = re.findall("^next: (.* explain .*)$", job.stdout, re.MULTILINE)
    explained = paste(explain, tmp_path)
    commands = re.findall(r": ((?:RFM_PREFIX=\S+ )?fabricheck .*)$", explained.stdout, re.MULTILINE)
    assert {words.split()[3] for words in commands} == {"doctor", "bundle"}
    for command in commands:
        done = paste(command, tmp_path)
        assert done.returncode in (0, 1, 4), done.stderr  # doctor: of another node than the toy's
    (drain,) = re.findall(r": (.*ci/drain.py .*)$", explained.stdout, re.MULTILINE)
    knows(tmp_path / "slurm", "nid001")
    done = paste(f"PATH={tmp_path / 'slurm'}:$PATH {drain}", tmp_path)
    assert done.returncode == 0 and "NodeName=nid001" in done.stdout, done.stderr


def test_a_ci_job(toy: ToySuite, tmp_path: Path) -> None:
    """GitLab's job as it stands, but for the set-up, with a site of its own: its status is the verdict's, and its files
    are kept when it is red."""
    toy.check.write_text(toy.check.read_text().replace('tags = {"toy"}', 'tags = {"nightly"}'))
    damage(toy)
    shutil.move(toy.suite.root / "site_configs", tmp_path / "sites" / "site_configs")
    (toy.suite.root / "site_configs").mkdir()
    job = YAML(typ="safe").load(ROOT / "ci" / "gitlab.yml")["fabricheck"]
    set_up, measure = job["script"]
    assert (ROOT / set_up.split()[0]).is_file()
    variables = {name: value.replace("$CI_PROJECT_DIR", str(tmp_path)) for name, value in job["variables"].items()}
    given = {
        "FABRICHECK_SYSTEM": "toy",
        "FABRICHECK_SITES": str(tmp_path / "sites"),
        "FABRICHECK_OUTPUT": str(toy.output),
        "FABRICHECK_OPTIONS": "",
    }
    done = paste(measure, ROOT, **variables, **given)
    assert done.returncode == 3, done.stdout + done.stderr
    assert job["artifacts"]["when"] == "always"
    (kept,) = job["artifacts"]["paths"]
    assert {"report.html", "verdict.json", "junit.xml"} <= {file.name for file in (tmp_path / kept).iterdir()}
    junit = (tmp_path / job["artifacts"]["reports"]["junit"]).read_text()
    assert "<failure" in junit


@pytest.mark.full
def test_a_vendor_with_the_bundle(laptop: Laptop, tmp_path: Path) -> None:
    """REPRODUCE.md alone says which file is the run, and builds the benchmark and measures the same again where no
    Fabricheck is; then both are judged."""
    (folder,) = (laptop.folder / "out" / "runs").glob("local-*")
    job = paste(f"fabricheck report {folder} --output acceptance.html", tmp_path)
    assert job.stdout.startswith(json.loads((folder / "verdict.json").read_text())["verdict"]), job.stderr
    assert "SmokeLibraries" in (tmp_path / "acceptance.csv").read_text()
    job = paste(f"fabricheck bundle {folder} --hide-names --output bundle.tar.gz", tmp_path)
    assert job.returncode == 0, job.stderr
    with tarfile.open(tmp_path / "bundle.tar.gz") as archive:
        archive.extractall(tmp_path / "vendor")
    (vendor,) = (tmp_path / "vendor").iterdir()
    sources = ROOT / "src"
    assert all((vendor / "src" / file.relative_to(sources)).is_file() for file in sources.rglob("*") if file.is_file())
    cmake = tmp_path / "bin" / "cmake"
    cmake.parent.mkdir()
    cmake.symlink_to(str(shutil.which("cmake")))
    text = (vendor / "REPRODUCE.md").read_text()
    assert "three commands" in page("when-it-is-red.md")
    *launches, judge = re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len([line for line in launches[0].splitlines() if not line.startswith("export ")]) == 3
    bare = {"PATH": f"{cmake.parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    for launch in ("! command -v fabricheck && ! python3 -c 'import fabricheck' 2>/dev/null", *launches):
        job = subprocess.run(
            ["bash", "-ec", launch], cwd=vendor, env=bare, capture_output=True, text=True, check=False, timeout=400
        )
        assert job.returncode == 0, job.stdout + job.stderr
    for line in judge.splitlines():
        job = paste(line, vendor)
        assert job.returncode == 0, job.stdout + job.stderr
        assert "@local:default+openmpi" in job.stdout
