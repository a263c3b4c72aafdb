"""The CUDA and the HIP backend compile for an architecture, and a warning in either is an error. So do the others."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from tools import build

pytestmark = [pytest.mark.full, pytest.mark.compile, pytest.mark.timeout(1200)]

ARCHITECTURES = {"cuda": b"sm_90", "hip": b"gfx90a"}
PLANTED = "\nstatic int planted() {\n  int never_used;\n  return 0;\n}\n"


# The folders are those of the quiet tests, which run what lies there.
@pytest.mark.parametrize("target", ("sycl", "sycl-emulated", "host-mpich"))
def test_the_others_compile(target: str) -> None:
    folder_of(target)


def folder_of(target: str) -> Path:
    try:
        build.options(target)
    except UserError as error:
        pytest.skip(str(error))  # `make test` says why; in CI that is a failure
    return build.build(target, tests=False)


@pytest.mark.parametrize("backend", ARCHITECTURES)
def test_a_backend_compiles_for_its_architecture_and_without_a_warning(backend: str, tmp_path: Path) -> None:
    folder = folder_of(backend)
    assert ARCHITECTURES[backend] in (folder / "fabricbench").read_bytes()
    commands = json.loads((folder / "compile_commands.json").read_text())
    transport = folder / "CMakeFiles" / "fabricbench_ccl.dir" / "Unity" / "unity_0_cxx.cxx"
    for source in (build.ROOT / "src" / "fabricbench" / "device" / "device_gpu.cu", transport):
        planted = tmp_path / source.name
        planted.write_text(PLANTED)
        (command,) = (each["command"] for each in commands if each["file"] == str(source))
        words = [str(planted) if word == str(source) else word for word in shlex.split(command)]
        for option in ("-o", "-MF"):
            if option in words:
                words[words.index(option) + 1] = str(tmp_path / f"planted{option}")
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode != 0, f"{source}: a warning is not an error"
        assert "never_used" in done.stderr + done.stdout, f"{source} failed for another reason: {done.stderr}"
