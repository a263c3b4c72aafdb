"""What the tests in checks/ are made of: ReFrame fixtures and mixins.

Here: how a measurement is built, launched and handed to the judge. Not here: what is measured (checks), parsing,
judging.
"""

from fabricheck.begin import keep_signals
from fabricheck.rfm.build_fabricbench import BuildFabricbench
from fabricheck.rfm.burn_in import BurnInCheck
from fabricheck.rfm.measure import FabricbenchCheck, NodePairsCheck
from fabricheck.rfm.screen import FleetScreen
from fabricheck.rfm.shared_job import use_shared_jobs
from fabricheck.rfm.suite_parts import (
    ImbSuite,
    LibfabricSuite,
    NcclTestsSuite,
    OneCclSuite,
    OsuSuite,
    PerftestSuite,
    RcclTestsSuite,
    UcxSuite,
)
from fabricheck.rfm.vendor import CrossCheck, VendorCheck

__all__ = [
    "BuildFabricbench",
    "BurnInCheck",
    "CrossCheck",
    "FabricbenchCheck",
    "FleetScreen",
    "ImbSuite",
    "LibfabricSuite",
    "NcclTestsSuite",
    "NodePairsCheck",
    "OneCclSuite",
    "OsuSuite",
    "PerftestSuite",
    "RcclTestsSuite",
    "UcxSuite",
    "VendorCheck",
]

keep_signals()
use_shared_jobs()
