import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.rfm import LibfabricSuite, PerftestSuite, UcxSuite, VendorCheck


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


@rfm.simple_test
class Perftest(rfm.RunOnlyRegressionTest, PerftestSuite, VendorCheck):
    """perftest between two nodes over verbs, with host memory and memory of GPUs: what owners accept their NICs by."""

    descr = "perftest"
    bench = parameter(["write_bw", "read_bw", "send_lat"])
    buffers = parameter(["H H", "D D"])
    sizes = {"host": "8B:8MiB", "other": "8B:8MiB"}
    tags = {"vendor"}
