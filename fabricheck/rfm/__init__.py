"""What the tests in checks/ are made of: ReFrame fixtures and mixins."""

from fabricheck.rfm.build import BuildFabricbench
from fabricheck.rfm.measure import FabricbenchCheck
from fabricheck.rfm.tuning import ServiceLevelComparison, TuningComparison, settings_to_compare
from fabricheck.rfm.vendor import ImbCheck, NcclTestsCheck, OsuCheck, RcclTestsCheck
from fabricheck.rfm.witness import ImbWitness, NcclWitness, OsuWitness

__all__ = [
    "BuildFabricbench",
    "FabricbenchCheck",
    "ImbCheck",
    "ImbWitness",
    "NcclTestsCheck",
    "NcclWitness",
    "OsuCheck",
    "OsuWitness",
    "RcclTestsCheck",
    "ServiceLevelComparison",
    "TuningComparison",
    "settings_to_compare",
]
