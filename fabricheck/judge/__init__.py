"""Yardsticks, the policy, and the verdict of a metric, a run and a session.

Here: what decides. Not here: what is only told (findings), where a fault is (diagnosis), what changed (history).
"""
