"""The link graph of a node and the network between nodes: their file, schema and routes.

Sources are cited as in `limits`.

Rates are Gb/s (10^9 bit/s) in one direction everywhere; every link is full duplex and the same both ways.

Here: what is where and how it is linked, and pure functions of that. Not here: limits, verdicts, ReFrame.
"""
