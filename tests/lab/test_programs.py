"""Programs of emulated nodes are built once for each state of their sources. Nothing is built here."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.suite import suite_root
from fabricheck_lab import node, programs
from fabricheck_lab.node import Real

ROOT = suite_root()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("src", "tools"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


def test_what_was_built_is_used_again_until_a_source_changes(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_build(*_: object, **__: object) -> Path:
        raise UserError("it is built")

    monkeypatch.setattr(programs, "_build", no_build)
    with pytest.raises(UserError, match="it is built"):
        programs.programs(checkout, "nvidia")
    built = checkout / "build" / "emulated" / f"cuda-{programs._state(checkout, 'cuda')}"
    built.mkdir(parents=True)
    assert programs.programs(checkout, "nvidia").program == built / "fabricbench"
    with pytest.raises(UserError, match="it is built"):
        programs.programs(checkout, "amd")
    with (checkout / "src" / "fabricbench" / "main.cpp").open("a") as file:
        file.write("// another\n")
    with pytest.raises(UserError, match="it is built"):
        programs.programs(checkout, "nvidia")


def test_without_a_checkout_there_is_nothing_to_build_with(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is not a checkout of Fabricheck, with whose tools"):
        programs.programs(tmp_path, "nvidia")


@pytest.mark.parametrize(
    ("vendor", "missing"), [("nvidia", ["nvcc", "nccl.h"]), ("amd", ["hipcc", "libamdhip64", "nccl.h"]), ("intel", [])]
)
def test_what_is_missing_is_named_in_one_line_before_anything_compiles(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, vendor: str, missing: list[str]
) -> None:
    monkeypatch.setattr(sys, "prefix", str(checkout))  # what `make demo` made: no GPU compiler in it
    monkeypatch.setattr(node, "find_real", lambda: Real(None, None, None, None, None))
    monkeypatch.setattr(node, "MPICXX", checkout / "mpicxx")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(UserError) as caught:
        programs.programs(checkout, vendor)
    message = str(caught.value)
    assert [each for each in (*missing, "mpicxx", "make lab") if each not in message] == []
    assert "\n" not in message
