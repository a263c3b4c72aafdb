import reframe as rfm
from reframe.core.builtins import parameter

from fabricheck.rfm import BurnInCheck


@rfm.simple_test
class BurnIn(rfm.RunOnlyRegressionTest, BurnInCheck):
    """All GPUs multiply matrices while an allreduce and copies from and to the host go on, as in jobs."""

    descr = "compute, traffic and host copies at the same time"
    transport = parameter(["ccl", "mpi"])
    operations = ["allreduce"]
    schedules = ["uncontended"]
    sizes = {"host": "1MiB", "other": "256MiB"}
    tags = {"burn-in"}
