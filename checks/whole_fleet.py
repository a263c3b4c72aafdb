import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.rfm import FleetScreen


@rfm.simple_test
class FleetNetwork(rfm.RunOnlyRegressionTest, FleetScreen):
    """Measures pairs of all good nodes port by port, suspects again, then all good nodes together.

    One direction at a time, as in NodePairs. Only inside the job of `fabricheck run --nodes` (docs/fleet.md), where the
    checks of single nodes have run before: ReFrame takes the files of checks by their names, and this one is the last.
    """

    descr = "the network of a fleet, and which part of it is slow"
    transport = parameter(["ccl", "mpi"])
    operations = ["unidirectional"]
    sizes = {"host": "2MiB", "other": "64MiB"}
    warmup = 2
    timeout = 20.0
    tags = {"smoke", "nightly", "acceptance"}
