import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.rfm import ImbSuite, VendorCheck


@rfm.simple_test
class Imb(rfm.RunOnlyRegressionTest, ImbSuite, VendorCheck):
    """Intel MPI Benchmarks with buffers on the host or on the device (IMB-MPI1-GPU), in a node and between two."""

    descr = "Intel MPI Benchmarks"
    bench = parameter(["PingPong", "Sendrecv", "Alltoall", "Allreduce"])
    buffers = parameter(["H H", "D D"])
    nodes = parameter([1, 2])
    sizes = {"host": "1B:4MiB", "other": "1B:256MiB"}
    tags = {"vendor"}
