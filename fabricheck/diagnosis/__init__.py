"""From judgements and evidence to findings: which component, hardware or software, explains what is slow. The one place
that blames.

Not here: what is slow, which the judge and the history say, and how a finding is drawn.
"""
