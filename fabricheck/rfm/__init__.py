"""What the tests in checks/ are made of: ReFrame fixtures and mixins.

Here: how a measurement is built, launched and handed to the judge. Not here: what is measured (checks), parsing,
judging.
"""

from fabricheck.rfm.build import BuildFabricbench
from fabricheck.rfm.cross_check import ImbWitness, NcclWitness, OsuWitness
from fabricheck.rfm.measure import FabricbenchCheck
from fabricheck.rfm.tuning import ServiceLevelComparison, TuningComparison, settings_to_compare
from fabricheck.rfm.vendor import ImbCheck, NcclTestsCheck, OsuCheck, RcclTestsCheck

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
