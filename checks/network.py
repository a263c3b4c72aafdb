import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.rfm import FabricbenchCheck, NodePairsCheck


@rfm.simple_test
class NodePairs(rfm.RunOnlyRegressionTest, NodePairsCheck):
    """Every pair of nodes in one job, in rounds in which no node takes part twice (De Sensi et al., section V-B)."""

    descr = "all pairs of nodes, port by port, one direction at a time"
    transport = parameter(["ccl", "mpi"])
    sizes = {"host": "8B,2MiB", "other": "8B,1GiB"}
    tags = {"nightly", "acceptance", "papers", "layers"}


@rfm.simple_test
class DomainPairs(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """GPUs of all nodes of an NVLink domain: pairs, in rounds that use every GPU once, and one GPU to all others."""

    descr = "all pairs of GPUs of an NVLink domain, in rounds, and one GPU to all"
    transport = parameter(["copy", "kernel"])
    nodes = 0
    in_nvlink_domain = True
    operations = ["unidirectional", "broadcast"]
    schedules = ["contended"]
    sizes = {"other": "16B,1GiB"}
    warmup = 2
    tags = {"nightly", "acceptance"}


@rfm.simple_test
class NodeWindows(rfm.RunOnlyRegressionTest, NodePairsCheck):
    """Bandwidth of 64 outstanding messages between the nodes of each pair, as osu_bw measures it."""

    descr = "all pairs of nodes, port by port, 64 messages at a time"
    transport = "mpi"
    train = 64
    plan_settings = ["train"]
    sizes = {"host": "8B,256KiB", "other": "8B,16MiB"}
    tags = {"acceptance"}


@rfm.simple_test
class NetworkCollectives(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Alltoall of 2 MiB and allreduce over a growing number of nodes (De Sensi et al., section V-C and V-D)."""

    descr = "collectives over several nodes"
    transport = parameter(["ccl", "mpi"])
    nodes = parameter([2, 4, 8])
    operations = ["alltoall", "allreduce"]
    sizes = {"host": "2MiB", "other": "2MiB,1GiB"}
    warmup = 2
    tags = {"acceptance", "papers"}


@rfm.simple_test
class GroupCollectives(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Collectives of all nodes at once, as of tensor-parallel groups, and of all rails at once, with a GPU of each
    node, as of data-parallel groups (Narayanan et al., SC21, section 3)."""

    descr = "collectives of all nodes at once, and of all rails at once"
    transport = parameter(["ccl", "mpi"])
    split = parameter(["nodes", "rails"])
    plan_settings = ["split"]
    nodes = 2
    operations = ["allreduce", "allgather", "reduce_scatter", "alltoall"]
    schedules = ["contended"]
    sizes = {"host": "2MiB", "other": "2MiB,1GiB"}
    ranks = 2
    least_ranks = 4
    warmup = 2
    tags = {"acceptance"}


@rfm.simple_test
class NetworkVictims(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Some nodes alone and with an alltoall or an incast of the others, interleaved (De Sensi et al., section VI)."""

    descr = "a victim beside an aggressor on other nodes, interleaved"
    transport = parameter(["ccl", "mpi"])
    nodes = 4
    operations = [
        "victim_pingpong_alltoall",
        "victim_pingpong_incast",
        "victim_alltoall_alltoall",
        "victim_alltoall_incast",
    ]
    sizes = {"host": "1KiB,1MiB", "other": "1KiB,64MiB"}
    warmup = 2
    tags = {"acceptance", "papers"}
