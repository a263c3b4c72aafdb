import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.rfm import NcclTestsSuite, RcclTestsSuite, VendorCheck

PROGRAMS = ["sendrecv", "all_reduce", "alltoall", "all_gather", "reduce_scatter", "broadcast", "reduce"]


@rfm.simple_test
class NcclTests(rfm.RunOnlyRegressionTest, NcclTestsSuite, VendorCheck):
    """nccl-tests over all GPUs of a node, and of two."""

    descr = "nccl-tests"
    bench = parameter(PROGRAMS)
    nodes = parameter([1, 2])
    sizes = {"other": "8B:1GiB"}
    tags = {"vendor"}


@rfm.simple_test
class RcclTests(rfm.RunOnlyRegressionTest, RcclTestsSuite, VendorCheck):
    """rccl-tests over all GPUs of a node, and of two."""

    descr = "rccl-tests"
    bench = parameter(PROGRAMS)
    nodes = parameter([1, 2])
    sizes = {"other": "8B:1GiB"}
    tags = {"vendor"}
