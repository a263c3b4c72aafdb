"""A suite that a group shares, by users that the machine has no names for, as in a container."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.toy import make_toy
from tests.support.users import SOMEONE, as_user, give

pytestmark = [pytest.mark.e2e, pytest.mark.full]


def test_each_user_of_a_group_gets_the_verdict_of_what_was_measured(public: Path) -> None:
    toy = make_toy(public)
    for path in (public, *public.rglob("*")):
        path.chmod(0o2775 if path.is_dir() else 0o664)
    give(public)
    named = ("LOGNAME", "USER", "LNAME", "USERNAME")
    nameless = {name: value for name, value in os.environ.items() if name not in named}
    environment = {**nameless, "HOME": "/nonexistent", "FABRICHECK_SUITE": str(toy.suite.root)}
    run = (sys.executable, "-m", "fabricheck", "run", "--system=toy", "--no-store")
    for user in (SOMEONE, SOMEONE + 1):
        command = as_user(user, *run)
        done = subprocess.run(command, cwd=public, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines()[-1].startswith("PASS: ")
