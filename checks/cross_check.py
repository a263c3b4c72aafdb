import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.rfm import ImbWitness, NcclWitness, OsuWitness


@rfm.simple_test
class SecondWitnessNccl(rfm.RunOnlyRegressionTest, NcclWitness):
    """fabricbench and nccl-tests in turn, over the same library."""

    descr = "fabricbench beside nccl-tests"
    operation = parameter(["bidirectional", "allreduce", "alltoall", "allgather", "reduce_scatter", "broadcast"])
    nodes = parameter([1])
    sizes = {"other": "1KiB:256MiB"}
    tags = {"witness"}


@rfm.simple_test
class SecondWitnessOsu(rfm.RunOnlyRegressionTest, OsuWitness):
    """fabricbench and OMB in turn, over the same library."""

    descr = "fabricbench beside the OSU benchmarks"
    operation = parameter(["pingpong", "alltoall", "allreduce"])
    buffers = parameter(["H H", "D D"])
    nodes = parameter([1])
    sizes = {"host": "8B:16MiB", "other": "8B:256MiB"}
    tags = {"witness"}


@rfm.simple_test
class SecondWitnessImb(rfm.RunOnlyRegressionTest, ImbWitness):
    """fabricbench and IMB in turn, over the same library."""

    descr = "fabricbench beside the Intel MPI Benchmarks"
    operation = parameter(["pingpong", "bidirectional", "alltoall", "allreduce"])
    buffers = parameter(["H H", "D D"])
    nodes = parameter([1])
    sizes = {"host": "8B:32MiB", "other": "8B:128MiB"}
    tags = {"witness"}
