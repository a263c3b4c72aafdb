"""ci/prolog.sh on a node whose driver is slow, and with another's job on one of its GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fabricheck.suite import suite_root

pytestmark = [pytest.mark.e2e, pytest.mark.full]

#: Stands for the NVML of a node with four GPUs: its first call takes SLOW seconds, as where no persistence daemon keeps
#: the driver in use; another's process is on GPU 0; MISSING GPUs are not there, and one may run at a lower PCIe width.
NVML = """
import importlib.util, os, sys, time
from types import SimpleNamespace as S
place = next(p for p in sys.path if os.path.exists(os.path.join(p, "pynvml.py")) and p != os.path.dirname(__file__))
spec = importlib.util.spec_from_file_location("pynvml", os.path.join(place, "pynvml.py"))
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
def refuse(*_): raise module.NVMLError(module.NVML_ERROR_NOT_SUPPORTED)
for name in [n for n in vars(module) if n.startswith("nvmlDevice") or n.startswith("nvmlSystem")]:
    setattr(module, name, refuse)
GPUS = 4 - int(os.environ.get("MISSING", 0))
def width(gpu): return 8 if gpu == 2 and "NARROW" in os.environ else 16
module.nvmlInit = lambda: time.sleep(float(os.environ["SLOW"]))
module.nvmlShutdown = lambda: None
module.nvmlDeviceGetCount = lambda: GPUS
module.nvmlDeviceGetHandleByIndex = lambda index: index
module.nvmlDeviceGetName = lambda gpu: "NVIDIA GH200 120GB"
module.nvmlDeviceGetPciInfo = lambda gpu: S(busId=f"00000000:{gpu:02X}:00.0")
module.nvmlDeviceGetComputeRunningProcesses = lambda gpu: [S(pid=4242, usedGpuMemory=1 << 30)] if gpu == 0 else []
module.nvmlDeviceGetCurrPcieLinkWidth = width
module.nvmlDeviceGetMaxPcieLinkWidth = lambda gpu: 16
module.nvmlDeviceGetPerformanceState = lambda gpu: 0
sys.modules[__name__] = module
"""
#: Four GPUs, as the node has, on PCIe.
TOPOLOGY = "system: site\ndescription: four GPUs\ncpus: [{name: cpu0}]\ngpus:\n"
TOPOLOGY += "".join(f"  - {{name: gpu{n}, index: {n}, model: GH200}}\n" for n in range(4)) + "links:\n"
TOPOLOGY += "  - {technology: PCIe 4 x16, count: 1, rate: 32 GB/s, source: made up, pairs: ["
TOPOLOGY += ", ".join(f"[gpu{n}, cpu0]" for n in range(4)) + "]}\n"
#: The guard is patient, since this machine may be busier than a node; the node is asked for as long as usual, or
#: PATIENT seconds.
PROGRAM = """import os
from fabricheck import __main__, prolog
from fabricheck.commands import doctor
prolog.guard.__defaults__ = (40,)
doctor.PROLOG_ASKS_S = float(os.environ.get("PATIENT", doctor.PROLOG_ASKS_S))
__main__.main()
"""


def prolog(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """What Slurm starts, with the program itself; NVML alone is a stand-in."""
    (folder / "pynvml.py").write_text(NVML)
    site = folder / "sites" / "site_configs" / "site"
    site.mkdir(parents=True)
    (site / "topology.yaml").write_text(TOPOLOGY)
    program = folder / "fabricheck"
    program.write_text(f"#!{sys.executable}\n{PROGRAM}")
    program.chmod(0o755)
    (folder / "timeout").write_text('#!/bin/sh\nshift 3\nexec "$@"\n')
    (folder / "timeout").chmod(0o755)
    environment = {
        **os.environ,
        **variables,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PROGRAM": str(program),
        "SYSTEM": "site",
        "FABRICHECK_SITES": str(folder / "sites"),
        "PYTHONPATH": f"{folder}{os.pathsep}{suite_root()}",
        "TMPDIR": str(folder),
    }
    script = [str(suite_root() / "ci" / "prolog.sh")]
    return subprocess.run(script, env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("seconds", ["0", "0.1", pytest.param("0.4", marks=pytest.mark.full), "2.5", "5"])
def test_a_slow_driver_with_another_s_job_takes_no_node_away(tmp_path: Path, seconds: str) -> None:
    done = prolog(tmp_path, SLOW=seconds)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    # What was not read in time is said where Slurm logs it.
    assert done.stderr or float(seconds) < 1


@pytest.mark.parametrize("fault", ["NARROW", "MISSING"])
def test_a_fault_that_was_read_takes_the_node_away(tmp_path: Path, fault: str) -> None:
    assert prolog(tmp_path, SLOW="0.1", PATIENT="30", **{fault: "1"}).returncode == 1
