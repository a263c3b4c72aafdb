import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.rfm import FabricbenchCheck


@rfm.simple_test
class PeerCopies(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Latency (16 B) and bandwidth matrix of GPUs, by copy engine and STREAM kernel (Schieffer et al., section V)."""

    descr = "peer copies by copy engine and kernel, reading and writing"
    transport = parameter(["copy", "kernel"])
    access = parameter(["write", "read"])
    plan_settings = ["access"]
    operations = ["unidirectional", "bidirectional"]
    schedules = ["uncontended"]
    sizes = {"other": "16B,1GiB"}
    tags = {"nightly", "acceptance"}


@rfm.simple_test
class PeerCopyTrains(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Copies one after the other without a wait in between, as nvbandwidth and rocm_bandwidth_test time them."""

    descr = "trains of peer copies by copy engine and kernel"
    transport = parameter(["copy", "kernel"])
    train = 32
    plan_settings = ["train"]
    operations = ["unidirectional", "bidirectional"]
    schedules = ["uncontended"]
    sizes = {"other": "64KiB,2MiB,16MiB,256MiB"}
    tags = {"acceptance"}


@rfm.simple_test
class PeerCopiesWithoutEngines(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """With SDMA off, AMD's runtime copies with kernels and exceeds 50 GB/s (Schieffer et al., section V-A2)."""

    descr = "peer copies without SDMA engines"
    transport = "copy"
    operations = ["unidirectional", "bidirectional"]
    schedules = ["uncontended"]
    gpu_libraries = ["rccl"]
    settings = {"HSA_ENABLE_SDMA": "0", "HSA_ENABLE_PEER_SDMA": "0"}
    sizes = {"other": "16B,1GiB"}
    tags = {"acceptance"}


@rfm.simple_test
class LocalCopies(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """A GPU with itself: the diagonal of the peer matrices, and the STREAM copy (Schieffer et al., section V-B)."""

    descr = "copies inside each GPU's memory"
    transport = parameter(["copy", "kernel"])
    operations = ["local_copy"]
    schedules = ["uncontended"]
    least_ranks = 1
    sizes = {"other": "16B,1GiB"}
    tags = {"nightly", "acceptance"}


@rfm.simple_test
class LocalCopyTrains(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Copies inside a GPU's memory, one after the other without a wait in between."""

    descr = "trains of copies inside each GPU's memory"
    transport = parameter(["copy", "kernel"])
    train = 32
    plan_settings = ["train"]
    operations = ["local_copy"]
    schedules = ["uncontended"]
    least_ranks = 1
    sizes = {"other": "64KiB,2MiB,16MiB,256MiB"}
    tags = {"acceptance"}


@rfm.simple_test
class SharedGpu(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Two processes on one GPU (OpenPOWER paper, section 5.2)."""

    descr = "two processes on one GPU"
    transport = parameter(["copy", "mpi"])
    operations = ["pingpong", "unidirectional", "bidirectional"]
    schedules = ["uncontended"]
    needs_gpu = True
    ranks_per_device = 2
    more_options = ["--pairs=0-1"]
    sizes = {"other": "8B,512MiB"}
    tags = {"acceptance"}
