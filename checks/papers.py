import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.records.operations import STRIPING
from fabricheck.rfm import FabricbenchCheck, NodePairsCheck


@rfm.simple_test
class CollectivesOfSomeGpus(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Five collectives of 1 MiB over the first two, three, … GPUs of a node (Schieffer et al., section VI)."""

    descr = "collectives over some GPUs of a node"
    transport = parameter(["ccl", "mpi"])
    some_gpus = parameter(range(2, 9))
    operations = ["allreduce", "allgather", "reduce_scatter", "broadcast", "reduce"]
    schedules = ["uncontended"]
    sizes = {"host": "1MiB", "other": "1MiB"}
    tags = {"papers"}


@rfm.simple_test
class PeerCopiesOverSizes(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Peer copies by copy engine and kernel over size (Schieffer et al., figures 7 and 8)."""

    descr = "peer copies over size"
    transport = parameter(["copy", "kernel"])
    operations = ["unidirectional", "bidirectional"]
    schedules = ["uncontended"]
    sizes = {"other": "256B:1GiB:4"}
    tags = {"papers"}


@rfm.simple_test
class HostMemoryOverSizes(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Host memory over size, by explicit copies (Schieffer et al., figure 3)."""

    descr = "copies from and to host memory over size"
    transport = "copy"
    host_memory = parameter(["pinned", "pageable"])
    plan_settings = ["host_memory"]
    operations = ["host_to_device"]
    schedules = ["uncontended"]
    least_ranks = 1
    sizes = {"other": "4KiB:1GiB:4"}
    tags = {"papers"}


@rfm.simple_test
class ZeroCopyOverSizes(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Host memory over size, used by kernels where it lies (Schieffer et al., figure 3)."""

    descr = "host memory used by kernels over size"
    transport = "kernel"
    host_memory = parameter(["pinned", "managed"])
    plan_settings = ["host_memory"]
    operations = ["host_to_device"]
    schedules = ["uncontended"]
    least_ranks = 1
    settings = {"HSA_XNACK": "0"}
    sizes = {"other": "4KiB:1GiB:4"}
    tags = {"papers"}


@rfm.simple_test
class NodePairsOverSizes(rfm.RunOnlyRegressionTest, NodePairsCheck):
    """Every pair of nodes over size (De Sensi et al., SC24, figure 7)."""

    descr = "all pairs of nodes over size, one direction at a time"
    transport = parameter(["ccl", "mpi"])
    sizes = {"host": "1B:16MiB:4", "other": "1B:1GiB:4"}
    tags = {"papers"}


@rfm.simple_test
class NetworkCollectivesOverSizes(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Collectives over size and a growing number of nodes (De Sensi et al., SC24, figure 11)."""

    descr = "collectives over several nodes, over size"
    transport = parameter(["ccl", "mpi"])
    nodes = parameter([2, 4, 8])
    operations = ["alltoall", "allreduce"]
    schedules = ["uncontended"]
    sizes = {"host": "1KiB:4MiB:4", "other": "1KiB:1GiB:4"}
    warmup = 2
    tags = {"papers"}


@rfm.simple_test
class StripingOfNodes(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """One message over all NICs of two nodes: split, translate, assemble (CommBench, section 5.1)."""

    descr = "one message in stripes over all NICs of two nodes, step by step"
    transport = parameter(["ccl", "mpi"])
    nodes = 2
    operations = [*STRIPING]
    schedules = ["uncontended"]
    sizes = {"host": "2MiB", "other": "1GiB"}
    ranks = 2
    least_ranks = 4
    warmup = 2
    tags = {"papers"}


@rfm.simple_test
class MixedStripingOfNodes(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """The same with copies inside the nodes and *CCL between them (CommBench, section 5.1: I+N+I)."""

    descr = "one message in stripes over two nodes, by copies inside them"
    transport = "ccl"
    more_options = ["--step-transports=copy,ccl,copy"]
    nodes = 2
    operations = ["striping", "striping_split", "striping_translate", "striping_assemble"]
    schedules = ["uncontended"]
    sizes = {"other": "1GiB"}
    least_ranks = 4
    warmup = 2
    tags = {"papers"}


@rfm.simple_test
class GroupsOfNodes(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Rail, asymmetric and symmetric patterns between two nodes, over active GPUs (CommBench, section 5.2)."""

    descr = "patterns between two nodes, with more and more GPUs taking part"
    transport = parameter(["ccl", "mpi"])
    nodes = 2
    operations = ["rail_unidirectional", "asymmetric_unidirectional", "symmetric_unidirectional"]
    schedules = ["uncontended"]
    sizes = {"host": "64B,2MiB", "other": "64B,1GiB"}
    ranks = 4
    warmup = 2
    tags = {"papers"}


@rfm.simple_test
class GroupsOfMoreNodes(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Rail and symmetric patterns over a growing number of nodes (CommBench, section 5.4)."""

    descr = "patterns of all GPUs of several nodes"
    transport = parameter(["ccl", "mpi"])
    nodes = parameter([2, 4, 8])
    operations = [
        "rail_unidirectional",
        "rail_bidirectional",
        "rail_omnidirectional",
        "symmetric_unidirectional",
        "symmetric_bidirectional",
        "symmetric_omnidirectional",
    ]
    schedules = ["uncontended"]
    sizes = {"host": "2MiB", "other": "1GiB"}
    ranks = 2
    warmup = 2
    tags = {"papers"}


@rfm.simple_test
class SparseMessagesOfNodes(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """An application's messages inside four nodes, between them and both at once (CommBench, section 5.5)."""

    descr = "irregular messages of an application on four nodes"
    transport = parameter(["ccl", "mpi"])
    nodes = 4
    operations = ["sparse", "sparse_intra", "sparse_inter"]
    schedules = ["uncontended"]
    sizes = {"host": "16MiB", "other": "256MiB"}
    matrix = "src/data/irregular48.mtx"
    ranks = 2
    warmup = 2
    tags = {"papers"}
