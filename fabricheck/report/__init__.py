"""What people and programs see of judged runs: terminal, page, JSON, JUnit, Prometheus.

Here: text and figures. Not here: measuring, judging; whatever is worth a number is worth it before it is drawn.
"""
