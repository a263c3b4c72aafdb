"""Values of a part from runs on machines that have it, for reference_values/parts/."""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from fabricheck.errors import UserError
from fabricheck.records.metrics import UNITS, Metric, metrics_of
from fabricheck.records.operations import COLLECTIVES, ONE_WAY_MEMORY_PATHS, PAIRS, kernel_settings
from fabricheck.records.run import Device, Run
from fabricheck.records.verdict import Verdict
from fabricheck.statistics.robust import centre_and_spread
from fabricheck.topology.model import Topology
from fabricheck.units import format_size
from fabricheck.yamlfile import on_one_line, round_trip_yaml
from fabricheck.yardsticks.part_values import Part, RunContext, is_comparable, links_on_the_way, load_part
from fabricheck.yardsticks.policy import host_memory_of

#: Names of GPUs of one model may end in a form factor; memory is what is left of it for users.
MEMORY_SLACK = 0.06


def part_text(path: Path, runs: Iterable[tuple[Run, Topology]], name: str, source: CommentedMap) -> str:
    """The text of a part's file, with the values of `runs` under the source `name` beside those of other sources.

    All runs have to be on GPUs of one model. Raises UserError where they are not, where nothing is left to write, and
    where the file is of another part or is not valid.
    """
    devices: list[Device] = []
    values: dict[str, dict[str, list[float]]] = {}  # by `where` as JSON and machine, logarithms
    for run, topology in runs:
        if not is_comparable(run) or any(each.verdict is not Verdict.PASS for each in run.problems):
            continue
        facts = RunContext(run, topology)
        devices += facts.devices.values()
        machine = min((each.uuid for each in facts.devices.values()), default="")
        for metric in metrics_of(run):
            is_product = metric.samples.operation == "product"
            where = _where_of_product(metric, facts) if is_product else _where(metric, facts)
            if where is not None and metric.samples.wrong_bytes == 0:
                # A product is in Tflop/s.
                per_unit = run.product.gbps_of_tflops if is_product and run.product is not None else 1.0
                of_machines = values.setdefault(json.dumps(where), {})
                of_machines.setdefault(machine, []).append(math.log(metric.value / per_unit))
    names = Counter(each.name for each in devices)
    if len(names) != 1:
        raise UserError(f"a part is one model of GPU, and these runs are on {', '.join(sorted(names)) or 'none'}")
    old = load_part(path) if path.exists() else None
    if old is not None and not all(old.is_of(each) for each in devices):
        raise UserError(f"{path}: is of {old.part}, and these runs are on {next(iter(names))}")
    entries = [_value(json.loads(where), machines, name) for where, machines in values.items()]
    return _text(path, old, devices, entries, (name, source))


def source_of(system: str, runs: Sequence[Run]) -> CommentedMap:
    """What a part's file says of runs of a system: where, when, and by which software."""
    days = sorted(str(run.header["started_utc"])[:10] for run in runs if run.header)
    libraries = {
        f"{one['name']} {one.get('version', '')}".strip()
        for run in runs
        for one in (run.header.get("libraries") or {}).values()
        if one and one.get("name")
    }
    fields = CommentedMap(kind="measured", source=f"{len(runs)} runs on {system}")
    if days:
        fields["date"] = days[-1]
    if libraries:
        fields["software"] = ", ".join(sorted(libraries))
    return fields


def _where(metric: Metric, facts: RunContext) -> dict[str, Any] | None:
    """The fields that make a value of one machine that of another with the same part; None where there are none."""
    samples, header = metric.samples, facts.run.header
    transport = header["transport"]
    alone = samples.operation in ONE_WAY_MEMORY_PATHS and len(samples.ranks) == 1
    host_memory = host_memory_of(facts.run, samples) or ""
    hosts = {each.host for each in facts.run.ranks}
    known = samples.schedule == "uncontended" and samples.statistic == "iterations" and len(hosts) == 1
    kernels = kernel_settings(header["plan"])
    known = known and not kernels.keys() - {"ccl_mode"}
    if not known or host_memory not in ("", "pinned") or transport == "staging":
        return None
    if not (alone or samples.operation in (*PAIRS, *COLLECTIVES)) or any(r not in facts.devices for r in samples.ranks):
        return None
    fields = {
        "operations": [samples.operation],
        "transports": [transport],
        "quantity": metric.quantity,
        "bytes": [format_size(samples.bytes)],
        "ranks": len(samples.ranks),
        "links": links_on_the_way(facts, samples),
        "access": str(header["plan"].get("access") or "write") if transport in ("copy", "kernel") else "",
        "host_memory": host_memory,
        "ccl_mode": kernels.get("ccl_mode", ""),
        "library": _major_minor(facts.library),
    }
    return {name: value for name, value in fields.items() if value}


def _where_of_product(metric: Metric, facts: RunContext) -> dict[str, Any] | None:
    """Of a product that a GPU had by itself; None by our own kernel, which does not show what a part can do."""
    samples, product = metric.samples, facts.run.product
    library, _, _ = facts.library_of(samples).partition(" ")
    if product is None or samples.schedule != "uncontended" or samples.ranks[0] not in facts.devices:
        return None
    if metric.quantity != "goodput" or library == "kernel":
        return None
    return {
        "operations": ["product"],
        "transports": ["ccl", "mpi", "copy", "kernel"],  # what moves data beside has no part in a product
        "quantity": metric.quantity,
        "bytes": [format_size(samples.bytes)],
        "ranks": 1,
        "product": product.type,
        "library": library,
    }


def _major_minor(library: str) -> str:
    name, _, version = library.rpartition(" ")
    return f"{name} {'.'.join(version.split('.')[:2])}" if name else library


def _value(where: dict[str, Any], machines: dict[str, list[float]], source: str) -> CommentedMap:
    centres = np.array([np.median(each) for each in machines.values()])
    every = np.concatenate([np.asarray(each) for each in machines.values()])
    between = float(np.std(centres, ddof=1)) if centres.size > 1 else 0.0
    # Pairs, GPUs and launches of a machine differ too.
    inside = float(centre_and_spread(every).spread) if every.size > 1 else 0.0
    return CommentedMap(
        where=on_one_line(where),
        value=float(f"{math.exp(float(np.median(centres))):.4g}"),
        unit="Tflop/s" if "product" in where else UNITS[where["quantity"]],
        spread=float(f"{max(between, inside):.2g}"),
        machines=len(machines),
        source=source,
    )


def _text(
    path: Path,
    old: Part | None,
    devices: Sequence[Device],
    values: Sequence[CommentedMap],
    source: tuple[str, CommentedMap],
) -> str:
    if not values:
        raise UserError("no value to write: no run is on one node with a GPU for each rank")
    yaml = round_trip_yaml(1000)
    if old is not None:
        content = yaml.load(path.read_text(encoding="utf-8"))
    else:
        memory = [each.memory_bytes / 2**30 for each in devices]
        content = CommentedMap(
            part=devices[0].name,
            names=on_one_line([devices[0].name]),
            memory_gib=on_one_line(
                [round(min(memory) * (1 - MEMORY_SLACK), 1), round(max(memory) * (1 + MEMORY_SLACK), 1)]
            ),
            sources=CommentedMap(),
            values=CommentedSeq(),
        )
    name, fields = source
    content["sources"][name] = fields
    kept = [one for one in content["values"] if one["source"] != name]
    content["values"] = CommentedSeq([*kept, *values])
    text = io.StringIO()
    yaml.dump(content, text)
    return text.getvalue()
