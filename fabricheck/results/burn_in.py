"""The lines of a burn-in in fabricbench's result file: to one record, and to a series for each metric."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fabricheck.records.burn_in import TOGETHER, BurnIn, Counts, Product
from fabricheck.records.component import short_host
from fabricheck.records.node_state import GpuState, KernelEvent, NodeState, States
from fabricheck.records.pair_rule import planned_groups
from fabricheck.records.run import Run, Samples, pci_address
from fabricheck.results.fabricbench_format import (
    BurnInModel,
    BurnInPlanModel,
    HeaderModel,
    JsonObject,
    LoadedNodeModel,
    TimesModel,
    WindowModel,
)
from fabricheck.results.strict_json import validate

_TIMES = ("products", "traffic", "copies", "ring", "allreduce")
# By phase which times its windows have; those of the ranks' lateness only where there are several.
_OF_PHASE = {"compute": {"products"}, "traffic": {"traffic"}, "copies": {"copies"}, TOGETHER: set(_TIMES[:3])}


@dataclass
class BurnInLines:
    """The lines of a burn-in in the order in which they are read."""

    load: BurnInModel | None = None
    windows: list[WindowModel] = field(default_factory=list)
    nodes: list[LoadedNodeModel] = field(default_factory=list)

    def read(self, kind: str, value: JsonObject) -> None:
        """Takes a line. Raises BadLineError where it is not what it has to be."""
        if kind == "burn_in":
            self.load = validate(BurnInModel, value)
        elif kind == "window":
            self.windows.append(validate(WindowModel, value))
        else:
            self.nodes.append(validate(LoadedNodeModel, value))

    @property
    def wrong_words(self) -> int:
        """Of all products, and wrong rows of the first ones."""
        products = [window.products for window in self.windows if window.products]
        return sum(self.load.wrong_rows if self.load else ()) + sum(sum(each.wrong_words) for each in products)

    def shows(self, injected: str) -> bool:
        """Whether a planted defect is one that these lines show. That a product is slow its peers tell."""
        return injected.startswith("slow-product") or (injected.startswith("wrong-product") and self.wrong_words > 0)

    def mistakes(self, header: HeaderModel) -> Iterator[str]:
        """What is wrong with the lines, for a run with this header."""
        load, windows = self.load, self.windows
        if header.plan.burn_in is None:
            if load or windows or self.nodes:
                yield "there are lines of a burn-in, and none was planned"
            return
        ranks, hosts = len(header.ranks), {rank.host for rank in header.ranks}
        if windows and (load is None or {len(load.by), len(load.wrong_rows)} != {ranks}):
            yield f"there is no line burn_in of {ranks} ranks"
        end = 0
        for place, window in enumerate(windows):
            given = {name for name in _TIMES if getattr(window, name) is not None}
            if window.window != place:
                yield f"window {window.window} is at the place of window {place}: lines were lost, repeated or moved"
                return
            if window.begin_ns < end or window.end_ns <= window.begin_ns:
                yield f"window {place} does not begin after the one before it, or ends before it begins"
            if missing := _OF_PHASE[window.phase] - given:
                yield f"window {place} of the phase {window.phase} has no {', '.join(missing)}"
            if any({*map(len, _lists(getattr(window, name)))} != {ranks} for name in given):
                yield f"window {place} is not of {ranks} ranks"
            end = window.end_ns
        for node in self.nodes:
            if node.host not in hosts or node.window >= len(windows):
                yield f"a line of {node.host} in window {node.window} is of no node or window of this run"
                return

    def added_to(self, run: Run, plan: BurnInPlanModel | None) -> Run:
        """The run with the record of these lines, which have no mistakes, and a series for each metric of it."""
        if plan is None or self.load is None or not self.windows:
            return run
        load = _burn_in_of(self.load, self.windows, self.nodes)
        product = Product(plan.product, plan.order, tuple(self.load.by))
        return replace(_with_series(run, plan, load, product), burn_in=load, product=product)


def _lists(times: TimesModel) -> Iterator[Sequence[object]]:
    return (value for _, value in times if isinstance(value, list))


def _burn_in_of(load: BurnInModel, windows: Sequence[WindowModel], nodes: Sequence[LoadedNodeModel]) -> BurnIn:
    """The record of lines without mistakes."""
    ranks = len(load.by)
    wrong = np.array(load.wrong_rows, dtype=np.int64)
    for window in windows:
        wrong += np.array(window.products.wrong_words if window.products else 0, dtype=np.int64)
    return BurnIn(
        phases=tuple(window.phase for window in windows),
        medians={name: _medians(windows, name, ranks) for name in _TIMES},
        wrong=tuple(wrong.tolist()),
        wrong_bytes=sum(sum(window.traffic.wrong_bytes) for window in windows if window.traffic),
        states=_states(windows, nodes),
        why_no_library=load.why_no_library or "",
    )


def _medians(windows: Sequence[WindowModel], name: str, ranks: int) -> Counts:
    rows = [getattr(getattr(window, name), "median_ns", [0] * ranks) for window in windows]
    return np.array(rows, dtype=np.int64).reshape(len(windows), ranks)


def _states(windows: Sequence[WindowModel], nodes: Sequence[LoadedNodeModel]) -> States:
    """What the GPUs reported in their first window, and in the last one with how many nanoseconds each reason was in
    effect, as a counter; and the errors (XID) that the driver reported meanwhile."""
    before: dict[str, dict[str, GpuState]] = {}
    after: dict[str, dict[str, GpuState]] = {}
    xids: dict[str, list[KernelEvent]] = {}
    for node in sorted(nodes, key=lambda node: node.window):
        window, host = windows[node.window], short_host(node.host)
        for bus_id, number in node.xids:
            event = KernelEvent(
                "xid", pci_address(str(bus_id)), window.end_ns / 1e9, "under load", "gpu-xid", str(number)
            )
            xids.setdefault(host, []).append(event)
        for gpu in node.gpus:
            address = pci_address(gpu.bus_id)
            now = GpuState(gpu.index or 0, "", "", address, counters=gpu.counters)
            before.setdefault(host, {}).setdefault(address, now)
            earlier = after.setdefault(host, {}).get(address, now)
            counters = {**earlier.counters, **gpu.counters}
            for reason, readings in gpu.throttle.items():
                held_ns = window.end_ns - window.begin_ns if readings else 0
                counters[f"throttled_ns_{reason}"] = counters.get(f"throttled_ns_{reason}", 0) + held_ns
            heat = max(int(gpu.temperature_c[1]) if gpu.temperature_c else 0, earlier.temperature_c or 0)
            after[host][address] = replace(
                now,
                counters=counters,
                temperature_c=heat or None,
                rows_pending=counters.get("rows_pending", 0) > 0,
                rows_failed=counters.get("rows_failed", 0) > 0,
            )
    begin_s, end_s = windows[0].begin_ns / 1e9, windows[-1].end_ns / 1e9
    return States(
        {host: NodeState(host, "before", begin_s, xids=(), gpus=tuple(gpus.values())) for host, gpus in before.items()},
        {
            host: NodeState(host, "after", end_s, xids=tuple(xids.get(host, ())), gpus=tuple(gpus.values()))
            for host, gpus in after.items()
        },
    )


def _with_series(run: Run, plan: BurnInPlanModel, load: BurnIn, product: Product) -> Run:
    """The run whose plan has a series for each metric of the burn-in too, with their samples: the median of each window
    is an iteration. The bytes of a product are those of its three matrices."""
    samples: list[Samples] = []
    groups = [(tuple(group["ranks"]), int(group["bytes"][0])) for group in planned_groups(run.header)]
    alone = [(rank,) for rank in range(len(load.wrong))]
    for operation, name, phase, wanted in (
        ("product", "products", "compute", [(ranks, product.bytes) for ranks in alone]),
        ("traffic", "traffic", "traffic", groups),
        ("copies", "copies", "copies", [(ranks, plan.copy_bytes) for ranks in alone]),
    ):
        for schedule, of_phase in (("uncontended", phase), ("contended", TOGETHER)):
            windows = [place for place, each in enumerate(load.phases) if each == of_phase]
            for ranks, size in wanted:
                times = load.medians[name][windows][:, list(ranks)]
                kept = times[(times > 0).all(axis=1)].max(axis=1)
                if not kept.size:
                    continue
                kept.flags.writeable = False
                damage = load.wrong_bytes if operation == "traffic" and schedule == "contended" else 0
                samples.append(Samples(operation, "library", schedule, -1, ranks, size, 0, "fixed", damage, kept))
    series = [
        {
            "operation": own.operation,
            "implementation": own.implementation,
            "schedule": own.schedule,
            "round": own.round,
            "ranks": list(own.ranks),
            "bytes": [own.bytes],
        }
        for own in samples
    ]
    whole_plan = {**run.header["plan"], "series": [*run.header["plan"]["series"], *series]}
    header = {**run.header, "plan": whole_plan, "expected_records": run.header["expected_records"] + len(samples)}
    return replace(run, header=header, samples=(*run.samples, *samples))
