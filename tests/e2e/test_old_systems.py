"""What RHEL 8 and 9 (glibc 2.28, GCC 8.5, Python 3.11) have is enough; none of their images is needed for that."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.bench import built

GLIBC = (2, 28)
LIBSTDCXX = (3, 4, 25)
# Older libraries have them by another version of the symbol or in another file of glibc (its NEWS for 2.32 to 2.34) …
MOVED = {
    "__libc_start_main",
    "dlerror",
    "dlopen",
    "dlsym",
    "pthread_once",
    "pthread_sigmask",
    "shm_open",
    "shm_unlink",
    "stat",
}
# … and these are called by inline functions of newer headers of libstdc++ alone.
OF_HEADERS = {
    "__libc_single_threaded",
    "pthread_cond_clockwait",
    "_ZSt28__throw_bad_array_new_lengthv",
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE",
    "_ZNSt28__atomic_futex_unsigned_base26_M_futex_wait_until_steadyEPjjbNSt6chrono8durationIlSt5ratioILl1ELl1EEEENS2_IlS3_ILl1ELl1000000000EEEE",
}


def newer_symbols(program: Path) -> set[str]:
    """The symbols of glibc and libstdc++ in a program whose versions are newer than those of RHEL 8."""
    table = subprocess.run(["objdump", "-T", program], capture_output=True, text=True, check=True).stdout
    symbols = re.findall(r"\((GLIBC|GLIBCXX)_([0-9.]+)\)\s+(\S+)", table)
    assert len(symbols) > 50
    newest = {"GLIBC": GLIBC, "GLIBCXX": LIBSTDCXX}
    return {name for library, version, name in symbols if numbers(version) > newest[library]}


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@pytest.mark.e2e
def test_the_program_calls_nothing_that_glibc_and_libstdcxx_of_rhel_8_lack() -> None:
    assert newer_symbols(built("openmpi").program) <= MOVED | OF_HEADERS


def needed(name: str, known: set[str]) -> Iterator[importlib.metadata.Distribution]:
    """The distribution `name` and all that it needs at run time."""
    distribution = importlib.metadata.distribution(name)
    if distribution.name in known:
        return
    known.add(distribution.name)
    yield distribution
    for requirement in map(Requirement, distribution.requires or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield from needed(requirement.name, known)


def test_the_wheels_that_are_tested_fit_glibc_of_rhel_8() -> None:
    """A wheel's tags say from which glibc on it runs; `manylinux2014` is 2.17."""
    wheels = {each.name: each.read_text("WHEEL") or "" for each in needed("fabricheck", set())}
    tags = {name: re.findall(r"manylinux_(\d+)_(\d+)", text) for name, text in wheels.items() if "linux" in text}
    assert {"numpy", "polars-runtime-32", "scipy"} <= {*tags}
    assert {name: pairs for name, pairs in tags.items() if min((int(a), int(b)) for a, b in pairs) > GLIBC} == {}
