"""Files to records, with the guards: fabricbench's own results, and the outputs of vendor suites.

Here: readers that take nothing for granted, and proof of the transport from the logs of libraries. Not here: whether a
value is good.
"""
