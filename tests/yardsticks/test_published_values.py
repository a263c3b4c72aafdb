"""Every published value judges: a machine that gave it passes, and one that is just under an owner's alarm does not."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache

import pytest

from fabricheck.judge.system import SystemJudge
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.burn_in import Product
from fabricheck.records.judgement import Judgement
from fabricheck.records.metrics import SMALLEST_GOODPUT_BYTES, Metric
from fabricheck.records.operations import PAIRS, bus_factor
from fabricheck.records.run import Run
from fabricheck.records.verdict import Verdict
from fabricheck.topology.hardware import least_payload
from fabricheck.topology.model import Nic, Topology
from fabricheck.topology.schema import FabricEntry
from fabricheck.units import parse_size
from fabricheck.yardsticks.part_values import Part, RunContext, in_unit, load_parts, matches
from fabricheck.yardsticks.published import Published, load_published
from fabricheck.yardsticks.where import Where
from tests.support.equal_runs import POLICY, run_of
from tests.support.nodes import ROOT, system
from tests.yardsticks.test_part_values import named

FOLDER = ROOT / "reference_values"
PARTS = load_parts(FOLDER / "parts")
# Models of NICs by link layer.
NICS = {"InfiniBand": "InfiniBand {} Gb/sec", "Ethernet": "RoCE {} Gb/sec", "EFA": "EFA"}
# What a board's own links are not, in Gb/s a link.
OTHER_LINKS = {"PCIe 3 x16": "16 GB/s", "PCIe 4 x16": "32 GB/s"}
# Values of pairs that are not the first two GPUs; and of a distance, which no made site has.
OTHER_PAIRS = ("goodput of hipMemcpyPeer, lower group", "CUDA IPC over X-Bus")
RED = (Verdict.DEGRADED, Verdict.FAIL)


@dataclass(frozen=True)
class Case:
    """A value, and a site where it holds."""

    name: str
    where: Where
    value: float
    unit: str
    alarm: bool
    device: tuple[str, float]
    topology: Topology
    published: tuple[Published, ...] = ()
    spread_by_source: bool = False

    def judged(self, operation: str, transport: str) -> Callable[[float], Judgement]:
        """Judges a run at so much of the value."""
        where = self.where
        nodes = where.nodes or (2 if where.scope == "network" else 1)
        pair = 2 if operation in PAIRS else 0
        all_gpus = nodes * len(self.topology.gpus) if where.scope == "network" else 1
        ranks = pair or where.ranks or all_gpus
        size = parse_size(where.bytes[0] if where.bytes else where.least or where.most or "1GiB")
        made = run_of(
            *([f"n{rank * nodes // ranks}" for rank in range(ranks)], [tuple(range(ranks))]),
            operation=operation,
            transport=transport,
            bytes_=size,
            host_memory=where.host_memory,
            access=where.access or "write",
            ccl_mode=where.ccl_mode,
        )
        name, _, version = (where.library or "NCCL 2.29.1").rpartition(" ")
        libraries = {key: {"name": name, "version": version} for key in ("ccl", "mpi")}
        environment = {**where.environment, **({"NCCL_NVLS_ENABLE": "0"} if where.in_switch is False else {})}
        run = named(made, *self.device, environment=environment, libraries=libraries)
        if where.product is not None:
            run = replace(run, product=product_of(where.product, size, where.library or "kernel"))
        judge = SystemJudge(self.topology, None, POLICY, parts=PARTS, published=self.published)
        (first,) = judge.judge_alone(run).judgements
        metric = Metric("made", where.quantity, first.samples)
        assert matches(where, metric, RunContext(run, self.topology)), "its site is not what it is about"

        def at(share: float) -> Judgement:
            level = in_unit(self.value * share, self.unit, metric, first.expectation, run)
            assert level is not None
            (found,) = judge.judge(_at(run, metric, level)).judgements
            return found

        return at

    @staticmethod
    def loosest(judged: Judgement) -> float:
        """The loosest of the owners' bounds, as a share of the judged value."""
        bounds = [one.bound for one in judged.alarms]
        return (min(bounds) if judged.better == "higher" else max(bounds)) / judged.value


def product_of(of_type: str, size: int, library: str) -> Product:
    """What a rank multiplied by itself, three matrices of so many bytes."""
    return Product(of_type, math.isqrt(size // 3 // {"bfloat16": 2, "float64": 8}[of_type]), (f"{library} 130100",))


def _at(run: Run, metric: Metric, level: float) -> Run:
    """The run, with this value of the metric."""
    (samples,) = run.samples
    slower = metric.value / level if metric.better == "higher" else level / metric.value
    return replace(run, samples=(replace(samples, times_ns=(samples.times_ns * slower).astype("int64")),))


def _site(part: Part, where: Where) -> Topology:
    if part.board is None:
        return system(part.system or "")
    board = part.board
    if wanted := re.fullmatch(r"(\d+) x (.*)", where.links or ""):
        field = "host" if where.operations[0].startswith(("host", "device")) else "between"
        own = getattr(board, field)
        told = {"count": int(wanted[1]), "technology": wanted[2], "rate": OTHER_LINKS.get(wanted[2], own.rate)}
        board = board.model_copy(update={field: own.model_copy(update=told)})
    gpus = board.gpus
    if where.scope == "node" and where.operations[0] not in PAIRS:
        gpus = where.ranks or gpus
    count, _, rate = (where.nics or "8 x 400 Gb/s").partition(" x ")
    rate = rate.removesuffix(" Gb/s")
    model = NICS.get(where.layer or "", "Cassini-1").format(rate)
    nics = tuple(Nic(f"nic{number}", model, float(rate), "made") for number in range(int(count)))
    node = board.node(part.part.replace("NVIDIA ", ""), gpus, nics)
    # NVLink joins as many nodes as the value is about, or the 18 trays of a rack.
    joined = where.nodes or 1 if where.nvlink_domain else 18 if (where.nodes or 1) > 18 else 1
    return replace(node, nvlink_domain_nodes=joined)


def cases() -> Iterator[Case]:
    for part in PARTS:
        device = part.names[0].replace("*", ""), sum(part.memory_gib) / 2
        for number, one in enumerate(part.values):
            name = f"{part.part} {number} {one.value:g} {one.unit}"
            alarm = one.alarm_of is not None
            site = _site(part, one.where)
            yield Case(
                *(name, one.where, one.value, one.unit, alarm, device, site), spread_by_source=one.range is not None
            )
        for curve in part.curves:
            for size, time_us in curve.points:
                small = parse_size(size) < SMALLEST_GOODPUT_BYTES
                told = (time_us, "us") if small else (8e-3 * parse_size(size) / time_us, "Gb/s")
                at_size = curve.where.model_copy(
                    update={"bytes": [size], "quantity": "latency" if small else "goodput"}
                )
                name = f"{part.part}, {curve.conditions} {size}"
                yield Case(name, at_size, *told, False, device, _site(part, at_size), spread_by_source=True)
    for path in sorted((FOLDER / "published").glob("*.yaml")):
        values = load_published(path)
        for number, value in enumerate(values):
            where = value.judges
            if where is None or where.distance is not None or value.what in OTHER_PAIRS:
                continue
            alarm, share = value.alarm_of is not None, where.share_of_nominal
            name = f"{path.stem} {number} {value.low:g}"
            told = (value.high if where.quantity == "latency" else value.low, value.unit)
            told = (share, "share of nominal") if share is not None else told
            device = ("no part", 80.0)
            yield Case(
                f"{name} {value.unit}",
                where,
                *told,
                alarm,
                device,
                system(path.stem),
                values,
                spread_by_source=value.low < value.high,
            )


ALL = [*cases()]


@pytest.mark.parametrize("case", ALL, ids=lambda one: one.name)
def test_each_row_is_green_above_its_bound_and_red_below(case: Case) -> None:
    """At what was measured, and 1% on either side of the bound that the row's site is held to."""
    for operation, transport in itertools.product(case.where.operations, case.where.transports):
        judged = case.judged(operation, transport)
        at_value = judged(1.0)
        assert case.alarm or at_value.verdict is Verdict.PASS, at_value.reason
        yardstick = at_value.yardstick
        assert yardstick is not None and yardstick.kind in ("part", "published", "achievable"), at_value.reason
        share = yardstick.bound / at_value.value
        latency = case.where.quantity == "latency"
        better, worse = (0.99, 1.01) if latency else (1.01, 0.99)
        above, below = (judged(each * share) for each in (better, worse))
        assert above.verdict is Verdict.PASS, above.reason
        assert below.verdict in RED, below.reason
        if case.alarm:
            assert any(one.alarm for one in at_value.alarms)
            assert judged(1.01 * case.loosest(at_value)).verdict is not Verdict.FAIL
        elif not latency and not case.spread_by_source:
            assert judged(0.85).verdict in RED


A100, H200, H100 = ("NVIDIA A100-SXM4-40GB", 40), ("NVIDIA H200", 139.8), ("NVIDIA H100 80GB HBM3", 79.6)
GH200, MI250X = ("NVIDIA GH200 120GB", 95), ("AMD Instinct MI250X", 64)


@pytest.mark.parametrize(
    ("level", "environment", "found"),
    [
        (480.0, {}, []),
        (367.6, {}, ["nvls-not-used", "under-alarm"]),
        (367.6, {"NCCL_NVLS_ENABLE": "0"}, []),
        (367.6, {"NCCL_ALGO": "Ring"}, []),
        (367.6, {"NCCL_ALGO": "^NVLS,NVLSTree"}, []),
        (367.6, {"NCCL_ALGO": "allreduce:nvls,tree;broadcast:ring"}, ["nvls-not-used", "under-alarm"]),
        (300.0, {"NCCL_NVLS_ENABLE": "0"}, ["slower-than-part"]),
    ],
)
def test_eight_gpus_have_to_reduce_in_the_switch_unless_a_variable_says_not_to(
    level: float, environment: dict[str, str], found: list[str]
) -> None:
    made = run_of(["n"] * 8, [tuple(range(8))], level=8 * level / 1.75, operation="allreduce", transport="ccl")
    made = replace(made, samples=tuple(replace(each, implementation="library") for each in made.samples))
    judged = SystemJudge.of("hgx-h200:gpu8", ROOT).judge(named(made, *H200, environment=environment))
    codes = {each.code for each in judged.problems} | {each.code for each in judged.judgements}
    assert sorted(codes - {""}) == found
    if environment and not found:
        assert next(iter(environment)) in judged.judgements[0].expectation.source


def test_why_the_switch_is_not_used_is_what_nccl_says() -> None:
    made = run_of(["n"] * 8, [tuple(range(8))], level=8 * 367 / 1.75, operation="allreduce", transport="ccl")
    remark = {"text": "NVLS multicast support is not available on dev 0", "warning": False, "ranks": [0], "of_ranks": 8}
    made = replace(made, footer={"records": 1, "proof": {"remarks": [remark]}})
    judged = SystemJudge.of("hgx-h200:gpu8", ROOT).judge(named(made, *H200))
    (found,) = (each for each in judged.problems if each.code == "nvls-not-used")
    assert found.message.endswith("the library reports: multicast support is not available")


@pytest.mark.parametrize(
    ("operation", "transport", "level", "verdict"),
    [
        ("allreduce", "ccl", 841.0, Verdict.PASS),
        ("allreduce", "ccl", 180.0, Verdict.FAIL),  # over InfiniBand, which is the fallback there
        ("pingpong", "ccl", 700.0, Verdict.PASS),
        ("pingpong", "ccl", 48.0, Verdict.FAIL),
        ("pingpong", "ccl", 1000.0, Verdict.INVALID),
        ("unidirectional", "copy", 746.0, Verdict.PASS),
        ("unidirectional", "copy", 630.0, Verdict.DEGRADED),
        ("unidirectional", "copy", 1000.0, Verdict.INVALID),
        ("unidirectional", "kernel", 700.0, Verdict.PASS),
        ("unidirectional", "kernel", 48.0, Verdict.FAIL),
    ],
)
def test_two_trays_that_nvlink_joins_are_judged_by_nvlink(
    operation: str, transport: str, level: float, verdict: Verdict
) -> None:
    part = next(one for one in PARTS if one.part == "NVIDIA GB200")
    assert part.board is not None
    nics = tuple(Nic(f"nic{number}", "ConnectX-7", 400.0, "made") for number in range(4))
    node = replace(part.board.node("GB200", 4, nics), nvlink_domain_nodes=18)
    ranks = 8 if operation == "allreduce" else 2
    hosts = [f"n{rank * 2 // ranks}" for rank in range(ranks)]
    to_bus = bus_factor(operation, ranks) if operation == "allreduce" else 1.0
    way = [tuple(range(ranks))]
    made = run_of(hosts, way, operation=operation, transport=transport, bytes_=8 << 30, level=8 * level / to_bus)
    if operation == "allreduce":
        made = replace(made, samples=tuple(replace(each, implementation="library") for each in made.samples))
    (found,) = SystemJudge(node, None, POLICY, parts=PARTS).judge(named(made, "NVIDIA GB200", 185)).judgements
    assert found.verdict is verdict, found.reason


@pytest.mark.parametrize(("level", "verdict"), [(443.0, Verdict.PASS), (380.0, Verdict.DEGRADED)])
def test_a_b300_copies_from_and_to_the_host_at_the_rate_of_its_cpu(level: float, verdict: Verdict) -> None:
    part = next(one for one in PARTS if one.part == "NVIDIA B300")
    assert part.board is not None
    node = part.board.node("B300", 8, ())
    made = run_of(["n"], [(0,)], operation="host_to_device", level=level, host_memory="pinned")
    (found,) = SystemJudge(node, None, POLICY, parts=PARTS).judge(named(made, "NVIDIA B300", 270)).judgements
    assert found.verdict is verdict, found.reason


@pytest.mark.parametrize(
    ("transport", "level", "verdict"),
    [
        ("ccl", 48.0, Verdict.PASS),
        ("ccl", 700.0, Verdict.PASS),
        ("ccl", 1000.0, Verdict.INVALID),
        ("copy", 700.0, Verdict.PASS),
        ("copy", 48.0, Verdict.FAIL),  # copies have no other way than NVLink
    ],
)
def test_of_several_racks_nobody_says_which_two_nodes_nvlink_joins(
    transport: str, level: float, verdict: Verdict
) -> None:
    part = next(one for one in PARTS if one.part == "NVIDIA GB200")
    assert part.board is not None
    nics = tuple(Nic(f"nic{number}", "ConnectX-7", 400.0, "made") for number in range(4))
    fabric = FabricEntry(nodes=36, source="made")
    node = replace(part.board.node("GB200", 4, nics), nvlink_domain_nodes=18, fabric=fabric)
    made = run_of(["a", "b"], [(0, 1)], operation="pingpong", transport=transport, level=8 * level)
    (found,) = SystemJudge(node, None, POLICY).judge(named(made, "NVIDIA GB200", 185)).judgements
    assert found.verdict is verdict, found.reason


# Of each described system: what is measured on it, on how many nodes by how many ranks, 0: all GPUs of them; and the
# loss of all alike that has to be red. Collectives of links that meet by chance, and of NICs that nobody measured in
# this operation, have a wider margin (achievable_margin_of_collectives).
EVERYWHERE = [
    ("unidirectional", "copy", 1, 2, 0.15),
    ("unidirectional", "ccl", 1, 2, 0.15),
    ("unidirectional", "mpi", 1, 2, 0.15),
    ("host_to_device", "copy", 1, 1, 0.15),
    ("allreduce", "ccl", 1, 0, 0.15),
    ("allgather", "ccl", 1, 0, 0.31),
    ("reduce_scatter", "ccl", 1, 0, 0.31),
    ("broadcast", "ccl", 1, 0, 0.31),
    ("alltoall", "ccl", 1, 0, 0.31),
    ("unidirectional", "mpi", 2, 2, 0.15),
    ("unidirectional", "ccl", 2, 2, 0.31),
    ("allreduce", "ccl", 2, 0, 0.31),
    ("allgather", "ccl", 2, 0, 0.31),
    ("reduce_scatter", "ccl", 2, 0, 0.31),
    ("broadcast", "ccl", 2, 0, 0.31),
    ("alltoall", "ccl", 2, 0, 0.46),
]
DEVICES = {
    "A100": A100,
    "H200": H200,
    "H100 80GB": H100,
    "H100": GH200,
    "MI250X": MI250X,
    "V100": ("Tesla V100-SXM2-16GB", 16),
    "PVC": ("Intel(R) Data Center GPU Max 1550", 64),
}
NO_NICS = "its topology has no NICs: each site has others"
ONECCL = "no value of oneCCL was published: ALCF's guide has copies and MPI alone"
RCCL_PAIRS = (
    "RCCL takes one of several paths between two GCDs, some of half the rate (SC24, section III-D), by settings"
)
THROUGH_CPUS = "no ring of NCCL through the X-Bus of POWER9 was published: the OpenPOWER paper has copies and MPI alone"
PAIRS_OF_NCCL = "no pair of NCCL over this NIC was published, and of collectives at best what each NIC gives"
MI250X_SYSTEMS, POWER9 = ("lumi", "frontier", "dardel"), ("sierra", "summit")
# Of what nobody has said what is healthy: why.
UNKNOWN = {
    **{(name, "*", "*", 2): NO_NICS for name in ("dardel", "hgx-h100", "hgx-h100:gpu8", "hgx-h200", "hgx-h200:gpu8")},
    **{("aurora", "*", "ccl", nodes): ONECCL for nodes in (1, 2)},
    **{
        (name, operation, "ccl", 1): RCCL_PAIRS
        for name in MI250X_SYSTEMS
        for operation in ("unidirectional", "alltoall")
    },
    **{(name, "alltoall", "ccl", 2): RCCL_PAIRS for name in ("lumi", "frontier")},
    **dict.fromkeys(itertools.product(POWER9, ("a*", "b*", "r*"), ("ccl",), (1, 2)), THROUGH_CPUS),
    **{(name, "unidirectional", "ccl", 2): PAIRS_OF_NCCL for name in ("delta", "leonardo")},
}


def why_unknown(name: str, operation: str, transport: str, hosts: int) -> str:
    """Why nothing says what is healthy there; empty where something does."""
    for (site, of, by, nodes), why in UNKNOWN.items():
        if nodes == hosts and all(map(fnmatchcase, (name, operation, transport), (site, of, by))):
            return why
    return ""


DESCRIBED = sorted({*(one.parent.name for one in ROOT.glob("site_configs/*/topology.yaml")), "hgx-h100:gpu8"})
SITES = [one for one in DESCRIBED if SystemJudge.of(one, ROOT).topology.gpus]  # type: ignore[union-attr]


@cache
def on_the_first_day(name: str) -> SystemJudge:
    """The judge of a system that has no references yet."""
    return replace(SystemJudge.of(name, ROOT), references=None)


@pytest.mark.parametrize("name", SITES)
@pytest.mark.parametrize("what", EVERYWHERE, ids=lambda one: f"{one[0]} {one[1]} {one[2]}")
def test_what_all_lose_alike_is_red_on_every_described_system_or_it_is_said_that_nothing_is_known(
    name: str, what: tuple[str, str, int, int, float]
) -> None:
    operation, transport, hosts, ranks, loss = what
    judge = on_the_first_day(name)
    assert judge.topology is not None
    model = judge.topology.gpus[0].model
    device = next(device for key, device in DEVICES.items() if model.startswith(key))
    ranks = ranks or hosts * len(judge.topology.gpus)
    where = [f"n{rank * hosts // ranks}" for rank in range(ranks)]
    more = {"host_memory": "pinned"} if ranks == 1 else {}

    def judged(level: float) -> RunJudgement:
        of = {"operation": operation, "transport": transport, "bytes_": 1 << 30, "level": level, **more}
        made = run_of(where, [tuple(range(ranks))], **of)  # type: ignore[arg-type]
        if operation not in (*PAIRS, "host_to_device"):
            made = replace(made, samples=tuple(replace(one, implementation="library") for one in made.samples))
        return judge.judge(named(made, *device))

    (found,) = judged(1.0).judgements
    expected, healthy = found.expectation.expected, found.expectation.achievable
    (at_rate,) = judged(0.9 * (expected or 1.0)).judgements
    if at_rate.yardstick is not None and at_rate.judged_by not in ("floor", "achievable"):
        healthy = at_rate.yardstick.value
    elif hosts > 1 and operation in PAIRS and expected is not None:
        by = "nic" if transport == "mpi" else "ccl nic pair"
        nic = least_payload([one.model for one in judge.topology.nics], by)
        healthy = nic.share * expected if nic is not None else None
    if why_unknown(name, operation, transport, hosts):
        assert healthy is None
        assert at_rate.judged_by in ("floor", "unjudged")
        return
    assert healthy is not None
    assert judged(healthy).verdict is Verdict.PASS, judged(healthy).problems
    assert judged((1 - loss) * healthy).verdict in RED
