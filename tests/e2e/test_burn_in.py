"""A burn-in by real MPI: what its lines hold, a wrong product, and mistakes in its plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.bench import Bench

pytestmark = [pytest.mark.e2e, pytest.mark.quiet, pytest.mark.full, pytest.mark.timeout(600)]

PARTS = {
    "compute": {"products"},
    "traffic": {"traffic"},
    "copies": {"copies"},
    "together": {"products", "traffic", "copies", "ring", "allreduce"},
}


def test_a_flipped_bit_of_a_product_is_found_on_its_rank(openmpi: Bench, tmp_path: Path) -> None:
    job = openmpi.brief.run(
        tmp_path,
        "--operations=allreduce --sizes=64KiB --iterations=8 --burn-in=2 --inject=wrong-product:1 --quiet",
        "--output=result.jsonl",
        ranks=2,
    )
    assert job.returncode == 5, job.stdout + job.stderr
    lines = [json.loads(line) for line in (tmp_path / "result.jsonl").read_text().splitlines()]
    header, footer = lines[0], lines[-1]
    plan = {"seconds": 2, "alone_seconds": 0.2, "window_seconds": 1, "product": "float32", "order": 128}
    assert header["plan"]["burn_in"] == {**plan, "copy_bytes": 64 << 10}
    (first,) = (line for line in lines if line["record"] == "burn_in")
    assert (first["by"], first["wrong_rows"]) == (["kernel"] * 2, [0, 0])
    windows = [line for line in lines if line["record"] == "window"]
    assert [window["window"] for window in windows] == list(range(footer["windows"]))
    assert list(dict.fromkeys(window["phase"] for window in windows)) == list(PARTS)
    for window in windows:
        parts = {name: part for name, part in window.items() if isinstance(part, dict)}
        assert set(parts) == PARTS[window["phase"]]
        for part in parts.values():
            assert all(len(by_rank) == 2 for by_rank in part.values())
            assert min(part["count"]) > 0
            assert all(part["median_ns"][rank] <= part["p99_ns"][rank] <= part["max_ns"][rank] for rank in range(2))
        assert parts.get("traffic", {}).get("wrong_bytes", [0, 0]) == [0, 0]
    nodes = [line["window"] for line in lines if line["record"] == "node"]
    assert nodes == [window["window"] for window in windows]
    products = [window["products"] for window in windows if "products" in window]
    assert [sum(by_rank) for by_rank in zip(*(part["wrong_words"] for part in products), strict=True)] == [0, 1]
    assert footer["wrong_words"] == 1
    (place,) = (part["first_wrong"][1] for part in products if part["first_wrong"][1] is not None)
    assert place[1] == 128 * 128 // 2


def test_a_training_step_is_no_list_of_transfers(openmpi: Bench, tmp_path: Path) -> None:
    options = "--operations=training_step --sizes=22KiB --iterations=8 --quiet"
    ended = {}
    for implementation in ("library", "transfers"):
        more = f"--output={implementation}.jsonl", f"--implementation={implementation}"
        ended[implementation] = openmpi.brief.run(tmp_path, options, *more, ranks=4)
    assert [job.returncode for job in ended.values()] == [0, 2]
    (said,) = (line for line in ended["transfers"].stderr.splitlines() if line.startswith("fabricbench:"))
    assert "--implementation library" in said


@pytest.mark.parametrize(
    "options",
    [
        "--operations=allreduce --sizes=8,16 --burn-in=1",
        "--operations=allreduce,alltoall --sizes=8 --burn-in=1",
        "--operations=allreduce --sizes=8 --burn-in=0",
        "--operations=allreduce --sizes=8 --burn-in=100000000",
        "--operations=victim_pingpong_incast --sizes=8 --burn-in=1",
    ],
)
def test_a_mistake_in_its_plan_is_one_line(openmpi: Bench, tmp_path: Path, options: str) -> None:
    job = openmpi.brief.run(tmp_path, options, "--output=result.jsonl", ranks=3)
    said = [line for line in job.stderr.splitlines() if line.startswith("fabricbench:")]
    assert (job.returncode, len(said)) == (2, 1)
