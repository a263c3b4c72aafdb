"""A site's files: written from what a node reports, and checked together.

Here: init, validate, and what settings of clusters share. Not here: what the files mean for a measurement
(topology, expectation).
"""
