"""From judgements and evidence to findings: which component, hardware or software, explains slow results.

The one place that blames. And what a session tells beside verdicts, which turns no run red by its speed: affinity, what
was not measured; and of two settings or programs, A and B interleaved in one job: does a setting still help, does
another tool get the same.

Not here: measuring, the verdict of a metric (`judge`), and words for people (`report`).
"""
