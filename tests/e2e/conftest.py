"""What the tests of this folder share."""

from tests.toy import toy

__all__ = ["toy"]
