"""Judges a node's settings and counters by the rules of config/node_rules.yaml."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, NamedTuple

from pydantic import ConfigDict

from fabricheck.records.node_state import NVLINK_DOMAIN, NodeState
from fabricheck.records.verdict import Verdict
from fabricheck.suite import config_rows
from fabricheck.units import few

_Told = Literal["DEGRADED", "PASS", "beside"]
_Of = Literal[
    "node",
    "GPU",
    "GPU counters",
    "throttling",
    "throttled now",
    "NVLink",
    "infiniband",
    "ethernet",
    "cxi",
    "any port",
]
_Needs = Literal[
    "",
    "GPUs",
    "several GPUs",
    "several devices",
    "RDMA ports",
    "a module for peer memory",
    "NVLink to other nodes",
]
#: Settings by name, or by how much each counter of a part rose during the test.
Facts = Mapping[str, str] | Mapping[str, int]


@dataclass(frozen=True)
class NodeRule:
    """A row of config/node_rules.yaml, which explains its fields."""

    __pydantic_config__ = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    of: _Of
    code: str
    facts: tuple[str, ...]
    text: str
    words: Mapping[str, str] = field(default_factory=dict)
    value: re.Pattern[str] | None = None
    more_than: int = 0
    a_minute: float = 0.0
    share: float = 0.0
    passed: str = ""
    needs: _Needs = ""
    verdict: _Told = "DEGRADED"
    fewer: _Told | None = None
    together: str = ""
    network: bool = False

    def fits(self, value: str | int, passed: int, seconds: float) -> bool:
        """Whether a setting has the value of the rule, or a counter rose by more than the rule allows in `seconds`."""
        if isinstance(value, str):
            return self.value is not None and self.value.fullmatch(value) is not None
        return value > max(self.more_than, self.a_minute * seconds / 60, self.share * (value + passed))


class RuleResult(NamedTuple):
    """What a rule says of a fact. `verdict` means what it means in `Evidence`."""

    rule: NodeRule
    fact: str
    text: str
    verdict: Verdict | None


@cache
def rules_of(*kinds: str) -> tuple[NodeRule, ...]:
    """The rules whose facts are of one of these. Raises UserError for a mistake in the file."""
    return tuple(rule for rule in config_rows("node_rules.yaml", NodeRule) if rule.of in kinds)


def _has_rdma(state: NodeState) -> bool:
    return any(nic.kind == "infiniband" and nic.up for nic in state.nics)


def _needs_module(state: NodeState) -> bool:
    """Whether its ports reach memory of NVIDIA's GPUs by a module for peer memory alone. Omni-Path's driver does so
    itself, and NVIDIA's open one has DMA-BUF."""
    module = state.settings.get("NVIDIA kernel module", "")
    by_module = any(nic.kind == "infiniband" and nic.up and nic.driver != "hfi1" for nic in state.nics)
    return by_module and module != "open" and bool(module or any(gpu.name.startswith("NVIDIA") for gpu in state.gpus))


def _spans_nodes(state: NodeState) -> bool:
    return any(name.startswith(NVLINK_DOMAIN) for gpu in state.gpus for name in gpu.settings)


_NEEDS: Mapping[_Needs, Callable[[NodeState], bool]] = {
    "": lambda state: True,
    "GPUs": lambda state: bool(state.gpus),
    "several GPUs": lambda state: len(state.gpus) > 1,
    "several devices": lambda state: len(state.gpus) + len(state.nics) > 1,
    "RDMA ports": _has_rdma,
    "a module for peer memory": _needs_module,
    "NVLink to other nodes": _spans_nodes,
}


def rises_of(now: Mapping[str, int], before: Mapping[str, int] | None) -> Mapping[str, int]:
    """By how much counters rose; nothing where that is not known, or the driver was loaded again."""
    return {name: value - before.get(name, 0) for name, value in now.items()} if before is not None else {}


def judge_settings(kind: str, settings: Mapping[str, str], state: NodeState) -> Iterator[RuleResult]:
    """What the rules of a kind say of settings of a node."""
    yield from judge_facts([rule for rule in rules_of(kind) if _NEEDS[rule.needs](state)], settings)


def judge_facts(rules: Sequence[NodeRule], facts: Facts, seconds: float = 0.0) -> Iterator[RuleResult]:
    """What rules say of settings, or of counters that rose in `seconds`."""
    taken: set[str] = set()
    for rule in rules:
        items = []
        named = {fact: words for fact, words in _facts(rule, facts) if fact not in taken}
        taken |= named.keys()
        for fact, words in named.items():
            value, passed = facts.get(fact, 0), int(facts.get(rule.passed, 0))
            told = rule.verdict if rule.fits(value, passed, seconds) else rule.fewer
            rose = value if isinstance(value, int) else 0
            if told is None or (isinstance(value, int) and value <= 0):
                continue
            share = 100 * rose / (rose + passed) if rule.passed else 0.0
            text = (rule.together or rule.text).format(name=words, value=value, ms=rose / 1e6, share=share)
            if rule.together:
                items.append(text)
            else:
                yield RuleResult(rule, fact, text, _verdict(told))
        if items:
            yield RuleResult(rule, "", rule.text.format(names=few(items)), _verdict(rule.verdict))


def _verdict(told: _Told) -> Verdict | None:
    return None if told == "beside" else Verdict(told)


def _facts(rule: NodeRule, facts: Facts) -> Iterator[tuple[str, str]]:
    """The facts that a rule names, with their words."""
    for name in rule.facts:
        prefix = len(name.partition("*")[0]) if "*" in name else 0
        for fact in fnmatch.filter(facts, name) if "*" in name else {name} & facts.keys():
            yield fact, rule.words.get(fact) or fact[prefix:]
