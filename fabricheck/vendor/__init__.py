"""Text of vendors' tools to records: one reader of a paste, whoever launched the tools and put logs between.

Here: how each tool prints, and what must hold in it. Not here: whether a value is good, where a tool ran.
"""
