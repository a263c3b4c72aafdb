"""One run of the suite: ReFrame is started and its report read, its files are judged, and all is stored.

Here: what must have run did run. Not here: how one metric is judged, options and output of commands.
"""
