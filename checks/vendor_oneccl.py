import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.rfm import OneCclSuite, VendorCheck


@rfm.simple_test
class OneCclBenchmark(rfm.RunOnlyRegressionTest, OneCclSuite, VendorCheck):
    """oneCCL's own benchmark over all GPUs of a node, and of two."""

    descr = "oneCCL's benchmark"
    bench = parameter(["allreduce", "alltoall", "allgather", "reduce_scatter", "broadcast", "reduce"])
    nodes = parameter([1, 2])
    sizes = {"other": "4B:1GiB"}
    tags = {"vendor"}
