"""The CUDA and the HIP backend compile for their architectures, and a warning in either is an error."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from tools import build

pytestmark = [pytest.mark.full, pytest.mark.compile, pytest.mark.timeout(1200)]

ARCHITECTURES = {"cuda": (b"sm_80", b"sm_90"), "hip": (b"gfx90a",)}
PLANTED = "\nstatic int planted() {\n  int never_used;\n  return 0;\n}\n"


# The folder is that of all tests that run this backend.
@pytest.mark.parametrize("backend", ["cuda", "hip"])
def test_a_backend_compiles_for_its_architectures_and_without_a_warning(backend: str, tmp_path: Path) -> None:
    try:
        build.options(backend)
    except UserError as error:
        pytest.skip(str(error))  # `make test` says why; in CI that is a failure
    folder = build.build(backend, tests=False)
    program = (folder / "fabricbench").read_bytes()
    for architecture in ARCHITECTURES[backend]:
        assert architecture in program, f"no code for {architecture.decode()}"
    commands = json.loads((folder / "compile_commands.json").read_text())
    transport = folder / "CMakeFiles" / "fabricbench_ccl.dir" / "Unity" / "unity_0_cxx.cxx"
    for source in (build.ROOT / "src" / "fabricbench" / "device" / "device_gpu.cu", transport):
        planted = tmp_path / source.name
        planted.write_text(source.read_text() + PLANTED)
        (command,) = (each["command"] for each in commands if each["file"] == str(source))
        words = [str(planted) if word == str(source) else word for word in shlex.split(command)]
        for option in ("-o", "-MF"):
            if option in words:
                words[words.index(option) + 1] = str(tmp_path / f"planted{option}")
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode != 0, f"{source}: a warning is not an error"
        assert "never_used" in done.stderr + done.stdout, f"{source} failed for another reason: {done.stderr}"
