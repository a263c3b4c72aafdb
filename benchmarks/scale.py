"""What a run over a fleet costs to write, read, judge and export, by simulation: no number of the fabric, only of us.

    nice python -m benchmarks.scale --write output/scale.md

makes the result file that fabricbench would leave of a screen of 512 nodes with eight ports each (1,000 iterations of a
made-up latency and goodput), reads and judges it, and exports the metrics of a fleet to Prometheus. The plan of 4,096
ranks and the ping-pong of 72 GPUs are those of the checks. Times are of the processor.

    nice python -m benchmarks.scale --watch 102400 --nights 365

watches made-up series of so many metrics (512 nodes with 200 each), which are healthy, and prints what that took but
for reading them from a store, which `benchmarks/store.py` measures; the table has that too.

    nice python -m benchmarks.scale --history compare --metrics 100000 --nights 10

gives a made-up history of so many metrics to compare, calibrate or watch. Tables: docs/results/simulated/cost.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fabricheck.diagnosis.causes import Diagnosis
from fabricheck.history.calibrate import calibrate
from fabricheck.history.compare import compare
from fabricheck.history.series import MetricKey, Series, Session, components_of_keys
from fabricheck.history.watch import watch, watch_of
from fabricheck.judge.judge import judge_run
from fabricheck.judge.verdicts import RunJudgement
from fabricheck.records.judgement import Expectation
from fabricheck.records.metrics import Quantity
from fabricheck.records.order_statistics import kept_ranks
from fabricheck.records.pair_rule import PairRule
from fabricheck.records.run import Rank, Run, Samples
from fabricheck.report.machine import write_prometheus
from fabricheck.results.fabricbench import read_run
from fabricheck.rfm.command_line import MeasurementPlan
from fabricheck.rfm.duration import fit, seconds_of
from fabricheck.store.software_of_metrics import software_crossed
from fabricheck.yardsticks.policy import Policy

ROOT = Path(__file__).resolve().parent.parent
NODES, PORTS, ITERATIONS = 512, 8, 1000
SIZE, GBPS, NOISE = 1 << 24, 400.0, 0.02
MINUTES = 10.0
FIRST, A_NODE = datetime(2026, 1, 1, tzinfo=timezone.utc), 200
SOFTWARE = '{"CUDA":"13.0","CUDA driver":"580.159.04","NCCL":"2.28.3","fabricbench":"0.1.0"}'


def node_pairs() -> MeasurementPlan:
    """The check of all pairs of nodes, port by port (checks/network.py)."""
    one_size = f"{SIZE}B"
    operations, schedules = ["unidirectional"], ["contended"]
    ranks = NODES * PORTS
    return MeasurementPlan("ccl", operations, schedules, one_size, 2, 60, ranks, NODES, pairs="rails", budget=0.1)


def screen(nodes: int, turns: int) -> PairRule:
    rule = PairRule(nodes * PORTS, PORTS, 2, True)
    return replace(rule, turns=turns if turns < rule.all_turns else 0)


def lines(rule: PairRule) -> Iterator[dict[str, Any]]:
    """The lines of the result file of a screen."""
    drawn = np.random.default_rng(0)
    described = {"ranks": rule.ranks, "group": rule.group, "directions": 2, "hash": rule.hash_text()}
    if rule.turns:
        described["turns"] = rule.turns
    same = {"operation": "unidirectional", "implementation": "transfers", "schedule": "contended"}
    example = json.loads((ROOT / "tests/data/fabricbench/synthetic_host_2ranks.jsonl").read_text().splitlines()[0])
    ranks = [
        {**example["ranks"][0], "rank": each, "local_rank": each % PORTS, "host": f"nid{each // PORTS:06}", "pid": 1}
        for each in range(rule.ranks)
    ]
    plan = {**example["plan"], "operations": ["unidirectional"], "schedules": ["contended"], "sizes": [SIZE]}
    plan["iterations"] = {"mode": "fixed", "minimum": ITERATIONS, "maximum": ITERATIONS, "budget_s": None}
    plan["series"] = [{**same, "rule": described, "bytes": [SIZE]}]
    yield {**example, "format": 2, "ranks": ranks, "plan": plan, "expected_records": len(rule)}
    kept, index = kept_ranks(ITERATIONS), 0
    for number, pairs in rule.rounds():
        times = 8 * SIZE / GBPS * drawn.normal(1.0, NOISE, (len(pairs), ITERATIONS))
        values = np.sort(times.astype(np.int64), axis=1)[:, kept].tolist()
        for pair, times_ns in zip(pairs.tolist(), values, strict=True):
            told = {"index": index, "round": number, "ranks": pair, "bytes": SIZE, "warmup": plan["warmup"]}
            ended = {"stopped": "fixed", "wrong_bytes": 0, "iterations": ITERATIONS, "times_ns": times_ns}
            yield {"record": "samples", **same, **told, **ended}
            index += 1
    totals = {"records": index, "samples": index * len(kept), "wrong_bytes": 0, "wall_ns": 10**12, "timed_ns": 10**11}
    rest = {"setup_ns": 0, "verify_ns": 0, "recording_ns": 0, "proof": {"paths": {}, "evidence": None}}
    yield {"record": "footer", "run_id": example["run_id"], "status": "complete", **totals, **rest}


def write_file(path: Path, rule: PairRule) -> int:
    """Writes the result file of a screen; its size in bytes."""
    with path.open("w") as file:
        file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines(rule))
    return path.stat().st_size


def expect(_: Samples, quantity: Quantity) -> Expectation:
    nominal = GBPS if quantity == "goodput" else None
    return Expectation(nominal, nominal, None, 0.5, "made up")


def judged(path: Path) -> tuple[RunJudgement, float, float]:
    """The judgement of a file, and the processor seconds of reading and of judging it."""
    start = time.process_time()
    run = read_run(path)
    read = time.process_time()
    judgement = judge_run(run, expect, {}, Policy())
    if run.problems:
        raise SystemExit(f"the simulated file is not valid: {run.problems[0].message}")
    return judgement, read - start, time.process_time() - read


def of_file(path: Path) -> dict[str, float]:
    """What reading and judging a file costs a process that does nothing else."""
    judgement, read, judging = judged(path)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"metrics": len(judgement.judgements), "read_s": read, "judge_s": judging, "memory_mib": memory}


def exported(folder: Path, example: RunJudgement) -> int:
    """Bytes of the metrics of a fleet: the screen, and of each node 300 metrics over 24 questions."""
    local = example.judgements[:300]
    questions = [
        replace(each, samples=replace(each.samples, bytes=SIZE << (place % 24))) for place, each in enumerate(local)
    ]
    nodes = [
        replace(example, run=node_run(example.run, node), judgements=tuple(questions), test=f"PairsOfNode {node % 3}")
        for node in range(NODES)
    ]
    write_prometheus([example, *nodes], folder / "metrics.prom", system="simulated", diagnosis=Diagnosis())
    return (folder / "metrics.prom").stat().st_size


def node_run(run: Run, node: int) -> Run:
    ranks: tuple[Rank, ...] = run.ranks[node * PORTS : (node + 1) * PORTS]
    return replace(run, ranks=ranks)


def healthy_series(metrics: int, nights: int) -> Series:
    """Metrics of nodes with four GPUs and 200 metrics each, a session a night."""
    drawn = np.random.default_rng(0)
    sessions = tuple(Session(f"s{night}", FIRST + timedelta(days=night)) for night in range(nights))
    nodes = [f"nid{number // A_NODE:06}" for number in range(metrics)]
    software = [each.key for each in software_crossed("Made", SOFTWARE)]
    return Series(
        keys=tuple(MetricKey("gpu", "mpi", "Made", f"{node}_{number}") for number, node in enumerate(nodes)),
        units=("Gb/s",) * metrics,
        better=tuple("higher" for _ in range(metrics)),
        components=tuple(
            components_of_keys((node, f"{node}:gpu{number % 4}", *software)) for number, node in enumerate(nodes)
        ),
        sessions=sessions,
        values=GBPS * np.exp(NOISE * drawn.standard_normal((metrics, nights))),
        software=(SOFTWARE,),
        versions=np.zeros((metrics, nights), dtype=np.int32),
    )


def of_watch(metrics: int, nights: int) -> str:
    """What watching costs a process that does nothing else."""
    series = healthy_series(metrics, nights)
    start = time.process_time()
    result = watch_of(series, "simulated").result
    seconds = time.process_time() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return f"{seconds:.0f} s of a processor, {memory:.2f} GB, {len(result.incidents)} incidents"


def made_history(metrics: int, nights: int) -> pl.DataFrame:
    """A history as the store gives it, a session a night."""
    drawn = np.random.default_rng(0)
    night, number = np.unravel_index(np.arange(metrics * nights), (nights, metrics))
    texts = {"environment": "mpi", "partition": "gpu", "test": "Made", "unit": "Gb/s", "better": "higher"}
    texts |= {"verdict": "PASS", "software": SOFTWARE, "tuning": "{}", "system": "simulated"}
    return (
        pl.DataFrame({"night": night.astype(np.int32), "number": number.astype(np.int32), "value": GBPS})
        .with_columns(
            pl.format("s{}", pl.col("night").cast(pl.String).str.zfill(3)).alias("session"),
            pl.format("r{}", "night").alias("run_id"),
            (pl.lit(FIRST) + pl.duration(days="night")).alias("started"),
            pl.format("pair_{}_goodput", "number").alias("metric"),
            value=pl.Series(GBPS * np.exp(NOISE * drawn.standard_normal(metrics * nights))),
            low=GBPS,
            high=GBPS,
            count=100,
            deviation=GBPS * 0.005,
            nodes=pl.concat_list(pl.lit("nid000001")),
            components=pl.concat_list(pl.lit("nid000001"), pl.lit("nid000001:gpu0")),
            tags=pl.lit([], dtype=pl.List(pl.String)),
            rehearsal=False,
            **{name: pl.lit(text) for name, text in texts.items()},
        )
        .drop("night", "number")
    )


def of_history(command: str, metrics: int, nights: int) -> str:
    """What a command takes of a process that does nothing else; its memory with that of the history."""
    made = [made_history(metrics, nights)]
    start = time.process_time()
    if command == "calibrate":
        calibrate(made.pop(), "simulated")
    elif command == "watch":
        watch(made.pop(), "simulated")
    else:
        middle = [str((FIRST + timedelta(days=nights // 2 + more)).date()) for more in (-1, 0)]
        compare(made.pop(), "simulated", f"..{middle[0]}", f"{middle[1]}..")
    seconds = time.process_time() - start
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return f"{seconds:.0f} s of a processor, {memory / 1e9:.2f} GB, {memory / (metrics * nights) / 1000:.2f} kB a value"


def table(rows: list[tuple[str, str, str]]) -> str:
    head = "| what | must reach | found |\n|---|---|---|\n"
    return head + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, help="file to write the table to")
    parser.add_argument("--nodes", type=int, default=NODES, help="nodes of the screen")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--watch", type=int, metavar="METRICS", help="watch so many, and nothing else")
    parser.add_argument("--nights", type=int, default=365, help="that --watch looks at")
    parser.add_argument("--history", choices=["calibrate", "compare", "watch"], help="one of them, and nothing else")
    parser.add_argument("--metrics", type=int, default=100_000, help="of --history")
    options = parser.parse_args()
    if options.history:
        print(of_history(options.history, options.metrics, options.nights))
        return
    if options.watch:
        print(of_watch(options.watch, options.nights))
        return
    if options.read:
        print(json.dumps(of_file(options.read)))
        return
    watching = ["--watch", str(NODES * A_NODE), "--nights", str(options.nights)]
    command = [sys.executable, "-m", "benchmarks.scale", *watching]
    watched = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()
    plan = fit(node_pairs(), 60 * MINUTES).plan
    rule = screen(options.nodes, plan.turns)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = write_file(folder / "screen.jsonl", rule)
        command = [sys.executable, "-m", "benchmarks.scale", "--read", str(folder / "screen.jsonl")]
        said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        cost = json.loads(said.stdout)
        small = screen(64, 1)
        write_file(folder / "small.jsonl", small)
        prometheus = exported(folder, judged(folder / "small.jsonl")[0])
    gpus = MeasurementPlan("copy", ["pingpong"], ["uncontended", "contended"], "1B:1GiB:4", 10, 60, 72, 18, budget=0.1)
    fitted = fit(gpus, 60 * MINUTES)
    everything = len(PairRule(options.nodes * PORTS, PORTS, 2, True))
    what = f"screen of {options.nodes} nodes with {PORTS} ports, {len(rule):,} pairs of {everything:,}"
    rows = [
        (f"{what}: file", "≤ 1 GB", f"{size / 1e6:,.0f} MB, {size / len(rule):,.0f} B a pair"),
        ("its memory in reader and judge", "≤ 2 GB", f"{cost['memory_mib'] * 2**20 / 1e9:.2f} GB"),
        (
            "its judging",
            "≤ 240 s of a processor",
            f"{cost['judge_s']:.0f} s, and {cost['read_s']:.0f} s of reading; {cost['metrics']:,.0f} metrics",
        ),
        (
            "ping-pong of 72 GPUs",
            "≤ 10 min",
            f"{fitted.seconds / 60:.1f} min by its plan; all of it {seconds_of(gpus) / 60:.0f} min",
        ),
        (f"metrics.prom of {NODES} nodes", "≤ 20 MB", f"{prometheus / 1e6:.1f} MB"),
        (f"watch of {NODES} nodes with {A_NODE} metrics each, {options.nights} nights", "≤ 180 s, ≤ 4 GB", watched),
    ]
    machine = f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}"
    left_out = fit(node_pairs(), 60 * MINUTES).left_out
    text = f"""# What a fleet costs

Written by `python -m benchmarks.scale --write FILE`, by simulation,
on {machine}. Times are of the processor, which other work shared.
Judged is each metric by its floor and interval; what a topology adds (equals, localization) is not in it.
Of the pairs of nodes: {left_out}.

{table(rows)}"""
    if options.write:
        options.write.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
