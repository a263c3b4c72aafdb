"""What the `extras` of a partition in a site's settings say beside what ReFrame knows, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fabricheck.results.fabricbench_format import PLAN_SETTINGS, is_plan_setting

#: Keys of earlier versions, and what they are called now.
RENAMED = {"lacks": "unsupported"}


def renamed_keys(extras: Mapping[str, object]) -> Iterator[str]:
    """One line for each key of an earlier version, which nothing reads any more."""
    for old, new in RENAMED.items():
        if old in extras:
            yield f"{old!r} in extras is called {new!r} now: rename it"


def most_bytes_problems(extras: Mapping[str, object]) -> Iterator[str]:
    """What is wrong with `most_bytes`, the largest size that checks of a partition measure, in bytes."""
    most = extras.get("most_bytes", 1)
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        yield f"most_bytes {most!r} in extras is no number of bytes: give a whole number, such as {1 << 20}"


def number_of_nodes(extras: Mapping[str, object], by_topology: int) -> int:
    """How many nodes a partition has: as its `extras` say, else its topology; 0 where neither does."""
    nodes = extras.get("nodes")
    return nodes if isinstance(nodes, int) else by_topology


def nodes_problems(partition: Mapping[str, object], by_topology: int) -> Iterator[str]:
    """What a partition does not say of its number of nodes, so that checks of the network would silently not exist."""
    found = partition.get("extras")
    extras: Mapping[str, object] = found if isinstance(found, dict) else {}
    for name in ("nodes", "most_nodes"):
        value = extras.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            yield f"{name} {value!r} in extras is no number of nodes: give a whole number from 1 up"
            return
    known, features = number_of_nodes(extras, by_topology), partition.get("features")
    if known == 0 and partition.get("scheduler") != "local":
        missing = "says nowhere how many nodes it has, so none of its network would be checked"
        yield f"{missing}: give nodes in extras, or fabric or network in topology.yaml; 1 for single nodes"
    elif known < 2 and isinstance(features, list) and "multinode" in features:
        yield f"has the feature multinode and {known or 'no number of'} nodes: give nodes in extras"


def unsupported_settings(extras: Mapping[str, object], settings: Mapping[str, str]) -> str:
    """What of `settings` a partition says that it does not support, with its reasons; empty where all is supported."""
    unsupported = extras.get("unsupported")
    known = unsupported if isinstance(unsupported, dict) else {}
    needed = [f"{name}={value}" for name, value in settings.items()]
    return "; ".join(f"{each}: {known[each]}" for each in needed if each in known)


def unsupported_problems(unsupported: object) -> Iterator[str]:
    """What is wrong with the value of `unsupported`: a reason by each setting that the machine does not support."""
    if not isinstance(unsupported, dict):
        yield "unsupported is no map of settings, such as host_numa=remote, to reasons"
        return
    for setting, reason in unsupported.items():
        if not is_plan_setting(*str(setting).partition("=")[::2]):
            yield f"unsupported has {setting!r}, which is no NAME=VALUE of {', '.join(PLAN_SETTINGS)}"
        if not isinstance(reason, str) or not reason.strip():
            yield f"unsupported has {setting!r} without a reason: say what showed it, and when"
