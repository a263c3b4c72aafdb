import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.rfm import CrossCheck, ImbSuite, LibfabricSuite, NcclTestsSuite, OsuSuite


@rfm.simple_test
class CrossCheckNccl(rfm.RunOnlyRegressionTest, NcclTestsSuite, CrossCheck):
    """fabricbench and nccl-tests interleaved, over the same library, on a node and between two."""

    descr = "fabricbench beside nccl-tests"
    operation = parameter(["bidirectional", "allreduce", "alltoall", "allgather", "reduce_scatter", "broadcast"])
    nodes = parameter([1, 2])
    sizes = {"other": "1KiB:256MiB"}
    tags = {"cross-check"}


@rfm.simple_test
class CrossCheckOsu(rfm.RunOnlyRegressionTest, OsuSuite, CrossCheck):
    """fabricbench and OMB interleaved, over the same library."""

    descr = "fabricbench beside the OSU benchmarks"
    operation = parameter(["pingpong", "alltoall", "allreduce"])
    buffers = parameter(["H H", "D D"])
    nodes = parameter([1])
    sizes = {"host": "8B:16MiB", "other": "8B:256MiB"}
    tags = {"cross-check"}


@rfm.simple_test
class CrossCheckImb(rfm.RunOnlyRegressionTest, ImbSuite, CrossCheck):
    """fabricbench and IMB interleaved, over the same library."""

    descr = "fabricbench beside the Intel MPI Benchmarks"
    operation = parameter(["pingpong", "bidirectional", "alltoall", "allreduce"])
    buffers = parameter(["H H", "D D"])
    nodes = parameter([1])
    sizes = {"host": "8B:32MiB", "other": "8B:128MiB"}
    tags = {"cross-check"}


@rfm.simple_test
class CrossCheckLibfabric(rfm.RunOnlyRegressionTest, LibfabricSuite, CrossCheck):
    """fabricbench and fi_pingpong interleaved between two nodes, over the same libfabric."""

    descr = "fabricbench beside fi_pingpong"
    operation = "pingpong"
    sizes = {"host": "8B:8MiB"}
    tags = {"cross-check"}
