"""The CUDA and the HIP backend compile for their architectures, and a warning in either is an error."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from tools import build

pytestmark = [pytest.mark.compile, pytest.mark.timeout(1200)]

BACKENDS = {"cuda": (b"sm_80", b"sm_90"), "hip": (b"gfx90a",)}
PLANTED = "\nstatic int planted() {\n  int never_used;\n  return 0;\n}\n"


def need(backend: str) -> None:
    """Skips where the backend's compiler is not to be had (`make test` says why); in CI that is a failure."""
    try:
        build.options(backend)
    except UserError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_port_compiles_for_its_architectures_and_without_a_warning(
    backend: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    need(backend)
    source, folder = tmp_path / "src", tmp_path / "build"
    shutil.copytree(build.ROOT / "src", source)
    program = (build.build(backend, source, folder, tests=False) / "fabricbench").read_bytes()
    for architecture in BACKENDS[backend]:
        assert architecture in program, f"no code for {architecture.decode()}"
    for name in ("device/device_gpu.cu", "transports/ccl.cpp"):
        file = source / "fabricbench" / name
        sound = file.read_text()
        file.write_text(sound + PLANTED)
        capfd.readouterr()
        with pytest.raises(UserError, match="does not build"):
            build.build(backend, source, folder, tests=False)
        assert "never_used" in "".join(capfd.readouterr()), f"{name} failed for another reason"
        file.write_text(sound)
