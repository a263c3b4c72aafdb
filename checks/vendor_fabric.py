import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.rfm import LibfabricSuite, UcxSuite, VendorCheck


@rfm.simple_test
class FiPingpong(rfm.RunOnlyRegressionTest, LibfabricSuite, VendorCheck):
    """libfabric's own ping-pong between two nodes, below MPI."""

    descr = "fi_pingpong"
    bench = "pingpong"
    sizes = {"host": "8B:8MiB"}
    tags = {"vendor"}


@rfm.simple_test
class UcxPerftest(rfm.RunOnlyRegressionTest, UcxSuite, VendorCheck):
    """UCX's own ping-pong and stream between two nodes, below MPI."""

    descr = "ucx_perftest"
    bench = parameter(["tag_lat", "tag_bw"])
    sizes = {"host": "8B:8MiB"}
    tags = {"vendor"}
