"""src/build_once.sh: when a program is built again and when it is not. The compilers and CMake are stand-ins."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import pytest

from fabricheck.building import FABRICBENCH, build_command, build_fabricbench_command, cache_folder
from fabricheck.suite import suite_root
from tests.support.users import SOMEONE, give

CMAKE = """#!/bin/sh
case $1 in
--version) echo cmake version 3.30 ;;
-S) [ -e "$2/CMakeLists.txt" ] ;;
--build)
    echo built >>"BUILDS"
    [ ! -e "FAIL" ] || exit 1
    echo program >"$2/fabricbench"
    chmod +x "$2/fabricbench"
    sleep "${SLOW:-0}"
    ;;
esac
"""
LDD = '#!/bin/sh\n[ ! -e "GONE" ] || echo "libmpi.so.40 => not found"\n'
MPICXX = '#!/bin/sh\ncase "$*" in *-dM*) echo "#define MPI_LIBRARY_VERSION 5" ;; *) echo g++ -I/opt/mpi ;; esac\n'


@dataclass(frozen=True)
class Machine:
    """A machine whose compilers are scripts below `bin`, and a source tree."""

    folder: Path

    @property
    def cache(self) -> Path:
        return self.folder / "cache"

    def script(self, name: str, text: str) -> None:
        file = self.folder / "bin" / name
        file.write_text(text)
        file.chmod(0o755)

    def start(self, name: str = "built", *options: str, **variables: str) -> subprocess.Popen[str]:
        """`name`: of the folder that it leaves the program in."""
        script = suite_root() / "src" / "build_once.sh"
        places = [str(self.folder / each) for each in ("src", "cache", name)]
        command = ["sh", str(script), "fabricbench", *places, FABRICBENCH, *options]
        path = f"{self.folder / 'bin'}:/usr/bin:/bin"
        environment = {"PATH": path, "HOME": "/nowhere", **variables}
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder
        )

    def build(self, *options: str, **variables: str) -> str:
        """What it says of a build that goes well."""
        process = self.start("built", *options, **variables)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, said
        assert (self.folder / "built" / "fabricbench").is_file()
        return said

    def refuse(self, *options: str, **variables: str) -> str:
        process = self.start("built", *options, **variables)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 1
        assert not (self.folder / "built").exists()
        return said

    @property
    def builds(self) -> int:
        file = self.folder / "builds"
        return len(file.read_text().splitlines()) if file.exists() else 0

    @property
    def kept(self) -> list[str]:
        """Names in the cache, of what is finished and of what is not."""
        return [each.name.partition("-")[0] for each in self.cache.iterdir()]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    found = Machine(tmp_path)
    for folder in ("bin", "src/fabricbench", "src/tests"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("src/CMakeLists.txt", "src/fabricbench/main.cpp", "src/tests/test.cpp"):
        (tmp_path / file).write_text("1")
    places = {name: str(tmp_path / name.lower()) for name in ("BUILDS", "FAIL", "GONE")}
    for script, text in {"cmake": CMAKE, "ldd": LDD}.items():
        found.script(script, reduce(lambda said, place: said.replace(*place), places.items(), text))
    found.script("c++", "#!/bin/sh\necho c++ 12.2\n")
    found.script("mpicxx", MPICXX)
    return found


def test_it_is_built_once(machine: Machine) -> None:
    machine.build("-DFABRICHECK_BACKEND=host")
    (machine.folder / "built" / "fabricbench").unlink()
    assert "was built before" in machine.build("-DFABRICHECK_BACKEND=host")
    assert machine.builds == 1


CHANGES = {
    "a source": ("src/fabricbench/main.cpp", "2"),
    "another source": ("src/fabricbench/more.hpp", ""),
    "the compiler": ("bin/c++", "#!/bin/sh\necho c++ 13.1\n"),
    "the version of MPI": ("bin/mpicxx", MPICXX.replace("VERSION 5", "VERSION 6")),
    "the place of MPI": ("bin/mpicxx", MPICXX.replace("/opt/mpi", "/opt/other")),
    "the architecture": ("bin/uname", "#!/bin/sh\necho Linux aarch64\n"),
}


@pytest.mark.parametrize(("place", "text"), CHANGES.values(), ids=CHANGES)
def test_it_is_built_again_where_something_is_another(machine: Machine, place: str, text: str) -> None:
    machine.build()
    (machine.folder / place).write_text(text)
    (machine.folder / place).chmod(0o755)
    machine.build()
    assert machine.builds == 2
    assert machine.kept == ["fabricbench", "fabricbench"]


def test_options_and_modules_that_are_loaded_count(machine: Machine) -> None:
    machine.build(LOADEDMODULES="gcc/12")
    machine.build(LOADEDMODULES="gcc/13")
    machine.build("-DMORE=ON", LOADEDMODULES="gcc/13")
    assert machine.builds == 3


def test_unit_tests_are_not_part_of_it(machine: Machine) -> None:
    machine.build()
    (machine.folder / "src/tests/test.cpp").write_text("2")
    machine.build()
    assert machine.builds == 1


def test_two_at_once_leave_one_whole_folder(machine: Machine) -> None:
    """Both build, since neither can see that the other will succeed, and both have their program."""
    both = [machine.start(name, SLOW="1") for name in ("first", "second")]
    said = [each.communicate(timeout=60)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0], said
    assert machine.kept == ["fabricbench"]
    assert (machine.folder / "first" / "fabricbench").is_file() and (
        machine.folder / "second" / "fabricbench"
    ).is_file()


def test_a_build_that_fails_leaves_nothing(machine: Machine) -> None:
    (machine.folder / "fail").touch()
    machine.refuse()
    assert machine.kept == []
    (machine.folder / "fail").unlink()
    machine.build()


def test_a_program_that_lost_a_library_is_built_again(machine: Machine) -> None:
    machine.build()
    (machine.folder / "gone").touch()
    assert "lost a library" in machine.build()
    assert machine.builds == 2


@pytest.mark.parametrize("damage", [b"", b"other"])
def test_a_damaged_program_is_built_again(machine: Machine, damage: bytes) -> None:
    machine.build()
    (kept,) = machine.cache.glob("fabricbench-*/installed/fabricbench")
    kept.write_bytes(damage)
    assert "is damaged" in machine.build()
    assert (machine.folder / "built" / "fabricbench").read_text() == "program\n"
    assert "was built before" in machine.build()
    assert machine.kept == ["fabricbench"]


def plant(machine: Machine) -> Path:
    """What another user leaves under the right name: a program of their own, with its sums."""
    (folder,) = machine.cache.glob("fabricbench-*")
    program = folder / "installed" / "fabricbench"
    program.write_text("#!/bin/sh\necho planted\n")
    done = subprocess.run(
        ["sha256sum", "./fabricbench"], cwd=program.parent, capture_output=True, text=True, check=True
    )
    (folder / "sums.txt").write_text(done.stdout)
    return folder


def test_a_planted_program_is_not_taken(machine: Machine, public: Path) -> None:
    """By its owner, where anybody may make folders in the cache; or by its mode."""
    machine.cache.mkdir()
    machine.cache.chmod(0o1777)
    machine.build()
    for planting in (give, lambda folder: (folder / "installed" / "fabricbench").chmod(0o777)):
        planting(plant(machine))
        assert "could have been changed by another user" in machine.build()
        assert (machine.folder / "built" / "fabricbench").read_text() == "program\n"
        assert "was built before" in machine.build()
    assert machine.builds == 3


@pytest.mark.parametrize(("owner", "mode"), [(SOMEONE, 0o755), (SOMEONE, 0o1777), (0, 0o777), (0, 0o775)])
def test_a_cache_that_is_another_user_s_is_not_used(machine: Machine, public: Path, owner: int, mode: int) -> None:
    machine.build()
    plant(machine)
    os.chown(machine.cache, owner, owner)
    machine.cache.chmod(mode)
    said = machine.build()
    # Root's own is closed instead.
    assert ("is not kept there" in said) == (owner == SOMEONE)
    assert (machine.cache.stat().st_mode & 0o1000 == 0o1000) == (owner == 0 or mode == 0o1777)
    give(machine.cache, 0)
    if owner == SOMEONE:
        assert (machine.folder / "built" / "fabricbench").read_text() == "program\n"
        assert machine.builds == 2
    assert not [*(machine.folder / "built").glob(".building*")]


def test_one_that_never_had_its_libraries_here_is_kept(machine: Machine) -> None:
    """As on a login node without the GPU's driver."""
    (machine.folder / "gone").touch()
    machine.build()
    machine.build()
    assert machine.builds == 1


def test_what_is_missing_is_said_in_one_line(machine: Machine) -> None:
    said = machine.refuse("-DCMAKE_CXX_COMPILER=CC")
    assert said.startswith("fabricheck: there is no C++ compiler CC on the PATH")
    assert said.count("\n") == 1
    shutil.rmtree(machine.folder / "src")
    assert "there is no folder" in machine.refuse()


def test_a_cache_that_cannot_be_written(machine: Machine) -> None:
    machine.cache.write_text("a file")
    said = machine.refuse().splitlines()
    assert "set FABRICHECK_CACHE" in said[-1]
    assert machine.builds == 0


def test_where_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FABRICHECK_CACHE", raising=False)
    monkeypatch.setenv("RFM_PREFIX", str(tmp_path))
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.setenv("FABRICHECK_CACHE", str(tmp_path / "shared"))
    assert cache_folder() == tmp_path / "shared"


def test_the_command_survives_a_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blanks in paths are kept, and variables of the options are those of the job."""
    monkeypatch.setenv("FABRICHECK_CACHE", str(tmp_path / "a cache"))
    monkeypatch.setenv("ROOT", "/opt/nccl")
    words = build_fabricbench_command(tmp_path / "a place", ['-DNCCL_ROOT="$ROOT"', "'-DGPU_TARGETS=gfx90a;gfx942'"])
    shown = subprocess.run(["sh", "-c", f"printf '%s\\n' {words}"], capture_output=True, text=True, check=True)
    root = suite_root() / "src"
    assert shown.stdout.splitlines() == [
        "sh",
        str(root / "build_once.sh"),
        "fabricbench",
        str(root),
        str(tmp_path / "a cache"),
        str(tmp_path / "a place"),
        FABRICBENCH,
        "-DNCCL_ROOT=/opt/nccl",
        "-DGPU_TARGETS=gfx90a;gfx942",
    ]


def test_commands_find_a_copy_of_the_sources_and_what_they_leave_is_kept(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As vendor suites are built: again where the commands are others, and with their exit status where they fail."""

    monkeypatch.setenv("FABRICHECK_CACHE", str(machine.cache))

    def build(commands: str) -> int:
        words = build_command("osu", machine.folder / "src", machine.folder / "made", commands, ())
        variables = {"PATH": f"{machine.folder / 'bin'}:/usr/bin:/bin"}
        return subprocess.run(["sh", "-c", words], env=variables, check=False).returncode

    once = (
        'cp -a "$sources/." . && echo built >>../../../builds && mkdir "$prefix/bin" && cp */main.cpp "$prefix/bin/osu"'
    )
    assert [build(once), build(once)] == [0, 0]
    assert (machine.folder / "made" / "bin" / "osu").read_text() == "1"
    assert machine.builds == 1
    assert build(once.replace("built", "again")) == 0
    assert machine.builds == 2
    assert build("exit 7") == 7
    assert machine.kept == ["osu", "osu"]


def test_it_is_a_shell_script() -> None:
    """Of no particular shell: it runs in the environment of any job."""
    shells = [found for found in map(shutil.which, ("dash", "bash", "busybox")) if found]
    script = suite_root() / "src" / "build_once.sh"
    for shell in shells:
        command = [shell, *(["sh"] if shell.endswith("busybox") else []), "-n", str(script)]
        assert subprocess.run(command, check=False, env=dict(os.environ)).returncode == 0
