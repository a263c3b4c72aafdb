"""The sample store: what every run measured, append-only Parquet in folders, and judging it again.

Here: writing, reading, upkeep, replay. Not here: what the history means (history).
"""

from fabricheck.store.reading import history

__all__ = ["history"]
