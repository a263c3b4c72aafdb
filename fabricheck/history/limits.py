"""Between which values a reference can lie, by the model of the node: from the name of its metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fabricheck.errors import UserError
from fabricheck.history.series import MetricKey
from fabricheck.judge.policy import Scope
from fabricheck.judge.system import SystemJudge
from fabricheck.records.case import parse_case
from fabricheck.records.judgement import Expectation
from fabricheck.records.metrics import parse_metric_name
from fabricheck.records.operations import COLLECTIVES, PAIRS
from fabricheck.topology.of_metric import TRANSPORTS, expectation
from fabricheck.topology.question import FLOOR_FRACTION

# The expectation of a metric measured on so many nodes; None where the model cannot say.
Limits = Callable[[MetricKey, int], Expectation | None]


def limits_of_system(judge: SystemJudge) -> Limits:
    """The limits of a system's metrics. Ranks are taken to drive the GPUs of their node in order, as the checks do.

    The model cannot say anything of metrics that are not named by `fabricheck.records.metrics`, of tests without the
    parameter `transport`, and of systems without a topology.
    """

    def limits(key: MetricKey, nodes: int) -> Expectation | None:
        topology = judge.topology_of(key.partition)
        transport = parse_case(key.test)[1].get("transport")
        try:
            metric = parse_metric_name(key.metric)
        except UserError:
            return None
        operation, schedule = metric.operation, metric.schedule
        if topology is None or operation not in (*PAIRS, *COLLECTIVES) or transport not in TRANSPORTS:
            return None
        ranks = metric.ranks or range(metric.world)
        per_node = len(topology.gpus)
        scope: Scope = "node" if nodes <= 1 else "network"
        rule = judge.policy.floor_for(str(transport), operation, scope, per_node > 0, schedule=schedule)
        try:
            expected = expectation(
                topology,
                operation=operation,
                implementation="transfers" if operation in PAIRS else "library",
                transport=str(transport),
                schedule=schedule,
                devices=[rank % per_node for rank in ranks] if per_node else [],
                nodes=max(nodes, 1),
                bytes=metric.bytes,
                quantity=metric.quantity,
                host_copy_gbps=None,
                ranks=len(ranks),
                floor_fraction=rule.fraction if rule is not None else FLOOR_FRACTION,
            )
        except UserError:
            return None  # these ranks cannot be those of this node
        return replace(expected, source=f"{expected.source}; minimum: {rule.source}") if rule is not None else expected

    return limits
