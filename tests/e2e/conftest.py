"""fabricbench, built with an MPI library of this machine."""

from __future__ import annotations

import pytest

from fabricheck import mpi
from tests.support.bench import Bench, built


@pytest.fixture(scope="module", params=mpi.NAMES)
def bench(request: pytest.FixtureRequest) -> Bench:
    return built(request.param)


@pytest.fixture(scope="module")
def openmpi() -> Bench:
    """For what does not depend on the MPI library."""
    return built("openmpi")
