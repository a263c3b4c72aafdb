"""Builds of fabricbench for CUDA, HIP and SYCL on one emulated node: time is what the link graph says, data are right.

Each goodput is the best of several iterations, and of further launches where it is not there yet: no transfer can be
faster than its links, and whatever else this machine does can only make one slower.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from fabricheck import mpi
from fabricheck.errors import UserError
from fabricheck.judge.node_state import evidence_of_node
from fabricheck.judge.system import SystemJudge
from fabricheck.records.component import Component, Kind
from fabricheck.records.node_state import NodeState
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from fabricheck.results.node_state import read_state
from fabricheck.site.facts import read_facts
from fabricheck.topology.graph import node_graph
from fabricheck.topology.model import Topology, find_topology
from fabricheck_lab import node, node_faults
from fabricheck_lab.description import EFFICIENCY, MOVERS, Choices, describe
from tools import build

pytestmark = [pytest.mark.full, pytest.mark.e2e, pytest.mark.compile, pytest.mark.quiet, pytest.mark.timeout(1800)]

SCALE = 0.001
SIZE = 4 << 20
ITERATIONS = ("--iterations=5", "--warmup=1")
MORE_ITERATIONS = ("--iterations=20", "--warmup=1")  # where the best of them is compared with the truth
# System, target of tools.build, ranks: all GPUs of a node.
NODES = {"alps": ("cuda", 4), "lumi": ("hip", 8), "aurora": ("sycl-emulated", 12)}


@dataclass(frozen=True)
class Run:
    """What a run of fabricbench left: its exit status, what it said, and the lines of its result file by their kind."""

    status: int
    said: str
    header: Mapping[str, Any]
    records: Sequence[Mapping[str, Any]]
    footer: Mapping[str, Any]
    error: Mapping[str, Any]

    def gbps(self, operation: str, ranks: Sequence[int] | None = None) -> float:
        """Best goodput of a record in Gb/s, of what one rank sends."""
        found = next(
            one for one in self.records if one["operation"] == operation and (not ranks or [*ranks] == one["ranks"])
        )
        assert found["wrong_bytes"] == 0
        return float(8 * int(found["bytes"]) / min(found["times_ns"]))

    @property
    def paths(self) -> Mapping[str, int]:
        found: Mapping[str, int] = self.footer["proof"]["paths"]
        return found


@dataclass
class Machine:
    """An emulated node of a system and how to run fabricbench on it."""

    system: str
    folder: Path
    variables: Mapping[str, str]
    program: Path
    ranks: int
    runs: int = field(default=0)

    @property
    def topology(self) -> Topology:
        return find_topology(self.system, build.ROOT / "site_configs")

    def plant(self, faults: Mapping[str, Any]) -> None:
        node_faults.plant(self.folder, faults)

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        return {**os.environ, **self.variables, **(extra or {})}

    def run(
        self,
        *options: str,
        ranks: int | None = None,
        variables: Mapping[str, str] | None = None,
        by: Sequence[str] = (),
    ) -> Run:
        """`by`: the words that start the program, where it is not started as it is."""
        self.runs += 1
        output = self.folder / f"result-{self.runs}.jsonl"
        open_mpi = mpi.find("openmpi")
        assert open_mpi is not None
        launch = mpi.launch("openmpi", 64, 1)
        command = [str(open_mpi.mpirun), *launch.options, "-n", str(ranks or self.ranks), *(by or [str(self.program)])]
        done = subprocess.run(
            [*command, *options, f"--output={output}", "--quiet"],
            env=self.environment({**open_mpi.environment, **launch.environment, **(variables or {})}) | _path(self),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        lines = [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []
        by_kind: dict[str, list[Any]] = {"header": [], "footer": [], "error": [], "record": []}
        for line in lines:
            by_kind.setdefault(line["record"] if line["record"] in by_kind else "record", []).append(line)
        header, footer, error = ((by_kind[kind] or [{}])[0] for kind in ("header", "footer", "error"))
        records = [one for one in by_kind["record"] if "times_ns" in one]
        return Run(done.returncode, done.stdout + done.stderr, header, records, footer, error)


def _path(machine: Machine) -> dict[str, str]:
    return {"PATH": machine.variables["PATH"]}


@pytest.fixture(scope="module")
def standins() -> Path:
    try:
        return build.build("standins")
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=("alps", "lumi"))
def machine(request: pytest.FixtureRequest, standins: Path) -> Iterator[Machine]:
    yield from _machine(request.param, standins)


@pytest.fixture(scope="module")
def alps(standins: Path) -> Iterator[Machine]:
    yield from _machine("alps", standins)


@pytest.fixture(scope="module")
def aurora(standins: Path) -> Iterator[Machine]:
    yield from _machine("aurora", standins)


def _machine(system: str, standins: Path) -> Iterator[Machine]:
    target, ranks = NODES[system]
    try:
        program = build.build(target, tests=False) / "fabricbench"
    except UserError as error:
        pytest.skip(str(error))
    topology = find_topology(system, build.ROOT / "site_configs")
    with node.node(topology, standins, Choices(SCALE)) as variables:
        yield Machine(system, Path(variables[node.VARIABLE]), variables, program, ranks)


@pytest.fixture(autouse=True)
def no_faults(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    for name in ("machine", "alps", "aurora"):
        if name in request.fixturenames:
            request.getfixturevalue(name).plant({})


def efficiency(technology: str, mover: str) -> float:
    shares = next(shares for prefix, shares in EFFICIENCY.items() if technology.startswith(prefix))
    return shares[MOVERS.index(mover)]


def expected(topology: Topology, mover: str, source: int, destination: int) -> float:
    """Gb/s of one transfer alone: the narrowest link of the widest path."""
    graph = node_graph(topology)
    path = graph.widest_path(topology.gpu(source), topology.gpu(destination))
    kinds = [[one.technology for one in topology.links if set(one.ends) == set(edge)] for edge in path.edges]
    shares = [min(efficiency(each, mover) for each in technologies) for technologies in kinds]
    return SCALE * min(graph.rate(edge) * share for edge, share in zip(path.edges, shares, strict=True))


def share_of_all_pairs(topology: Topology, mover: str) -> float:
    """Gb/s of each pair when all GPUs send to all at once."""
    return SCALE * node_graph(topology).pair_share_gbps * efficiency(topology.links[0].technology, mover)


def test_what_init_finds_on_a_node_is_the_node(standins: Path, tmp_path: Path) -> None:
    """By the real nvidia-ml-py, over the C interface; then with a link that is down."""
    topology = find_topology("dgx-a100", build.ROOT / "site_configs")
    kept = tmp_path / "kept"
    with node.node(topology, standins, Choices(1.0)) as variables:
        command = [sys.executable, "-m", "fabricheck", "capture", str(kept)]
        environment = {**os.environ, **variables}
        subprocess.run(command, env=environment, check=True, timeout=300)
        found = read_facts(kept)
        node_faults.plant(Path(variables[node.VARIABLE]), {"nvlinks": {"gpu1": {"3": {"state": "inactive"}}}})
        subprocess.run(command, env=environment, check=True, timeout=300)
        broken = read_facts(kept)
    known = {link.ends: (link.technology, link.count, link.rate_gbps) for link in topology.links}
    nvlinks = {ends: one for ends, one in known.items() if one[0].startswith("NVLink")}
    of_found = {link.ends: (link.technology, link.count, link.rate_gbps) for link in found.links}
    assert {ends[0]: one for ends, one in of_found.items() if "nvswitch" in ends} == {
        ends[0]: one for ends, one in nvlinks.items()
    }
    assert found.gpus[0].model in str(describe(topology, Choices(1.0))["gpus"][0])
    assert found.gpus[0].memory_gbps == pytest.approx(topology.gpu_memory_gbps, rel=0.01)
    assert "missing-links" in {each.code for each in broken.doubts}


def test_links_are_shared_max_min_fairly(standins: Path) -> None:
    done = subprocess.run([standins / "fluid_test"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def require_rates(
    machine: Machine,
    wanted: Mapping[Any, float],
    *options: str,
    ranks: int | None = None,
    by: Sequence[str] = (),
) -> Run:
    """Launches until each goodput, by its operation and ranks, was what is wanted in Gb/s, eight times at most."""
    best = dict.fromkeys(wanted, 0.0)
    for _ in range(8):
        run = machine.run(*options, ranks=ranks, by=by)
        assert run.status == 0, run.said
        best = {each: max(rate, run.gbps(*each)) for each, rate in best.items()}
        if best == pytest.approx(wanted, rel=0.05):
            break
    assert best == pytest.approx(wanted, rel=0.05)
    return run


@pytest.mark.parametrize("transport", ("copy", "kernel", "ccl"))
def test_pairs_and_alltoall_take_what_the_link_graph_says(machine: Machine, transport: str) -> None:
    topology = machine.topology
    options = ("--schedules=uncontended", "--pairs=0-1,0-2", f"--sizes={SIZE}", *MORE_ITERATIONS)
    # Both directions are free; in an alltoall a rank's buffer is split among all ranks, itself included.
    wanted: dict[Any, float] = {
        (operation, (0, destination)): expected(topology, transport, 0, destination)
        for operation in ("unidirectional", "bidirectional")
        for destination in (1, 2)
    }
    wanted["alltoall", None] = share_of_all_pairs(topology, transport) * machine.ranks
    operations = "--operations=unidirectional,bidirectional,alltoall"
    require_rates(machine, wanted, f"--transport={transport}", *options, operations)


def windows_of(machine: Machine) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Of the last run's burn-in, all windows and what the node told in them."""
    lines = [json.loads(line) for line in (machine.folder / f"result-{machine.runs}.jsonl").read_text().splitlines()]
    first = next(line for line in lines if line["record"] == "burn_in")
    assert set(first["wrong_rows"]) == {0}
    return tuple([line for line in lines if line["record"] == kind] for kind in ("window", "node"))  # type: ignore


@pytest.mark.parametrize("product", ("float16", "float32", "float64"))
def test_products_of_each_type_are_compared(alps: Machine, product: str) -> None:
    alps.plant({"products": {alps.topology.gpu(2).name: {"wrong_each": 20}}})
    options = ("--burn-in=1", "--compute-only", "--product-order=128", f"--product={product}", *ITERATIONS)
    run = alps.run("--transport=kernel", "--operations=local_copy", "--sizes=64KiB", *options)
    assert run.status == 5, run.said
    windows, _ = windows_of(alps)
    assert {window["phase"] for window in windows} == {"compute"}
    wrong = [sum(by_rank) for by_rank in zip(*(window["products"]["wrong_words"] for window in windows), strict=True)]
    assert [count > 0 for count in wrong] == [False, False, True, False]


@contextmanager
def planted_under_load(machine: Machine, faults: Mapping[str, Any]) -> Iterator[None]:
    """Plants faults once the next run has shown three windows in which all goes on at the same time."""
    output, ended = machine.folder / f"result-{machine.runs + 1}.jsonl", threading.Event()

    def watch() -> None:
        while not ended.wait(0.2):
            if output.exists() and output.read_text().count('"phase":"together"') >= 3:
                return machine.plant(faults)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_node_that_throttles_later_under_load_is_named_and_so_is_a_gpu_that_multiplies_wrongly(alps: Machine) -> None:
    names = [gpu.name for gpu in alps.topology.gpus]
    always = {
        "products": {names[2]: {"wrong_each": 20}},
        "nvml": {names[3]: {"corrected_ecc_errors": 7, "remapped_rows_pending": 1}},
    }
    slow = {"factor": 0.25, "reasons": ["hw_thermal_slowdown"]}
    alps.plant(always)
    options = ("--sizes=64KiB", "--burn-in=12", "--product-order=128", *ITERATIONS)
    with planted_under_load(alps, {**always, "throttle": dict.fromkeys(names, slow)}):
        done = alps.run("--transport=ccl", "--operations=allreduce", *options)
    assert done.status == 5, done.said
    run = SystemJudge.of("alps").judge_alone(read_run(alps.folder / f"result-{alps.runs}.jsonl"))
    named = {(problem.code, problem.components) for problem in run.problems}
    (host,) = {rank.host for rank in run.run.ranks}
    assert {("gpu-throttled", (Component(Kind.GPU, name, host),)) for name in names} <= named
    assert ("wrong-arithmetic", (Component(Kind.GPU, names[2], host),)) in named
    load = run.run.burn_in
    assert load is not None and load.wrong[2] > 0 == sum(load.wrong) - load.wrong[2]
    (after,) = load.states.after.values()
    together_ns = 1e9 * (after.time_s - next(iter(load.states.before.values())).time_s) * load.together.mean()
    for gpu in after.gpus:
        assert 0 < gpu.counters["throttled_ns_hw_thermal_slowdown"] < together_ns
    assert (after.gpus[3].counters["ecc_corrected"], after.gpus[3].rows_pending) == (7, True)


def test_a_burn_in_by_sycl(aurora: Machine) -> None:
    options = ("--sizes=64KiB", "--burn-in=2", "--product-order=128", *ITERATIONS)
    run = aurora.run("--transport=ccl", "--operations=allreduce", *options, "--inject=wrong-product:0", ranks=2)
    assert run.status == 5, run.said
    windows, _ = windows_of(aurora)
    assert next(sum(window["products"]["wrong_words"]) for window in windows if "products" in window) == 0


def test_a_run_cannot_be_taken_for_one_on_real_gpus(machine: Machine) -> None:
    run = machine.run("--transport=copy", "--operations=alltoall", "--sizes=1MiB", *ITERATIONS)
    for rank in run.header["ranks"]:
        assert rank["device"]["name"].startswith("emulated ") and rank["device"]["uuid"].startswith("GPU-656d756c")


def test_collectives_give_right_sums(machine: Machine) -> None:
    operations = "allreduce,reduce,reduce_scatter,allgather,broadcast,alltoall"
    options = ("--implementation=library", "--sizes=8KiB,1MiB", "--verify=every", *ITERATIONS)
    run = machine.run("--transport=ccl", f"--operations={operations}", *options)
    assert run.status == 0, run.said
    assert len(run.records) == 12
    assert all(one["wrong_bytes"] == 0 for one in run.records)
    assert set(run.paths) == {"P2P/IPC" if machine.system == "lumi" else "P2P/CUMEM"}


def test_groups_at_once_give_right_sums_of_their_own(alps: Machine) -> None:
    """Each by a communicator that NCCL splits off that of all ranks; alltoall is sends and receives in it."""
    options = ("--split=2x2", "--schedules=contended", "--sizes=8KiB,1MiB", "--verify=every", *ITERATIONS)
    run = alps.run(
        "--transport=ccl", "--operations=allreduce,reduce,reduce_scatter,allgather,broadcast,alltoall", *options
    )
    assert run.status == 0, run.said
    assert [one["ranks"] for one in run.records] == [[0, 2], [1, 3]] * 12
    assert all(one["wrong_bytes"] == 0 for one in run.records)


def test_a_training_step_gives_right_sums_of_groups_and_across_them_at_the_same_time(alps: Machine) -> None:
    common = ("--transport=ccl", "--operations=training_step", "--sizes=1MiB", *ITERATIONS)
    run = alps.run(*common, "--verify=every")
    assert run.status == 0, run.said
    assert [(one["groups"], one["wrong_bytes"]) for one in run.records] == [([2, 2, 2], 0)]
    assert alps.run(*common, "--inject=wrong-byte").status == 5


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        (["--in-place=yes", "--operations=allreduce,allgather,reduce_scatter,reduce"], {}),
        (["--datatype=bfloat16", "--in-place=yes", "--operations=allreduce,reduce_scatter"], {}),
        # ncclCommInitRankScalable.
        (["--datatype=float8_e5m2", "--operations=allreduce,reduce"], {"TORCH_NCCL_RANKS_PER_ROOT": "2"}),
    ],
)
def test_collectives_in_place_and_of_small_types_give_right_sums(
    alps: Machine, options: Sequence[str], variables: Mapping[str, str]
) -> None:
    common = ["--transport=ccl", *options, "--sizes=24KiB", "--iterations=5", "--warmup=1"]
    run = alps.run(*common, variables=variables)
    assert run.status == 0, run.said
    assert {each["wrong_bytes"] for each in run.records} == {0}
    assert alps.run(*common, "--inject=wrong-byte", variables=variables).status == 5


def test_memory_paths_and_staging(machine: Machine) -> None:
    operations = "host_to_device,device_to_host"
    options = ("--schedules=uncontended", f"--sizes={SIZE}", *MORE_ITERATIONS)
    topology = machine.topology
    ends = {topology.gpu(0).name}, {cpu.name for cpu in topology.cpus}
    link = next(one for one in topology.links if all(set(one.ends) & end for end in ends))
    wanted = SCALE * link.total_gbps * efficiency(link.technology, "copy")
    rates = {(operation, None): wanted for operation in operations.split(",")}
    require_rates(machine, rates, "--transport=copy", f"--operations={operations}", *options, ranks=1)
    staged = machine.run("--transport=staging", "--operations=pingpong", "--pairs=0-1", "--sizes=64KiB", *ITERATIONS)
    assert staged.status == 0 and staged.records[0]["wrong_bytes"] == 0, staged.said
    assert staged.gbps("pingpong") < wanted


@pytest.mark.parametrize("transport", ("copy", "kernel", "ccl"))
def test_tiles_by_sycl_level_zero_and_oneccl(aurora: Machine, transport: str) -> None:
    """Two tiles of a card, then of two, in processes of their own."""
    options = ("--schedules=uncontended", "--pairs=0-1,0-2", f"--sizes={1 << 20}", *MORE_ITERATIONS)
    wanted = {
        ("unidirectional", (0, destination)): expected(aurora.topology, transport, 0, destination)
        for destination in (1, 2)
    }
    run = require_rates(aurora, wanted, f"--transport={transport}", "--operations=unidirectional,alltoall", *options)
    assert run.gbps("alltoall") > 0
    assert set(run.paths) == ({"P2P/LevelZero"} if transport == "ccl" else set())


def test_sums_and_host_memory_of_tiles(aurora: Machine) -> None:
    operations = "allreduce,reduce,reduce_scatter,allgather,broadcast,alltoall"
    exact = ("--sizes=12KiB", "--verify=every", "--iterations=3", "--warmup=1")
    for transport in ("ccl", "copy"):
        run = aurora.run(f"--transport={transport}", f"--operations={operations}", *exact)
        assert run.status == 0, run.said
        assert (len(run.records), {one["wrong_bytes"] for one in run.records}) == (6, {0})
    for transport, memory in (("copy", "pageable"), ("kernel", "migrated")):
        host = (f"--transport={transport}", f"--host-memory={memory}", "--operations=host_to_device,device_to_host")
        run = aurora.run(*host, *exact, ranks=1)
        assert run.status == 0, run.said
        assert {one["wrong_bytes"] for one in run.records} == {0}


def test_both_hierarchies_of_level_zero_have_the_same_tiles(aurora: Machine) -> None:
    found = {}
    for hierarchy in ("FLAT", "COMPOSITE"):
        variables = {"ZE_FLAT_DEVICE_HIERARCHY": hierarchy}
        run = aurora.run("--transport=copy", "--operations=alltoall", "--sizes=96", *ITERATIONS, variables=variables)
        assert run.status == 0, run.said
        assert run.header["libraries"]["gpu"]["device_hierarchy"] == hierarchy.lower()
        devices = [rank["device"] for rank in run.header["ranks"]]
        found[hierarchy] = [(one["uuid"], one["bus_id"], one["tile"]) for one in devices]
        assert all(one["name"].startswith("emulated ") and "GPU-656d756c" in one["uuid"] for one in devices)
    assert found["FLAT"] == found["COMPOSITE"]
    assert [tile for _, _, tile in found["FLAT"]] == [0, 1] * 6
    masked = {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE", "ZE_AFFINITY_MASK": "0.0"}
    run = aurora.run("--transport=copy", "--operations=alltoall", "--sizes=96", *ITERATIONS, ranks=1, variables=masked)
    assert run.status == 70 and "knows no ZE_AFFINITY_MASK" in run.said


def test_xpu_smi_tells_of_the_cards_and_who_uses_them(aurora: Machine, tmp_path: Path) -> None:
    healthy = state_of(aurora, tmp_path / "healthy")
    assert (healthy.notes, len(healthy.gpus)) == ((), 6)
    assert {gpu.name for gpu in healthy.gpus} == {"emulated Intel(R) Data Center GPU Max 1550"}
    aurora.plant({"processes": [{"gpu": "tile3", "pid": 4242, "name": "python", "memory_bytes": 1 << 30, "flows": []}]})
    used = state_of(aurora, tmp_path / "planted")
    assert [[each.pid for each in gpu.processes] for gpu in used.gpus] == [[], [4242], [], [], [], []]


def test_pages_that_the_host_draws_back(alps: Machine) -> None:
    options = ("--host-memory=migrated", "--schedules=uncontended", f"--sizes={SIZE}", *MORE_ITERATIONS)
    link = SCALE * 3600 * efficiency("NVLink-C2C", "kernel")
    operations = "--operations=host_to_device,device_to_host"
    run = require_rates(alps, {("host_to_device", None): link}, "--transport=kernel", operations, *options, ranks=1)
    assert 0.5 * link < run.gbps("device_to_host") < link, "block by block: slower than a copy"


@pytest.mark.parametrize("transport", ("copy", "kernel", "ccl"))
def test_trains_take_what_the_link_graph_says(alps: Machine, transport: str) -> None:
    options = ("--schedules=uncontended", "--pairs=0-1", f"--sizes={SIZE}", "--train=4", *ITERATIONS)
    run = alps.run(f"--transport={transport}", "--operations=unidirectional,bidirectional", *options, ranks=2)
    assert run.status == 0, run.said
    alone = expected(alps.topology, transport, 0, 1)
    assert run.gbps("unidirectional", [0, 1]) == pytest.approx(alone, rel=0.1)
    if transport == "copy":
        hosts = alps.run("--transport=copy", "--operations=host_to_device", *options[2:], ranks=1)
        assert hosts.status == 0, hosts.said


def test_a_train_is_no_longer_than_its_budget(machine: Machine) -> None:
    """Ten whole trains of these links take longer than the time limit. Each message has a slot in the GPUs' memory."""
    options = ("--schedules=uncontended", "--pairs=0-1", f"--sizes={SIZE}", "--train=60", "--budget=0.1")
    run = machine.run("--transport=copy", "--operations=unidirectional", *options, "--time-limit=20", ranks=2)
    assert run.status == 0, run.said
    alone = expected(machine.topology, "copy", 0, 1)
    assert run.gbps("unidirectional", [0, 1]) == pytest.approx(alone, rel=0.1)


def test_a_missing_gpu_and_another_order(alps: Machine) -> None:
    alps.plant({"missing_gpus": ["gpu2"]})
    run = alps.run("--transport=copy", "--operations=alltoall", "--sizes=8", *ITERATIONS)
    assert run.status == 2 and "is a GPU missing?" in run.said
    run = alps.run("--transport=copy", "--operations=alltoall", "--sizes=8", "--devices=0,1,2,3", *ITERATIONS)
    assert run.status == 2 and "names device 3 for rank 3" in run.said
    alps.plant({"gpu_order": ["gpu3", "gpu2", "gpu1", "gpu0"]})
    run = alps.run("--transport=copy", "--operations=alltoall", "--sizes=8", *ITERATIONS)
    bus_ids = [rank["device"]["bus_id"] for rank in run.header["ranks"]]
    assert bus_ids == sorted(bus_ids, reverse=True)


@pytest.mark.parametrize(
    "variables, path",
    (
        ({"NCCL_P2P_DISABLE": "1"}, "SHM/direct/direct"),
        ({"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NET": "Socket"}, "NET/Socket/0"),
    ),
)
def test_nccl_says_which_path_it_took(alps: Machine, variables: Mapping[str, str], path: str) -> None:
    options = ("--transport=ccl", "--operations=pingpong", "--pairs=0-1", "--sizes=256KiB", *ITERATIONS)
    run = alps.run(*options, ranks=2, variables={**variables, "NCCL_SOCKET_IFNAME": "lo"})
    assert run.status == 0, run.said
    assert set(run.paths) == {path}


def test_what_a_module_sets_keeps_nothing_from_being_proven(alps: Machine, tmp_path: Path) -> None:
    """A level of NCCL's log, a file for it, and a file of variables that NCCL reads by itself."""
    (tmp_path / "nccl.conf").write_text("# of the site\nNCCL_MAX_CTAS=4\nNCCL_IB_TC=9\n")
    module = {"NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": str(tmp_path / "log"), "NCCL_DEBUG_SUBSYS": "GRAPH"}
    variables = {**module, "NCCL_CONF_FILE": str(tmp_path / "nccl.conf"), "NCCL_IB_TC": "1"}
    options = ("--transport=ccl", "--operations=pingpong", "--sizes=8", *ITERATIONS)
    run = alps.run(*options, variables=variables)
    assert run.status == 0 and set(run.paths) == {"P2P/CUMEM"}
    assert run.header["set_by_library"] == ["NCCL_MAX_CTAS"]
    environment = run.header["environment"]
    assert (environment["NCCL_MAX_CTAS"], environment["NCCL_IB_TC"]) == ("4", "1")


def test_ranks_of_several_nodes_with_one_core_each(alps: Machine) -> None:
    """They wait by giving it up, and the header says so."""
    place = "hostname n$OMPI_COMM_WORLD_RANK && exec taskset -c 0"
    two = ["unshare", "--uts", "sh", "-c", f'{place} "$0" "$@"', str(alps.program)]
    options = ("--transport=ccl", "--operations=pingpong", "--sizes=8", "--share-devices", "--devices=0", *ITERATIONS)
    run = alps.run(*options, ranks=2, by=two)
    assert run.status == 0 and run.header["few_cores"] is True
    assert "few_cores" not in alps.run(*options[:-4], *ITERATIONS, ranks=2).header


@contextmanager
def told(machine: Machine, **facts: bool) -> Iterator[None]:
    """What the GPUs of a node say of themselves, while the context lasts."""
    file = machine.folder / "node.json"
    before = file.read_text()
    content = json.loads(before)
    for gpu in content["gpus"]:
        gpu.update(facts)
    file.write_text(json.dumps(content))
    yield
    file.write_text(before)


@pytest.mark.parametrize("transport", ("copy", "kernel"))
def test_where_the_runtime_has_no_handles_the_driver_maps_memory_of_other_ranks(alps: Machine, transport: str) -> None:
    options = (f"--transport={transport}", "--schedules=uncontended", "--pairs=0-1", f"--sizes={SIZE}", *ITERATIONS)
    operations = "unidirectional,pingpong,alltoall"
    with told(alps, ipc=False):
        wanted = {("unidirectional", (0, 1)): expected(alps.topology, transport, 0, 1)}
        run = require_rates(alps, wanted, *options, f"--operations={operations}", "--verify=every")
        assert run.header["plan"]["handles"] == "vmm"
        for unknown in ("ipc", "fabric"):
            assert alps.run(*options, "--operations=pingpong", f"--handles={unknown}").status == 6
    assert "handles" not in alps.run(*options, "--operations=pingpong").header["plan"]
    assert not list(alps.folder.glob("memory-*"))


def test_a_provider_that_does_not_take_memory_of_gpus_measures_hosts(alps: Machine) -> None:
    """Debian's libfabric is built without CUDA."""
    options = ("--transport=fabric", "--access=send", "--operations=pingpong", "--pairs=0-1", "--sizes=8", *ITERATIONS)
    run = alps.run(*options)
    assert run.status == 6 and "FI_HMEM" in run.said and "--buffers host-host" in run.said
    assert len([line for line in run.said.splitlines() if line.startswith("fabricbench: ")]) == 1
    assert alps.run(*options, "--buffers=host-host").status == 0


@pytest.mark.parametrize("transport", ("copy", "kernel"))
def test_two_trays_of_an_nvlink_domain_reach_each_others_memory(alps: Machine, transport: str) -> None:
    """A node of four is two trays of two here: each has its host name, and sees its own GPUs."""
    tray = "T=$((OMPI_COMM_WORLD_RANK / 2)); hostname tray$T; export CUDA_VISIBLE_DEVICES=$((2*T)),$((2*T+1))"
    two = ["unshare", "--uts", "sh", "-c", f'{tray}; exec "$0" "$@"', str(alps.program)]
    options = (f"--transport={transport}", "--schedules=uncontended", "--pairs=0-1,0-2,3-1", f"--sizes={SIZE}")
    operations = ("--operations=unidirectional,pingpong,alltoall,broadcast", "--verify=every", "--expect-nodes=2")
    with told(alps, fabric=True, imex=True):
        pairs = ((0, 1), (0, 2), (3, 1))
        wanted = {("unidirectional", pair): expected(alps.topology, transport, *pair) for pair in pairs}
        run = require_rates(alps, wanted, *options, *operations, *ITERATIONS, by=two)
        assert run.header["plan"]["handles"] == "fabric"
        assert {one["host"] for one in run.header["ranks"]} == {"tray0", "tray1"}
        assert {one["wrong_bytes"] for one in run.records} == {0}
        read = read_run(alps.folder / f"result-{alps.runs}.jsonl")
        assert read.footer is not None and len(read.samples) == len(run.records)
    with told(alps, fabric=True):
        run = alps.run(*options, *operations, *ITERATIONS, by=two)
    assert run.status == 2 and "imex" in run.said


def test_a_killed_rank_leaves_nothing_behind(alps: Machine) -> None:
    options = ("--transport=copy", "--operations=pingpong", "--pairs=0-1", f"--sizes={SIZE}")
    killed = alps.run("--transport=copy", "--operations=pingpong", f"--sizes=8,{SIZE}", "--inject=kill", ranks=2)
    assert killed.status not in (0, 2)
    assert alps.run(*options, *ITERATIONS, ranks=2).status == 0
    assert not list(alps.folder.glob("memory-*"))


def test_what_is_too_large_or_not_stood_in_for_is_one_line(alps: Machine) -> None:
    run = alps.run("--transport=copy", "--operations=pingpong", "--sizes=1GiB", *ITERATIONS, ranks=2)
    assert run.status == 3 and "are refused: this emulated node allows allocations of up to" in run.said
    call = "import ctypes; ctypes.CDLL('libcudart.so.13').cudaGraphCreate(None, 0)"
    done = subprocess.run(
        ["python", "-c", call], env=alps.environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 70
    assert done.stderr == (
        "fabricheck emulation: the stand-in of libcudart has no cudaGraphCreate: on an emulated node only what "
        "fabricbench and init call can run\n"
    )


def state_of(machine: Machine, folder: Path) -> NodeState:
    """What the collector of a job says of the node as it is now, with the real nvidia-ml-py."""
    command = [sys.executable, "-m", "fabricheck.state.collect", str(folder), "before"]
    folder.mkdir()
    done = subprocess.run(command, env=machine.environment(), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (file,) = folder.glob("*.json")
    return read_state(file)


def test_the_state_of_a_node_shows_what_is_planted(machine: Machine, tmp_path: Path) -> None:
    """NVML's word on alps, amd-smi's on lumi, each judged by the node's own topology."""
    healthy = state_of(machine, tmp_path / "healthy")
    assert (healthy.notes, len(healthy.gpus)) == ((), machine.ranks)
    quiet = replace(healthy, busy_cores=0.0, nics=())
    assert evidence_of_node(quiet, replace(machine.topology, nics=())) == ()
    first, second, third = (gpu.name for gpu in machine.topology.gpus[:3])
    machine.plant(
        {
            "throttle": {first: {"factor": 0.6, "reasons": ["sw_thermal_slowdown"]}},
            "pcie": {second: {"generation": 3, "width": 8}},
            "processes": [{"gpu": third, "pid": 4242, "name": "python", "memory_bytes": 1 << 30, "flows": []}],
            **({"nvlinks": {first: {"7": {"state": "inactive"}}}} if machine.system == "alps" else {}),
        }
    )
    found = {each.short: each.verdict for each in evidence_of_node(state_of(machine, tmp_path / "planted"), None)}
    host = healthy.host
    assert found[f"{host}: GPU 2: is in use by process 4242 (python, 1.07 GB)"] is Verdict.INVALID
    assert found[f"{host}: GPU 1: PCIe runs at Gen 3 x8 of Gen 5 x16"] is Verdict.DEGRADED
    assert any(text.startswith(f"{host}: GPU 0: is throttled: ") for text in found)
    links = f"{host}: GPU 0: 17 of 18 links to other GPUs are active (7 inactive)"
    assert (links in found) == (machine.system == "alps")
