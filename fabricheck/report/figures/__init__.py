"""The figures of the report, each with the table that says the same.

Quartiles and quantiles are computed here: of the samples themselves nothing goes into a report.
"""
