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
