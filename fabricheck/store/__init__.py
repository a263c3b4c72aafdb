"""The sample store: what every run measured and how it was judged, for as long as the site wants to look back."""

from fabricheck.store.reading import history

__all__ = ["history"]
