import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.rfm import FabricbenchCheck


@rfm.simple_test
class SparseMessages(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """An application's messages inside groups, between them and both at once (CommBench, ICS'24, sections 4.4, 5.5)."""

    descr = "irregular messages of an application"
    transport = parameter(["staging", "copy", "ccl", "mpi"])
    operations = ["sparse", "sparse_intra", "sparse_inter"]
    sizes = {"host": "16KiB,16MiB", "other": "16KiB,256MiB"}
    matrix = "src/data/irregular48.mtx"
    ranks = 4
    least_ranks = 4  # two groups of two: a group of one has no messages inside
    tags = {"acceptance"}


@rfm.simple_test
class SparseAlltoallv(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """The same messages by MPI_Alltoallv (CommBench, section 5.5)."""

    descr = "irregular messages of an application by the MPI library's alltoallv"
    transport = parameter(["staging", "mpi"])
    operations = ["sparse_alltoallv"]
    sizes = {"host": "16KiB,16MiB", "other": "16KiB,256MiB"}
    matrix = "src/data/irregular48.mtx"
    ranks = 4
    tags = {"acceptance"}


#: Dispatch and combine of three layers of experts, one after the other: sizes and skew in src/data/moe.py.
MOE_LAYERS = ",".join(f"src/data/moe-{layer}-{way}.mtx" for layer in (3, 60, 58) for way in ("dispatch", "combine"))


@rfm.simple_test
class MoeDispatch(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Dispatch and combine of experts (DeepSeek-R1's load of 32 ranks, DeepSeek-V3's sizes): skewed, and other sizes in
    each layer."""

    descr = "tokens to experts and back, layer after layer, by grouped sends and receives"
    transport = parameter(["ccl", "mpi"])
    nodes = parameter([1, 2])
    operations = ["sparse"]
    sizes = {"host": "8MiB", "other": "64MiB,2GiB"}
    matrix = MOE_LAYERS
    ranks = 2
    warmup = 2
    tags = {"acceptance"}


@rfm.simple_test
class MoeAlltoallv(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """The same by MPI_Alltoallv, which is told other sizes in each call."""

    descr = "tokens to experts and back, layer after layer, by the MPI library's alltoallv"
    transport = "mpi"
    nodes = parameter([1, 2])
    operations = ["sparse_alltoallv"]
    sizes = {"host": "8MiB", "other": "64MiB,2GiB"}
    matrix = MOE_LAYERS
    ranks = 2
    warmup = 2
    tags = {"acceptance"}


@rfm.simple_test
class TrainingStep(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """An allreduce of tensor-parallel groups while a layer is reduce-scattered and gathered across them (GPT-3 175B, as
    Megatron-LM trains it)."""

    descr = "collectives of a layer in training: inside groups and across them at the same time"
    transport = parameter(["ccl", "mpi"])
    nodes = parameter([1, 2])
    operations = ["training_step"]
    sizes = {"host": "2MiB", "other": "1056MiB"}
    ranks = 4
    least_ranks = 4
    warmup = 2
    tags = {"acceptance"}


@rfm.simple_test
class VictimsAndAggressors(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Some GPUs alone and with an alltoall or an incast of others, interleaved (De Sensi et al., SC24, figure 12)."""

    descr = "a victim beside an aggressor, interleaved"
    transport = parameter(["copy", "ccl", "mpi"])
    operations = [
        "victim_pingpong_alltoall",
        "victim_pingpong_incast",
        "victim_alltoall_alltoall",
        "victim_alltoall_incast",
    ]
    sizes = {"host": "1KiB,1MiB", "other": "1KiB,64MiB"}
    ranks = 4
    least_ranks = 4
    tags = {"acceptance"}
