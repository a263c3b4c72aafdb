import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.rfm import FabricbenchCheck


@rfm.simple_test
class Collectives(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Six collectives over all GPUs of a node (De Sensi et al., SC24, section IV)."""

    descr = "collectives over all GPUs of a node"
    transport = parameter(["staging", "copy", "ccl", "mpi"])
    operations = ["alltoall", "allreduce", "allgather", "reduce_scatter", "broadcast", "reduce"]
    sizes = {"host": "16B:16MiB:4", "staging": "16B:64MiB:4", "other": "16B:1GiB:4"}
    tags = {"nightly", "acceptance", "observations"}
    nightly_only = {"transport": ["copy", "ccl", "mpi"]}
