"""What of the environment and of command lines may be stored; the cases are fabricbench's too."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.results.environment import (
    REDACTED,
    is_recorded,
    is_secret,
    recorded_environment,
    recorded_variables,
    redacted,
    redacted_command,
    without_values,
)
from fabricheck.suite import suite_root
from fabricheck.tuning import ACCEPTED

LINES = (suite_root() / "src" / "data" / "secrets.txt").read_text(encoding="utf-8").splitlines()
CASES = [tuple(line.split("\t")) for line in LINES if line and not line.startswith("#")]


@pytest.mark.parametrize(("kind", "value"), CASES)
def test_secrets_are_told_from_settings(kind: str, value: str) -> None:
    assert is_secret(value) == (kind == "secret")
    assert redacted(value) == (REDACTED if kind == "secret" else value)


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_BEARER",
        "NCCL_APIKEY",
        "FI_PSK",
        "UCX_PASSPHRASE",
        "MPICH_PWD",
        "OMPI_MCA_url",
        "I_MPI_X",
        "NCCL_",
        "HOME",
        "",
    ],
)
def test_what_no_library_documents_is_dropped(name: str) -> None:
    assert not is_recorded(name)
    assert recorded_environment([f"{name}=1", "UCX_TLS=rc", "UCX_LOG_FILE=http://a:b@c"]) == {
        "UCX_TLS": "rc",
        "UCX_LOG_FILE": REDACTED,
    }


def test_every_library_has_its_names() -> None:
    names = recorded_variables()
    assert set(ACCEPTED) <= names
    for prefix, at_least in (("NCCL", 200), ("UCX", 1000), ("OMPI_MCA", 900), ("MPIR_CVAR", 400), ("FI", 500)):
        assert sum(name.startswith(f"{prefix}_") for name in names) >= at_least
    assert not [name for name in names if re.search("TOKEN|SECRET|PASSWORD|PASSWD|AUTH|COOKIE", name, re.IGNORECASE)]
    assert all(re.fullmatch(r"[A-Z][A-Za-z0-9_]+", name) for name in names)


def test_a_command_line_keeps_what_is_no_secret() -> None:
    words = [
        "srun",
        "--token",
        "abc",
        "--api-key=abc",
        "-n",
        "4",
        "fabricbench",
        "--output",
        "/scratch/a1B2c3D4e5F6g7H8i9",
    ]
    assert redacted_command(words) == [*words[:2], REDACTED, REDACTED, *words[4:]]


@given(st.text(alphabet="0123456789abcdef", min_size=20, max_size=64), st.sampled_from(["", "x=", "a b "]))
def test_random_characters_never_come_through(text: str, before: str) -> None:
    if len(set(text)) >= 10 and is_secret(text):
        assert text not in redacted(before + text)
        assert text not in without_values(before + text)
