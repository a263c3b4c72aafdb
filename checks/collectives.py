import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.rfm import FabricbenchCheck


@rfm.simple_test
class Collectives(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Six collectives over all GPUs of a node (De Sensi et al., SC24, section IV)."""

    descr = "collectives over all GPUs of a node"
    transport = parameter(["staging", "copy", "ccl", "mpi"])
    operations = ["alltoall", "allreduce", "allgather", "reduce_scatter", "broadcast", "reduce"]
    sizes = {"host": "16B:16MiB:4", "staging": "16B:64MiB:4", "other": "16B:1GiB:4"}
    tags = {"nightly", "acceptance", "papers"}
    nightly_only = {"transport": ["copy", "ccl", "mpi"]}


@rfm.simple_test
class EveryMessage(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Checks every byte of 1,000 iterations between all pairs of ranks: finds rare data errors."""

    descr = "every byte of every message of an alltoall over all GPUs of a node"
    transport = parameter(["copy", "ccl", "mpi"])
    verify = "every"
    plan_settings = ["verify"]
    operations = ["alltoall"]
    budget = 2.0
    least_iterations = 1000
    sizes = {"host": "1MiB", "other": "8MiB"}
    tags = {"smoke", "nightly", "acceptance"}


@rfm.simple_test
class CollectiveTrains(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Operations one after the other without a wait in between, as nccl-tests time them."""

    descr = "trains of collectives over all GPUs of a node"
    transport = "ccl"
    train = 20
    plan_settings = ["train"]
    operations = ["alltoall", "allreduce", "allgather", "reduce_scatter"]
    sizes = {"other": "64KiB,2MiB,16MiB,1GiB"}
    tags = {"acceptance"}


@rfm.simple_test
class InPlaceCollectives(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Collectives in place: the result overwrites the input, as in PyTorch's all_reduce."""

    descr = "collectives in place over all GPUs of a node"
    transport = "ccl"
    in_place = "yes"
    plan_settings = ["in_place"]
    operations = ["allreduce", "allgather", "reduce_scatter"]
    gpu_libraries = ["nccl", "rccl"]
    sizes = {"other": "64KiB,1GiB"}
    tags = {"acceptance"}


@rfm.simple_test
class ReducedPrecision(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Reductions of bfloat16, and of FP8 from NCCL 2.24 and Hopper on."""

    descr = "reductions of numbers of 16 and 8 bits"
    transport = "ccl"
    datatype = parameter(["bfloat16", "float8_e4m3"])
    plan_settings = ["datatype"]
    operations = ["allreduce", "reduce_scatter"]
    gpu_libraries = ["nccl"]
    sizes = {"other": "64KiB,1GiB"}
    tags = {"acceptance"}


@rfm.simple_test
class CollectivesInModes(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """NCCL with registered buffers, in CUDA graphs, and as several communicators at once."""

    descr = "collectives with NCCL's buffers registered, in graphs, by several communicators"
    transport = "ccl"
    ccl_mode = parameter(["registered", "graph-20", "communicators-2"])
    plan_settings = ["ccl_mode"]
    operations = ["allreduce", "alltoall"]
    gpu_libraries = ["nccl"]
    sizes = {"other": "1KiB,512MiB"}
    tags = {"acceptance"}


@rfm.simple_test
class SymmetricCollectives(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """NCCL's kernels for symmetric windows, from 2.27 on."""

    descr = "collectives between symmetric windows"
    transport = "ccl"
    ccl_mode = "symmetric"
    plan_settings = ["ccl_mode"]
    operations = ["allreduce", "allgather", "reduce_scatter"]
    gpu_libraries = ["nccl"]
    sizes = {"other": "1KiB,512MiB"}
    tags = {"acceptance"}


@rfm.simple_test
class CopyEngineCollectives(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """NCCL 2.28 and later: alltoall and allgather by copy engines instead of kernels."""

    descr = "collectives by copy engines"
    transport = "ccl"
    ccl_mode = "copy-engine"
    plan_settings = ["ccl_mode"]
    operations = ["alltoall", "allgather"]
    gpu_libraries = ["nccl"]
    sizes = {"other": "1KiB,512MiB"}
    tags = {"acceptance"}
