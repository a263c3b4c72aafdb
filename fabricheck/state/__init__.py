"""The machine's own word: what NVML, vendors' tools and sysfs say of a node's GPUs, links and NICs.

Here: capture and readers, each of which ends in bounded time and says why it has no answer. Not here: what is done with
the answers (a site's files: site; verdicts: judge).
"""
