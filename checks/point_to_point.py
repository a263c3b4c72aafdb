import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.rfm import FabricbenchCheck


@rfm.simple_test
class PingPong(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Goodput and latency of every pair, alone and with other pairs (De Sensi et al., SC24, section III)."""

    descr = "ping-pong between all pairs"
    transport = parameter(["staging", "copy", "ccl", "mpi"])
    operations = ["pingpong"]
    sizes = {"host": "1B:16MiB:4", "staging": "1B:64MiB:4", "other": "1B:1GiB:4"}
    tags = {"nightly", "acceptance", "papers"}
    nightly_only = {"transport": ["copy", "ccl", "mpi"]}


@rfm.simple_test
class BothDirections(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Goodput of every pair with both directions in use (Schieffer et al., section V-B)."""

    descr = "both directions of all pairs at once"
    transport = parameter(["copy", "ccl", "mpi"])
    operations = ["bidirectional"]
    sizes = {"host": "64KiB,1MiB,16MiB", "other": "1MiB,64MiB,1GiB"}
    tags = {"acceptance"}
