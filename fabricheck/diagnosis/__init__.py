"""From judgements and evidence to findings: which component, hardware or software, explains what is slow.

The one place that blames. Not here: measuring, the verdict of a metric (`judge`), and words for people (`report`).
"""
