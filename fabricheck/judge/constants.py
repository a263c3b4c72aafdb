"""The numbers that judge, diagnosis and history decide by, with where each comes from: no other module of these rooms
has one (`tests/test_house.py`).

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
#: What 8 normal values without their ends need so that an interval of 99.9% covers that much; more values need less.
WIDTH_OF_TRIMMED = 1.11
#: (new value - centre) / (spread · sqrt(1 + 1/n)) of n independent normal values has nearly the quantiles of WIDTH
#: times a t distribution with n - LOST_FREEDOM degrees of freedom: fitted at 99%, 99.9% and 99.99% to simulated sets of
#: 8 to 200 values; `benchmarks/regression.py` measures the coverage.
LOST_FREEDOM, WIDTH = 1.4, 1.006

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
#: The share of these that is for metrics alone; the rest is for those of a part together. Chosen.
ALONE = 0.75
#: For how many metrics at least the false alarms of a session are counted, as everywhere in docs/how-we-know.md.
MANY_METRICS = 1000
#: One session alone is an alert where it is as far out as healthy sessions of all metrics together are once in so many,
#: and half as far again, for what that is told from may be few; and never below so many spreads. Chosen.
JUMP_SESSIONS, JUMP_MARGIN, LEAST_JUMP, FEWEST_FOR_JUMP = 300_000, 1.5, 10.0, 1000
#: How often a streak of healthy sessions is an alert; with CHARTS less than one in 30,000, a month of 1,000 metrics.
FALSE_ALARMS_OF_STREAK = 1 / 80_000
#: Of the probability of a false alarm, what the first fault of a network gets: tails that are heavier than the model's
#: (t with three degrees of freedom) make false alarms several times as frequent. The second gets twice FURTHER of it,
#: the third three times: what counts is the share of false ones among the faults that are named (Benjamini and
#: Hochberg, 1995).
FIRST_FAULT, FURTHER = 0.1, 0.2

# The smallest effects

#: A tenth of a percent: what a clock cannot tell of a time, relative, and nobody acts on.
RESOLUTION = 0.001
#: Metrics that vary less, relative, are taken to vary by this: the resolution of a clock is no certainty; nor is a
#: fault of a network less.
LEAST_SPREAD = 1e-4
#: Metrics that `watch` follows and that vary less (a clock's resolution) are taken to vary by this. Relative. Chosen.
LEAST_OF_WATCHED = 0.0002
#: Of a smaller loss (logarithm) no part is at fault: to 1% a median is measured (docs/methodology.md, How often).
LEAST_LOSS = 0.01
#: Less is no difference: two jobs that measure the same, one after the other, may differ by so much
#: (interleaved.cross_check).
MARGIN = 0.03
#: A tail that is longer by less costs nobody anything; and how much those of healthy peers differ at least. Chosen.
LEAST_EXCESS, LEAST_SPREAD_OF_TAILS = 0.1, 0.02

# Wild values

#: Values further from the centre, in robust spreads, count as if they were here (Maronna, Martin, Yohai, Robust
#: Statistics, 2006, chapter 2).
CUT = 3.0
#: The same of the few values of a side of a comparison: one bad launch or session is no change.
CUT_OF_SIDE = 2.0
#: What one session can add to a chart, in spreads, so that it alone cannot raise an alert; and how far a value may move
#: what is known of its node. Chosen.
CLIP = 4.0
#: What one measurement can add to a log likelihood: a single one, however wild, is not to decide. And what the fit of
#: a move may add to what it gains before: where more is missing, it is not tried. Chosen.
MOST_OF_ONE = 4.0
#: Standard deviations that one metric counts for at most: no one speaks for a part; and beyond which a machine is no
#: longer one of its part.
MOST_OF_METRIC = 6.0
#: Sessions in a row beyond so many robust spreads are an incident: of the noises of benchmarks.noise healthy histories
#: lose 0.7% of their sessions at most, those of an incident of -26% are found in 99% (tests/history/test_left_out.py).
OF_INCIDENT = 6.0
#: So many readings are anything at all, evenly over a range of logarithms.
OUTLIERS, RANGE = 0.05, 2.0
#: The tail of launches: t with so many degrees of freedom, which is between those of recorded goodputs (index 0.14 to
#: 0.31) and latencies (0.15 to 0.21), and how many metrics, or deviations, that is worth before any was measured.
TAIL_FREEDOM, PRIOR_METRICS, PRIOR_WEIGHT = 5, 2.0, 20
TAIL_INDEX = 1 / TAIL_FREEDOM
#: How well the spread of peers is known before they are looked at, in degrees of freedom. With 8 the tails are those of
#: recorded launches: of 3,000 goodputs of healthy H200 one lay 5 standard deviations from its peers.
PRIOR_FREEDOM = 8

# How many are enough

#: Rounds of a comparison; and how often an upgrade looks for an answer: where the first rounds cannot say, once more
#: after so many as it needs. Chosen.
FEWEST_ROUNDS, LOOKS = 2, 2
#: The last sessions in which a node has to be slow: one can have a hiccup.
SLOW_SESSIONS = 2
#: A change can be found in a session so much before or after its own: of a loss of three spreads or more, a session is
#: taken for one of the other side in 1 of 15, and two in a row in 1 of 200.
NEAR = 2
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
#: A baseline, which changes slowly, is fitted again after so many sessions, or once it has grown by this share. Chosen.
FIT_EVERY, FIT_GROWN = 5, 0.1
#: The first errors are of a level that nobody knows yet. Chosen.
FIRST_ERRORS = 5
#: Fewer iterations do not tell how much a series varies. Chosen.
FEWEST_ITERATIONS = 5
#: The median of so many has lighter tails than each of them. Chosen.
FEWEST_FOR_NORMAL = 5
#: A batch outlasts what neighbours have in common, as so many correlation times do (Sokal, Monte Carlo Methods in
#: Statistical Mechanics, 1997, section 3).
CORRELATION_TIMES = 5
#: From so many peers on, as a node of four GPUs has pairs, wild ones do not count for the spread: from 8 on alone a GPU
#: that lost five spreads is found in 55% and not in 59%.
FEWEST_TO_CUT = 6
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
#: So many metrics tell between them what their levels do. Chosen by losses found in simulated histories of nodes
#: (tests/history/test_node_effects.py).
FEWEST_OF_LEVELS = 64
#: Fewer values have no tail that could be told from another.
FEWEST_FOR_TAIL = 200

# Shares

#: Most: of the metrics that cross a part, of a level that is told by itself, of the nodes that sent; and of the best of
#: a group the worst, as shares of what is expected, when all of it is said to be equally slow. Chosen: of a node's four
#: GPUs one has half of its pairs.
MOST = 0.75
#: A load that drifts is slower in the last of so many parts than in the first. Chosen.
PARTS_OF_LOAD = 4
#: Nearly all: metrics of a group that lost something as a whole, bytes that the kernel counted. Chosen.
NEARLY_ALL = 0.9
#: Half of a robust width has this share of the values outside, on each side; a second mode that holds more belongs to
#: the spread. Chosen.
OUTSIDE = 0.1
#: Parts that more of the readings cross are tried together. Chosen.
WIDE = 0.1
#: A node has little memory left where less of it is free. Chosen.
LITTLE_MEMORY = 0.1
#: A NIC of its GPUs sends less: a library may stripe a GPU's data over some NICs; of one that it does not use at all
#: there is next to nothing.
TAKEN = 0.2
#: Names of GPUs of one model may end in a form factor; memory is what is left of it for users.
MEMORY_SLACK = 0.06

# Levels and tails

#: What keeps less of its distance than this stands, as most metrics do: it would explain 1 in 400 of the variance.
STANDS = 0.05
#: Only a level that comes back this surely is taken to: to follow costs less than to take for a loss what a level does;
#: one of few metrics is taken to go about only where that is as sure. Chosen.
SURE = 0.9
#: A level wanders where sessions to come vary by so many times the variance of those that were seen
#: (`benchmarks.calibration --levels`). Chosen.
WANDERS = 3.0
#: More than twelve independent metrics of twenty sessions show by chance (three standard errors): neighbouring sessions
#: are correlated.
CORRELATED = 0.2
#: What at least so many of the metrics do is what all do. Chosen.
OUTER = 0.35
#: C of normal noise, noise with 0.2% to 15% of dips and with a second mode of 7% to 30% lies between 0.03 and 0.28, by
#: the chain of Brook and Evans (Biometrika 59, 1972; tests/history/test_charts.py).
MOST_OF_RATE = 0.28
#: Where deviations are counted, and how finely r is told, in shares of that of normal noise, which is 2 k and the most.
STEP, EXPONENTS = 0.2, 100
#: So many of the largest values, at most, and this share of all make a tail; of deviations this share, for a power.
MOST_PEAKS, PEAKS, SHARE = 500, 0.05, 0.02
#: Few runs may have missed what goes wrong rarely: the index is taken so many of its standard errors larger than found,
#: which covers that of four systems in five, Φ⁻¹(0.8); a bound by peaks so many of its own. Chosen.
CAUTION, CAUTION_OF_PEAKS = 0.84, 2.5
#: The share of the metrics of a healthy session that may be beyond their bounds in a launch: of 1,000 that are each
#: launched seven times one is slow in most of them in 0.5% of the sessions, as `session.launches` allows.
VOTED = 0.02
#: An improvement was better by so much each session, in spreads: ten in a row by chance 1 time in 10⁸. Chosen.
BETTER_EACH = 1.0

# Time, in sessions of a night

WEEK = 7
#: After an alert its change is looked for in a month, and before it in two; so long ago does not matter. Their
#: middle is the level of a metric whose nodes take turns.
AFTER, BEFORE = 30, 60
#: A year. What was before it says nothing of today, and a metric that needs more runs than this gets no reference.
YEAR = 365

# Nodes and networks

#: Of the segments that a node received, the share that came after a gap, and of those that the others sent, the share
#: that made them recover from a loss. On healthy shaped links, whose shaper drops what is too fast, up to 6% and
#: 0.036%; where 1% of the packets to a node are lost, 6% to 44% and 0.047% to 0.11% (docs/state.md). So many gaps tell
#: alone. Of those that it sent, the share that it sent again: on the same links up to 0.6% where pairs take turns, and
#: up to 3.6% where four nodes sent to one another at once.
TCP_SHARE, RECOVERIES_SHARE, GAPS_ALONE = 0.02, 5e-4, 0.1
#: With 0.1% of the packets lost, 3% to 8% and 11 to 25 recoveries, at every other node and of a packet or few each: at
#: the middle one 1.0 to 4.7 segments were sent again for a recovery, where a shaper, which drops what comes together,
#: had 25. Who is late on busy cores has as many.
RESENT_AT_ONCE, FEWEST_RECOVERIES = 8.0, 10
#: A node whose share is so many times that of the middle of the others. Chosen.
TIMES_OTHERS = 4.0
#: A GPU is busy from so many percent on; a context of CUDA takes at least so much of its memory.
LEAST_BUSY, LEAST_OF_CONTEXT = 5, 100_000_000
#: A launcher starts all nodes within its own time-out (fabricheck.rfm.command_line); larger differences are of clocks.
CLOCK_S = 60.0
#: Of 26,830 recorded series of healthy machines (docs/results) none has an iteration that took 0.37 s more than its
#: median; retransmission after a lost link, a hung driver or a paused process take seconds.
STALL_S = 1.0
#: The slowest set-up of 1,359 recorded runs took 4 s, on four GPUs; libraries need more for many nodes, so that it is
#: told only.
SETUP_S = 20.0
#: A series is slow at first where several iterations took so much longer than its median, and lost so much together. Of
#: 27,004 recorded series of healthy machines (docs/results) 359 have the first, and none has both; two begin with a
#: single iteration that took 0.28 and 0.36 s more, on the busy cores of an emulated cluster.
SLOW_AT_FIRST, LEAST_LOST_S = 1.5, 0.2
#: Of the times of a pair: processors and other traffic add to them, and take nothing away.
QUANTILE = 25
#: How many partners are tried for one that a node has not met; nodes of a leaf whose partner in every second round is
#: on the same leaf, which tells the leaf from its trunks.
TRIES, LOCAL_NODES = 12, 2
#: The best moves of a fit that are tried. Chosen.
CANDIDATES = 4
#: The best further moves that are tried beside each. Chosen.
SECOND_MOVES = 2

# Sizes

#: A mebibyte, which is read or written at once.
MIB = 1 << 20
#: Where start-up times do not count: of what a system is expected to have, and of pairs of nodes that fill their NIC.
#: Perftest has 128 messages under way, fabricbench one: in one of 64 MiB at 400 Gb/s the 5 us of a message, which OCI
#: requires of ib_write_lat, are 0.4%.
LARGE, FILLS_A_NIC = 1 << 30, 64 << 20
#: Perftest's size is 2 B; up to this size NICs take a message with its descriptor, and the time is the same.
INLINE_BYTES = 64
#: Two right benchmarks agree over large messages, but where these take so short a time that the start of a transfer is
#: a part of it that counts: 16 MiB over 400 GB/s.
LEAST_US = 200.0

# What a program can do

#: So many components may together be what looked like one. Chosen.
MOST_FOR_ONE = 3
#: Rounds after which a fit that does not settle ends, and what it settles at.
MOST_STEPS, SETTLED = 50, 1e-9
#: Rows that are worked on, drawn or simulated at once, of which some tell what all have in common, and that are asked
#: about a component: a fleet has 100,000 metrics that cross its driver. Of a year of sessions they take 6 MB.
AT_ONCE = 2048
#: Densities that are held at the same time, and sets of parts times readings.
MOST_AT_ONCE = 500_000
#: Seconds after which work on a history says how far it is, and again. Chosen.
PROGRESS_S = 10.0
#: Orders of the residuals that are drawn for all metrics together.
DRAWS = 20_000
#: Least squares of more nodes than these take minutes for a few metrics.
MOST_NODES_OF_PAIRS = 1000
#: All pairs of more ports would need gigabytes; a screen of so many measures few of each switch.
MOST_PORTS = 4096
#: Faults of two units at once are looked for among so many; of a large system, the parts whose members are slowest are
#: looked at more closely; and so many faults are told of one group.
MOST_FOR_TWO, MOST_PARTS, MOST_FAULTS = 16, 64, 8
#: More make a file that is not read again (`yamlfile`), and that ReFrame takes minutes for.
MOST_METRICS = 15_000
#: Stacks that are measured beside the old one in a job, at most: that many more make its rounds too long. And more
#: rounds than this are no way to an answer.
MOST_BESIDE, MOST_ROUNDS = 6, 64
#: More of what is in order, or of one kind of message, would hide what is not.
MOST_LINES = 20
#: Characters of an id that are shown.
SHORT = 8
#: More threads than cores: on a network file system reading is waiting.
READERS = 8
#: What compare, calibrate and watch took for each value of a history, in bytes, at most (`python -m benchmarks.scale
#: --history`, docs/results/simulated); for eight sessions of few values; and for each two sessions of a year: more than
#: the 0.37 GB of 100 metrics in `compare`. Calibrate had 76 matrices of them, in four copies, and has none now.
OF_A_VALUE, OF_A_PROCESS, OF_TWO_SESSIONS = 1900, 220_000_000, 76 * 8 * 4
#: Of the store on disk.
FORMAT = 2
#: Share of a test: a GPU that stood still for a second in a minute has lost less than any bound.
MOST_THROTTLED = 1 / 60
#: From here on links decide; below libraries change protocols: NCCL was 31% and 42% below its curve at 16 MiB (over 8
#: A100 and over 2 nodes of 8 H100: benchmarks/published_values.csv).
LARGE_TO_LINKS = 64 << 20
