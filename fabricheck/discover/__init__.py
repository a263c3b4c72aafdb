"""Writes a first topology.yaml and settings.py of a node from what the node says of itself.

A node is read in two steps: `capture` keeps the answers of drivers and kernel as files of a directory, `facts` reads
those files. So everything but the asking is tested without the hardware.
"""
