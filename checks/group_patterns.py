import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.records.operations import STRIPING
from fabricheck.rfm import FabricbenchCheck


@rfm.simple_test
class GroupPatterns(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Rail, asymmetric and symmetric patterns between two sets of GPUs (CommBench, ICS'24, sections 4.3 and 5.2)."""

    descr = "patterns between groups, with one GPU of each after another taking part"
    transport = parameter(["copy", "ccl", "mpi"])
    operations = [
        "rail_unidirectional",
        "rail_bidirectional",
        "rail_omnidirectional",
        "asymmetric_unidirectional",
        "asymmetric_bidirectional",
        "symmetric_unidirectional",
        "symmetric_bidirectional",
        "symmetric_omnidirectional",
    ]
    sizes = {"host": "1KiB,16MiB", "other": "1KiB,1GiB"}
    ranks = 4
    tags = {"acceptance"}


@rfm.simple_test
class NodeGroups(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """The rail pattern between two nodes: shows which GPU uses which NIC (CommBench, section 5.2.1)."""

    descr = "rails between two nodes, with more and more GPUs taking part"
    transport = parameter(["ccl", "mpi"])
    nodes = 2
    operations = ["rail_unidirectional"]
    sizes = {"host": "2MiB", "other": "1GiB"}
    ranks = 4
    warmup = 2
    tags = {"acceptance"}


@rfm.simple_test
class Striping(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """One message over all GPUs: split, translate, assemble, against the direct one (CommBench, section 4.2, 5.1)."""

    descr = "one message in stripes over all GPUs, as a whole, in pieces and step by step"
    transport = parameter(["copy", "ccl", "mpi"])
    operations = [*STRIPING]
    sizes = {"host": "1KiB,16MiB", "other": "1KiB,1GiB"}
    ranks = 4
    least_ranks = 4
    tags = {"acceptance"}
