import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.rfm import InterleavedCheck, ServiceLevelComparison, TuningComparison, settings_to_compare


@rfm.simple_test
class TuningOfNode(rfm.RunOnlyRegressionTest, TuningComparison, InterleavedCheck):
    """Does each variable of the tuning profile still help inside a node? (De Sensi et al., SC24, sections III-B, III-C)

    To be run after an upgrade, and no part of the acceptance: each variable takes 17 launches.
    """

    descr = "each variable of the tuning profile, on and off, interleaved, inside a node"
    transport = parameter(["copy", "ccl", "mpi"])
    setting = parameter(settings_to_compare())
    operations = ["pingpong", "alltoall", "allreduce"]
    schedules = ["uncontended"]
    sizes = {"host": "8B,4MiB", "other": "8B,1MiB,1GiB"}
    tags = {"tuning"}


@rfm.simple_test
class TuningBetweenNodes(rfm.RunOnlyRegressionTest, TuningComparison, InterleavedCheck):
    """Does each variable of the tuning profile still help between nodes? (De Sensi et al., SC24, section III-B)

    To be run after an upgrade, and no part of the acceptance: each variable takes 17 launches.
    """

    descr = "each variable of the tuning profile, on and off, interleaved, over two nodes"
    transport = parameter(["ccl", "mpi"])
    setting = parameter(settings_to_compare())
    nodes = 2
    operations = ["alltoall", "allreduce"]
    sizes = {"host": "8B,2MiB", "other": "8B,2MiB,1GiB"}
    warmup = 2
    tags = {"tuning"}


@rfm.simple_test
class ServiceLevel(rfm.RunOnlyRegressionTest, ServiceLevelComparison, InterleavedCheck):
    """Does a separate InfiniBand service level keep others' traffic away? (De Sensi et al., SC24, section VI-A).

    No part of the acceptance: it takes 17 launches, and says something only while other jobs use the network.
    """

    descr = "the default service level and another, interleaved"
    transport = parameter(["ccl", "mpi"])
    nodes = 4
    operations = ["alltoall", "allreduce"]
    sizes = {"other": "8B,2MiB,1GiB"}
    warmup = 2
    tags = {"tuning"}
