"""The numbers that several modules of judge, diagnosis and history decide by, with where each comes from; what one
alone uses stands beside its rule.

One number for one idea: where two rules ask the same question, both use its name. A source is a paper, a document or a
measurement. *Chosen* says that a number has none.
"""

from __future__ import annotations

import math

# The normal distribution

#: Its standard deviation over its median absolute deviation, 1 / Φ⁻¹(3/4); the variance of a median over that of a
#: mean, π / 2; how many standard deviations 1 value in 100, and 1 in 10, are above: Φ⁻¹(0.99), Φ⁻¹(0.9).
OF_DEVIATION, OF_MEDIAN, ONE_IN_100, ONE_IN_10 = 1.482602, math.pi / 2, 2.326348, 1.281552
#: Log likelihood by which the true one of two hypotheses falls behind in 1 of 100 cases at most: the difference of two
#: is normal (d²/2, d²), and this is the most over all d (docs/fleet.md).
DOUBT = 0.5 * ONE_IN_100**2
#: Prior log odds of a component of which something was seen, or of software that changed when metrics got slow: as much
#: as two that can be told apart differ.
SEEN = 2 * DOUBT

# Errors

#: Of intervals, as usual.
CONFIDENCE = 0.95
#: Of upgrades of a stack to itself as many find nothing worse, or more; of those with a class that lost the margin
#: as many do not call all the same. Either bound of an interval holds with it. And how often a healthy session whose
#: launches share their level is beyond a bound, so that another launch adds nothing; or a test that is launched once.
FALSE_ALARM = 0.01
#: Healthy nodes have an outlier in one session of so many, once in three years of nights; and nodes that differ by
#: chance this rarely are taken to differ. Chosen.
RARELY = 0.001
#: How often the first launch of a healthy session is beyond a bound. It is launched again, as one that is slow twice is
#: judged (`session.launches`): bounds for one launch alone would be paid for twice. `python -m benchmarks.drawn
#: --seed 1607802107 --sessions 20`: a link that loses eight spreads one way is red in 1% of the sessions of the median
#: shape with 0.01, in 65% with 0.3.
FALSE_ALARMS = 0.3

# The smallest effects

#: A tenth of a percent: what a clock cannot tell of a time, relative, and nobody acts on.
RESOLUTION = 0.001
#: Metrics that vary less, relative, are taken to vary by this: the resolution of a clock is no certainty; nor is a
#: fault of a network less.
LEAST_SPREAD = 1e-4
#: Of a smaller loss (logarithm) no part is at fault: to 1% a median is measured (docs/methodology.md, How often).
LEAST_LOSS = 0.01
#: Less is no difference: two jobs that measure the same, one after the other, may differ by so much
#: (interleaved.cross_check).
MARGIN = 0.03

# Wild values

#: Values further from the centre, in robust spreads, count as if they were here (Maronna, Martin, Yohai, Robust
#: Statistics, 2006, chapter 2).
CUT = 3.0
#: The same of the few values of a side of a comparison: one bad launch or session is no change.
CUT_OF_SIDE = 2.0
#: What one session can add to a chart, in spreads, so that it alone cannot raise an alert; and how far a value may move
#: what is known of its node. Chosen.
CLIP = 4.0
#: Standard deviations that one metric counts for at most: no one speaks for a part; and beyond which a machine is no
#: longer one of its part.
MOST_OF_METRIC = 6.0
#: The tail of launches: t with so many degrees of freedom, which is between those of recorded goodputs (index 0.14 to
#: 0.31) and latencies (0.15 to 0.21), and how many metrics, or deviations, that is worth before any was measured.
TAIL_FREEDOM, PRIOR_METRICS, PRIOR_WEIGHT = 5, 2.0, 20

# How many are enough

#: Metrics that cross a part before it can be at fault; iterations of a slow start; recoveries of a node: once
#: is chance.
FEWEST_MEMBERS, FEWEST_AT_FIRST, FEWEST_OF_A_NODE = 2, 2, 2
#: Fewer have no middle that one wild value does not move: sessions of a side, values of a node or a session, pairs that
#: clear a node, nodes of which one has more losses, degrees of freedom; sessions of a streak, turns without a gain; and
#: a metric is missed when it was not measured for so many times as long as it usually is not.
FEWEST_FOR_MIDDLE = 3
#: Sessions by whose median an alert is over, or the new level of a metric is known, from which a further loss counts;
#: a session is compared with what was before so many others. Chosen.
SETTLED_SESSIONS = 5
#: From so many values on there are a robust centre and spread, a trimmed mean, or an answer of an upgrade: 8 normal
#: values tell a spread to 27%, 1/√(2 · 7). Readings of a network.
FEWEST = 8
#: Batches of a series (benchmarks/intervals.py has the coverage), groups that are left out for an error; metrics that
#: tell the spread of another.
BATCHES = 10
#: Sessions after which what lasts is taken to stay: the path of a metric, a better level, what an alert was about.
#: Chosen.
STAYS = 10
#: So many tell a spread to 16%, 1/√(2 · 19), and one of so many is beyond the 95th percentile: sessions of a baseline,
#: metrics that tell what all have in common, deviations of a tail, segments.
ENOUGH = 20
#: Fewer values have no tail that could be told from another.
FEWEST_FOR_TAIL = 200

# Shares

#: Most: of the metrics that cross a part, of a level that is told by itself, of the nodes that sent; and of the best of
#: a group the worst, as shares of what is expected, when all of it is said to be equally slow. Chosen: of a node's four
#: GPUs one has half of its pairs.
MOST = 0.75
#: A NIC of its GPUs sends less: a library may stripe a GPU's data over some NICs; of one that it does not use at all
#: there is next to nothing.
TAKEN = 0.2

# Levels and tails

#: Where deviations are counted, and how finely r is told, in shares of that of normal noise, which is 2 k and the most.
STEP, EXPONENTS = 0.2, 100
#: So many of the largest values, at most, and this share of all make a tail; of deviations this share, for a power.
MOST_PEAKS, PEAKS, SHARE = 500, 0.05, 0.02
#: The share of the metrics of a healthy session that may be beyond their bounds in a launch: of 1,000 that are each
#: launched seven times one is slow in most of them in 0.5% of the sessions, as `session.launches` allows.
VOTED = 0.02

# Time, in sessions of a night

WEEK = 7
#: After an alert its change is looked for in a month, and before it in two; so long ago does not matter. Their
#: middle is the level of a metric whose nodes take turns.
AFTER, BEFORE = 30, 60
#: A year. What was before it says nothing of today, and a metric that needs more runs than this gets no reference.
YEAR = 365

# Nodes and networks

#: How many partners are tried for one that a node has not met; nodes of a leaf whose partner in every second round is
#: on the same leaf, which tells the leaf from its trunks.
TRIES, LOCAL_NODES = 12, 2

# Sizes

#: Where start-up times do not count: of what a system is expected to have, and of pairs of nodes that fill their NIC.
#: Perftest has 128 messages under way, fabricbench one: in one of 64 MiB at 400 Gb/s the 5 us of a message, which OCI
#: requires of ib_write_lat, are 0.4%.
LARGE, FILLS_A_NIC = 1 << 30, 64 << 20

# What a program can do

#: Rounds after which a fit that does not settle ends, and what it settles at.
MOST_STEPS, SETTLED = 50, 1e-9
#: Rows that are worked on, drawn or simulated at once, of which some tell what all have in common, and that are asked
#: about a component: a fleet has 100,000 metrics that cross its driver. Of a year of sessions they take 6 MB.
AT_ONCE = 2048
#: Faults of two units at once are looked for among so many; of a large system, the parts whose members are slowest are
#: looked at more closely; and so many faults are told of one group.
MOST_FOR_TWO, MOST_PARTS, MOST_FAULTS = 16, 64, 8
#: Stacks that are measured beside the old one in a job, at most: that many more make its rounds too long. And more
#: rounds than this are no way to an answer.
MOST_BESIDE, MOST_ROUNDS = 6, 64
#: Characters of an id that are shown.
SHORT = 8
#: More threads than cores: on a network file system reading is waiting.
READERS = 8
#: Of the store on disk.
FORMAT = 2
