"""Iterations and set-ups in which nothing went on for seconds, which neither a median nor a percentile shows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fabricheck.judge.evidence import short_name
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.component import Component
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict

# Of 26,830 recorded series of healthy machines (docs/results) none has an iteration that took 0.37 s more than its
# median; retransmission after a lost link, a hung driver or a paused process take seconds.
_STALL_S = 1.0
_TWICE = 2.0
# The slowest set-up of 1,359 recorded runs took 4 s, on four GPUs; libraries need more for many nodes, so that it is
# told only.
_SETUP_S = 20.0
_FLAPS = frozenset(("nic-flaps", "gpu-links-down"))


def find_stalls(judged: RunJudgement) -> Iterator[Finding]:
    """Where a run stood still: DEGRADED where it did so more than once, or its nodes say that a link went down."""
    run = judged.run
    slow: list[tuple[float, int, int]] = []
    for number, each in enumerate(run.samples):
        if each.times_ns.size > 1:
            middle = float(np.median(each.times_ns))
            late = each.times_ns[(each.times_ns > _TWICE * middle) & (each.times_ns - middle > _STALL_S * 1e9)]
            slow += [(float(late.max()) / 1e9, late.size, number)] if late.size else []
    flapped = any(each.code in _FLAPS for each in judged.problems)
    name = run.path or judged.test
    if slow:
        seconds, _, number = max(slow)
        count, samples = sum(each for _, each, _ in slow), run.samples[number]
        total = sum(each.times_ns.size for each in run.samples)
        usual = float(np.median(samples.times_ns)) / 1e6
        hosts = dict.fromkeys(short_name(run.ranks[each].host) for each in samples.ranks if each < len(run.ranks))
        text = (
            f"{samples.operation} of {samples.bytes:,} bytes made no progress for {seconds:.3g} s, its median is "
            f"{usual:.3g} ms: {count} of {total:,} iterations of the run took seconds"
            f"{'; a link went down' if flapped else ''}"
        )
        verdict = Verdict.DEGRADED if count > 1 or flapped else Verdict.PASS
        yield Finding("stalled", verdict, text, tuple(map(Component.of_node, hosts)), seconds, usual / 1e3, "s")
    setup_s = float((run.footer or {}).get("setup_ns", 0)) / 1e9
    if setup_s > _SETUP_S:
        text = f"{name}: the set-up of {len(run.ranks):,} ranks took {setup_s:.3g} s"
        yield Finding("stalled", Verdict.DEGRADED if flapped else Verdict.PASS, text, (), setup_s, None, "s")
