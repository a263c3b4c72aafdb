import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.rfm import OsuSuite, VendorCheck


@rfm.simple_test
class OsuPairs(rfm.RunOnlyRegressionTest, OsuSuite, VendorCheck):
    """The OSU benchmarks between two ranks, in a node and between two."""

    descr = "OSU benchmarks between two ranks"
    bench = parameter(["latency", "bw", "bibw"])
    buffers = parameter(["H H", "D D"])
    nodes = parameter([1, 2])
    sizes = {"host": "8B:4MiB", "other": "8B:256MiB"}
    tags = {"vendor"}


@rfm.simple_test
class OsuMixedPairs(rfm.RunOnlyRegressionTest, OsuSuite, VendorCheck):
    """As OsuPairs with one buffer on the host and one on the device. No model of this path: it needs references."""

    descr = "OSU benchmarks between host and device"
    bench = parameter(["latency", "bw", "bibw"])
    buffers = parameter(["H D", "D H"])
    nodes = parameter([1, 2])
    sizes = {"host": "8B:4MiB", "other": "8B:256MiB"}
    tags = {"vendor-mixed"}


@rfm.simple_test
class OsuManyPairs(rfm.RunOnlyRegressionTest, OsuSuite, VendorCheck):
    """Half of the ranks send to the other half at the same time (osu_mbw_mr)."""

    descr = "OSU bandwidth of many pairs"
    bench = "mbw_mr"
    buffers = parameter(["H H", "D D"])
    nodes = parameter([1, 2])
    sizes = {"host": "8B:4MiB", "other": "8B:256MiB"}
    tags = {"vendor"}


@rfm.simple_test
class OsuCollectives(rfm.RunOnlyRegressionTest, OsuSuite, VendorCheck):
    """The OSU collectives over all ranks of a node, and of two."""

    descr = "OSU collectives"
    bench = parameter(["alltoall", "allreduce", "allgather", "reduce_scatter", "bcast", "reduce"])
    buffers = parameter(["H H", "D D"])
    nodes = parameter([1, 2])
    sizes = {"host": "8B:4MiB", "other": "8B:256MiB"}
    tags = {"vendor"}
