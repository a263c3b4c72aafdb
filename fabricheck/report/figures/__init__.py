"""The figures of the report, each with the table that says the same.

Quartiles and quantiles are computed here: of the samples themselves nothing goes into a report.
"""

from fabricheck.report.figures.of_run import figures_of
from fabricheck.report.figures.tables import Cell, Curve, Curves, Figure, Listing, Matrix, Point, Rows

__all__ = ["Cell", "Curve", "Curves", "Figure", "Listing", "Matrix", "Point", "Rows", "figures_of"]
