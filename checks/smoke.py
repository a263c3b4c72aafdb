import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.rfm import FabricbenchCheck


@rfm.simple_test
class SmokePeers(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Every ordered pair of GPUs of a node once, alone, by the copy engine: each link at one large size."""

    descr = "all pairs of GPUs at one size"
    transport = "copy"
    operations = ["unidirectional"]
    schedules = ["uncontended"]
    sizes = {"other": "64MiB"}
    tags = {"smoke"}


@rfm.simple_test
class SmokeHostCopies(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Page-locked host memory to each GPU and back."""

    descr = "copies between each GPU and host memory at one size"
    transport = "copy"
    host_memory = "pinned"
    plan_settings = ["host_memory"]
    operations = ["host_to_device", "device_to_host"]
    schedules = ["uncontended"]
    least_ranks = 1
    sizes = {"other": "64MiB"}
    tags = {"smoke"}


@rfm.simple_test
class SmokeLibraries(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Do *CCL and each MPI library take the right path? Two ranks, then all ranks of a node."""

    descr = "a ping-pong and an allreduce at one size"
    transport = parameter(["ccl", "mpi"])
    operations = ["pingpong", "allreduce"]
    schedules = ["uncontended"]
    more_options = ["--pairs=0-1"]
    sizes = {"host": "1MiB", "other": "64MiB"}
    tags = {"smoke"}


@rfm.simple_test
class SmokeNodes(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """All nodes of a partition with a declared size: an alltoall and an allreduce over the ports of each node."""

    descr = "an alltoall and an allreduce over all nodes at one size"
    transport = parameter(["ccl", "mpi"])
    nodes = 0
    operations = ["alltoall", "allreduce"]
    sizes = {"host": "2MiB", "other": "64MiB"}
    warmup = 2
    tags = {"smoke"}
