import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.rfm import FabricbenchCheck


@rfm.simple_test
class HostCopies(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Explicit copies between GPU and host, each way and both at once (Schieffer et al., section IV-A)."""

    descr = "copies between each GPU and host memory"
    transport = "copy"
    host_memory = parameter(["pinned", "pageable"])
    plan_settings = ["host_memory"]
    operations = ["host_to_device", "device_to_host", "host_bidirectional"]
    schedules = ["uncontended"]
    least_ranks = 1
    sizes = {"other": "16B,64MiB"}
    tags = {"nightly", "acceptance"}
    nightly_only = {"host_memory": ["pinned"]}


@rfm.simple_test
class HostCopyTrains(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Copies one after the other without a wait in between, as nvbandwidth times them."""

    descr = "trains of copies between each GPU and host memory"
    transport = "copy"
    host_memory = "pinned"
    train = 32
    plan_settings = ["host_memory", "train"]
    operations = ["host_to_device", "device_to_host"]
    schedules = ["uncontended"]
    least_ranks = 1
    sizes = {"other": "64KiB,2MiB,16MiB,64MiB"}
    tags = {"acceptance"}


@rfm.simple_test
class NonCoherentHostMemory(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Non-coherent page-locked memory, which the GPU may cache (AMD only; Schieffer et al., table I)."""

    descr = "non-coherent host memory"
    transport = parameter(["copy", "kernel"])
    host_memory = "noncoherent"
    plan_settings = ["host_memory"]
    operations = ["host_to_device", "device_to_host", "host_bidirectional"]
    schedules = ["uncontended"]
    least_ranks = 1
    gpu_libraries = ["rccl"]
    sizes = {"other": "16B,64MiB"}
    tags = {"acceptance"}


@rfm.simple_test
class HostZeroCopy(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Kernels that access host memory in place; host_stream is the STREAM copy (Schieffer et al., section IV-A)."""

    descr = "host memory used by kernels where it lies"
    transport = "kernel"
    host_memory = parameter(["pinned", "managed"])
    plan_settings = ["host_memory"]
    operations = ["host_to_device", "device_to_host", "host_bidirectional", "host_stream"]
    schedules = ["uncontended"]
    least_ranks = 1
    settings = {"HSA_XNACK": "0"}
    sizes = {"other": "16B,64MiB"}
    tags = {"acceptance"}


@rfm.simple_test
class PageableZeroCopy(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Kernels that read and write malloc memory directly: GPU and CPU share page tables (GH200; Schieffer et al.,
    ICPP 2024, "Harnessing Integrated CPU-GPU System Memory for HPC")."""

    descr = "pageable host memory used by kernels where it lies"
    transport = "kernel"
    host_memory = "pageable"
    host_link = "NVLink-C2C"
    plan_settings = ["host_memory"]
    operations = ["host_to_device", "device_to_host", "host_bidirectional", "host_stream"]
    schedules = ["uncontended"]
    least_ranks = 1
    sizes = {"other": "16B,64MiB"}
    tags = {"acceptance"}


@rfm.simple_test
class HostMemory(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Host memory near each GPU by all cores of its NUMA node: reads, STREAM's copy and triad (McCalpin 1995). No copy
    between a GPU and that memory can pass them."""

    descr = "host memory near each GPU, used by all cores of its NUMA node"
    transport = "cores"
    operations = ["host_read", "host_stream", "host_triad"]
    schedules = ["uncontended"]
    least_ranks = 1
    sizes = {"other": "64MiB"}
    tags = {"acceptance"}


@rfm.simple_test
class PageMigration(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Managed memory that migrates to the GPU or CPU using it (AMD: XNACK; Schieffer et al., sections II-C, IV-A)."""

    descr = "managed memory with page migration"
    transport = "kernel"
    host_memory = "migrated"
    plan_settings = ["host_memory"]
    operations = ["host_to_device", "device_to_host"]
    schedules = ["uncontended"]
    least_ranks = 1
    settings = {"HSA_XNACK": "1"}
    sizes = {"other": "64MiB"}
    tags = {"acceptance"}


@rfm.simple_test
class HostNuma(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Host memory on the GPU's own NUMA node and on the farthest one (Schieffer et al., section IV-B)."""

    descr = "host memory near and far"
    transport = "copy"
    host_memory = "pinned"
    host_numa = parameter(["local", "remote"])
    plan_settings = ["host_memory", "host_numa"]
    operations = ["host_to_device", "device_to_host"]
    schedules = ["uncontended"]
    least_ranks = 1
    sizes = {"other": "64MiB"}
    tags = {"acceptance"}


@rfm.simple_test
class HostTogether(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """Bandwidth to host memory of 1 GPU (split over processes), 2, 3, …, all GPUs (Schieffer et al., section IV-C)."""

    descr = "several GPUs and host memory at once"
    transport = parameter(["copy", "kernel"])
    placement = parameter(["same-gpu", "spread"])
    host_memory = "pinned"
    plan_settings = ["host_memory"]
    operations = ["host_to_device", "device_to_host", "host_bidirectional"]
    schedules = ["contended"]
    sizes = {"other": "256MiB"}
    tags = {"acceptance"}


@rfm.simple_test
class MpiHostAndDevice(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    """MPI between the host memory of one rank and the device memory of another (OpenPOWER paper, section 5.3)."""

    descr = "MPI with buffers on different sides"
    transport = "mpi"
    buffers = parameter(["host-device", "device-host"])
    plan_settings = ["buffers"]
    operations = ["pingpong", "unidirectional", "bidirectional"]
    schedules = ["uncontended"]
    needs_gpu = True
    sizes = {"other": "8B,16MiB"}
    tags = {"acceptance"}
