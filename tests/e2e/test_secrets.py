"""Secrets in the environment and on command lines: none of them may be in any file that a run leaves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fabricheck.session.hiding import scrub, secrets_of
from fabricheck.suite import suite_root
from tests.support.bench import built
from tests.support.toy import ToySuite

pytestmark = [pytest.mark.e2e, pytest.mark.full]

SECRETS = {
    "NCCL_BEARER": "nccl-s3cr3t-01",
    "NCCL_APIKEY": "nccl-s3cr3t-02",
    "NCCL_AUTH": "nccl-s3cr3t-03",
    "FI_PSK": "fi-s3cr3t-04",
    "UCX_PASSPHRASE": "ucx-s3cr3t-05",
    "MPICH_PWD": "mpich-s3cr3t-06",
    "OMPI_MCA_token": "ompi-s3cr3t-07",
    "I_MPI_SECRET_WORD": "impi-s3cr3t-08-token=x",
    "CCL_COOKIE": "ccl-s3cr3t-09",
    "HSA_PASSWORD": "hsa-s3cr3t-10",
    "PMIX_MCA_psec_key_secret": "pmix-s3cr3t-11",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY12",
    "GITHUB_TOKEN": "ghp_1a2B3c4D5e6F7g8H9i0J1k2L3m13",
    "CI_JOB_JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl14",
    "DB_PASSWD": "hunter2-s3cr3t-15",
    # Documented names with a secret in the value.
    "OMPI_MCA_btl_tcp_if_include": "http://me:s3cr3t-16@host",
    "I_MPI_HYDRA_IFACE": "https://s3cr3t-17:x@proxy",
    "UCX_LOG_FILE": "ftp://u:s3cr3t-18@h/x",
    "NCCL_DEBUG_FILE": "hf_aB3dE5gH7jK9mN1pQ3sT5vW19",
    "OMPI_MCA_plm_rsh_args": "-o --password=s3cr3t-20",
    "http_proxy": "http://me:s3cr3t-21@proxy:3128",
}
ON_COMMAND_LINE = {"--token": "cmd-s3cr3t-22", "--api-key": "cmd-s3cr3t-23", "--url": "http://me:s3cr3t-24@x"}


def texts() -> list[str]:
    values = [*SECRETS.values(), *ON_COMMAND_LINE.values()]
    # Of a URL the host may be told.
    return [value.partition("://")[2].partition("@")[0] if "://" in value else value for value in values]


def found_below(folder: Path) -> list[str]:
    contents = [(file, file.read_bytes()) for file in folder.rglob("*") if file.is_file()]
    return [f"{file}: {text}" for file, content in contents for text in texts() if text.encode() in content]


def planted(toy: ToySuite) -> None:
    """The check's program says all of its environment, as libraries do, and its options are in its job script."""
    options = " ".join(f"{name} {value}" for name, value in ON_COMMAND_LINE.items())
    toy.plant("; true", f"; env; env >&2; echo {options}; true {options}")


def test_no_secret_is_in_what_a_run_leaves(toy: ToySuite) -> None:
    planted(toy)
    command = [sys.executable, "-m", "fabricheck", "run", "--system=toy"]
    environment = {**os.environ, **SECRETS}
    job = subprocess.run(command, cwd=toy.suite.root, env=environment, capture_output=True, text=True, check=False)
    assert job.returncode == 0, job.stdout + job.stderr
    assert len(texts()) >= 22
    assert list(toy.output.rglob("rfm_*.out"))
    assert found_below(toy.output) == []
    # The rest of what was said is still there.
    (said,) = toy.output.rglob("rfm_*.out")
    assert "RFM_CONFIG_FILES=" in said.read_text()


def test_fabricbench_writes_no_secret(tmp_path: Path) -> None:
    # What Open MPI itself would obey is left out.
    values = {name: value for name, value in SECRETS.items() if not name.startswith(("OMPI_MCA_", "PMIX_MCA_"))}
    bench = replace(built("openmpi"), environment=values)
    job = bench.run(tmp_path, "--operations", "pingpong", "--sizes", "8", "--output", "result.jsonl")
    assert job.returncode == 0, job.stderr
    assert "<redacted>" in (tmp_path / "result.jsonl").read_text()
    assert found_below(tmp_path) == []


def test_what_is_no_secret_is_left_alone(tmp_path: Path) -> None:
    source = suite_root() / "tests" / "data"
    shutil.copytree(source, tmp_path / "data")
    before = {file: file.read_bytes() for file in (tmp_path / "data").rglob("*") if file.is_file()}
    scrub(
        tmp_path, {"HOME": "/root", "PWD": "/tmp", "UCX_TLS": "rc,sm", "OMP_NUM_THREADS": "4", "SSH_AUTH_SOCK": "/x/y"}
    )
    changed = [file.name for file, content in before.items() if file.read_bytes() != content]
    assert changed == []
    assert (
        secrets_of({"HOME": "/root", "PWD": "/tmp", "UCX_TLS": "rc", "SSH_AUTH_SOCK": "/x", "MY_PIN_TOKEN": "1234567"})
        == set()
    )
