"""Programs of the machine are asked in bounded time, and say why they have no answer."""

from __future__ import annotations

import sys

from fabricheck.state.programs import ask


def test_what_a_program_prints_and_that_it_is_not_there() -> None:
    assert ask([sys.executable, "-c", "print('x')"]).output == "x\n"
    missing = ask(["no-such-program"])
    assert missing.missing and not missing.given and not missing.problem


def test_a_program_that_hangs_is_left() -> None:
    """Also where a child of it keeps its output open."""
    answer = ask(["sh", "-c", "sleep 1000 & sleep 1000"], seconds=0.2)
    assert answer.problem == "gave no answer in 0.2 s"


def test_a_program_that_fails_says_why() -> None:
    assert ask(["sh", "-c", "echo no >&2; exit 3"]).problem == "ended with exit status 3: no"
    assert ask(["sh", "-c", "kill -11 $$"]).problem == "was ended by signal 11"
