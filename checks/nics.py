import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.rfm import FabricbenchCheck, NodePairsCheck


@rfm.simple_test
class NicLoopback(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Each NIC with each GPU of a node, below MPI and NCCL: out of the memory of a GPU or of the host, and in again."""

    descr = "each NIC with each GPU, by libfabric, back to the same node"
    transport = "fabric"
    access = parameter(["write", "read"])
    nic = parameter(["0", "1", "2", "3", "4", "5", "6", "7"], type=str)  # in the topology
    plan_settings = ["access", "nic"]
    operations = ["local_copy", "host_to_device", "device_to_host"]
    schedules = ["uncontended"]
    least_ranks = 1
    sizes = {"other": "8B,256MiB"}
    tags = {"nightly", "acceptance"}
    nightly_only = {"access": ["write"]}


@rfm.simple_test
class NicPairs(rfm.RunOnlyRegressionTest, NodePairsCheck):
    """Every pair of nodes by each of their NICs, below MPI and NCCL, from GPU to GPU."""

    descr = "all pairs of nodes, port by port, by libfabric, between GPUs"
    transport = "fabric"
    access = parameter(["write", "read"])
    plan_settings = ["access"]
    sizes = {"host": "8B,8MiB", "other": "8B,1GiB"}
    tags = {"nightly", "acceptance", "layers"}
    nightly_only = {"access": ["write"]}


@rfm.simple_test
class NicPairsOfHosts(rfm.RunOnlyRegressionTest, NodePairsCheck):
    """The same between the memory of the hosts: what is slow here too is no GPU's fault."""

    descr = "all pairs of nodes, port by port, by libfabric, between hosts"
    transport = "fabric"
    buffers = "host-host"
    plan_settings = ["buffers"]
    sizes = {"host": "8B,8MiB", "other": "8B,1GiB"}
    tags = {"acceptance"}


@rfm.simple_test
class NicStriping(rfm.RunOnlyRegressionTest, NodePairsCheck):
    """Every pair of nodes by all their NICs at once, each message in stripes, from the first GPU to the first GPU."""

    descr = "all pairs of nodes, messages in stripes over all NICs, by libfabric"
    transport = "fabric"
    nic = "all"
    plan_settings = ["nic"]
    sizes = {"host": "8MiB", "other": "1GiB"}
    tags = {"acceptance"}


@rfm.simple_test
class NicLatency(rfm.RunOnlyRegressionTest, NodePairsCheck):
    """The latency of a message between the hosts of each pair of nodes, below MPI and NCCL, as `fi_pingpong` has it."""

    descr = "latency between all pairs of nodes, port by port, by libfabric, between hosts"
    transport = "fabric"
    access = "send"
    buffers = "host-host"
    plan_settings = ["access", "buffers"]
    operations = ["pingpong"]
    sizes = {"host": "8B", "other": "8B"}
    tags = {"acceptance"}
