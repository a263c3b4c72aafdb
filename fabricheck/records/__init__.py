"""What was measured and what was said of it: runs, samples, operations, metrics, verdicts.

Here: small frozen dataclasses, and the tables that name things. Not here: files, models, decisions.
"""
