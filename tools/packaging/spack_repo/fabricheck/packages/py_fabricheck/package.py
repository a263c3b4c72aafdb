"""Fabricheck of this checkout, for Spack 1.0 and newer:

spack repo add tools/packaging/spack_repo/fabricheck
spack install py-fabricheck
"""

from pathlib import Path

from spack.package import default_args, depends_on, license, version
from spack_repo.builtin.build_systems.python import PythonPackage

_CHECKOUT = Path(__file__).resolve().parents[6]


class PyFabricheck(PythonPackage):
    """Acceptance, nightly and upgrade checks for the paths between GPUs."""

    git = f"file://{_CHECKOUT}"

    license("BSD-3-Clause")

    version("0.1.0", branch="main")

    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")

    # The ranges of pyproject.toml.
    with default_args(type=("build", "run")):
        depends_on("py-clustershell@1.9:")
        depends_on("py-click@8.2:")
        depends_on("py-jinja2@3.1:")
        depends_on("py-networkx@3.2:")
        depends_on("py-numpy@1.26:")
        depends_on("py-nvidia-ml-py@12.535:")
        depends_on("py-polars@1.20:")
        depends_on("py-prometheus-client@0.20:")
        depends_on("py-pydantic@2.11:")
        depends_on("py-pyyaml@6:")
        depends_on("reframe@4.9:4")
        depends_on("py-ruamel-yaml@0.18:")
        depends_on("py-scipy@1.12:")
        depends_on("py-tzdata")

    # fabricbench is built where it runs, with the MPI library of each environment.
    depends_on("cmake@3.18:", type="run")
