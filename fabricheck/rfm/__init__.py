"""What the tests in checks/ are made of: ReFrame fixtures and mixins."""

from fabricheck.rfm.build import BuildFabricbench
from fabricheck.rfm.measure import FabricbenchCheck

__all__ = ["BuildFabricbench", "FabricbenchCheck"]
