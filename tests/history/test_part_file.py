"""A part's file from runs: one value of each machine, beside those of other sources, and read back by the judge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ruamel.yaml.comments import CommentedMap

from fabricheck.errors import UserError
from fabricheck.history.part_file import part_text, source_of
from fabricheck.judge.system import SystemJudge
from fabricheck.records.run import Run
from fabricheck.results.fabricbench import read_run
from fabricheck.topology.model import Topology
from fabricheck.yardsticks.part_values import load_part
from tests.support.burn_ins import burn_in_lines, write_burn_in
from tests.support.equal_runs import pairs, run_of
from tests.support.nodes import system

NODE = system("hgx-h200")


def source(text: str = "a test") -> CommentedMap:
    return CommentedMap(kind="measured", source=text)


def runs(*levels: float) -> list[tuple[Run, Topology]]:
    return [(run_of([f"node{number}"] * 4, pairs(4), level=level), NODE) for number, level in enumerate(levels)]


def test_each_machine_is_one_value(tmp_path: Path) -> None:
    path = tmp_path / "made.yaml"
    path.write_text(part_text(path, runs(3000.0, 3060.0, 3030.0), "made", source()))
    (value,) = load_part(path).values
    assert (value.machines, value.unit, value.where.links) == (3, "Gb/s", "18 x NVLink4")
    assert value.value == pytest.approx(3030, rel=1e-3)
    assert value.spread == pytest.approx(0.01, rel=0.2)


def test_what_other_kernels_gave_is_no_value_of_a_part(tmp_path: Path) -> None:
    """Sums of two-byte numbers would judge those of four."""
    ((run, node),) = runs(3000.0)
    header = {**run.header, "plan": {**run.header["plan"], "datatype": "bfloat16"}}
    with pytest.raises(UserError, match="no value to write"):
        part_text(tmp_path / "made.yaml", [(replace(run, header=header), node)], "made", source())


def test_products_by_a_library_are_values_in_tflops(tmp_path: Path) -> None:
    """As the judge reads them back, whatever moved data beside; by a kernel of our own they are none."""
    lines = burn_in_lines(gpus=2)
    lines[2]["by"][1] = "kernel"
    run = read_run(write_burn_in(tmp_path, lines))
    path = tmp_path / "made.yaml"
    path.write_text(part_text(path, [(run, NODE)], "made", source()))
    (value,) = (one for one in load_part(path).values if one.where.operations == ["product"])
    assert (value.unit, value.where.product, value.where.library) == ("Tflop/s", "bfloat16", "cuBLAS")
    assert value.value == pytest.approx(2 * 8192**3 / 1.6e6 / 1e3, rel=0.01)
    judge = replace(SystemJudge.of_parts(), parts=(load_part(path),))
    kinds = {
        one.samples.ranks: one.yardstick.kind if one.yardstick is not None else ""
        for one in judge.judge_alone(run).judgements
        if (one.samples.operation, one.samples.schedule) == ("product", "uncontended")
    }
    assert kinds[0,] == "part" != kinds[1,]


def test_another_source_stands_beside_and_the_same_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "made.yaml"
    for name, level in (("one", 3000.0), ("two", 3100.0), ("one", 3050.0)):
        path.write_text(part_text(path, runs(level), name, source(name)))
    found = {one.source: one.value for one in load_part(path).values}
    assert found == {"two": pytest.approx(3100, rel=1e-3), "one": pytest.approx(3050, rel=1e-3)}


def test_runs_on_two_models_and_files_of_another_part_are_refused(tmp_path: Path) -> None:
    (run, node) = runs(3000.0)[0]
    other = replace(
        run, ranks=tuple(replace(each, device=replace(each.device, name="B200")) for each in run.ranks if each.device)
    )
    path = tmp_path / "made.yaml"
    with pytest.raises(UserError, match="one model of GPU, and these runs are on B200, H200"):
        part_text(path, [(run, node), (other, node)], "made", source())
    path.write_text(part_text(path, [(run, node)], "made", source()))
    with pytest.raises(UserError, match="is of H200, and these runs are on B200"):
        part_text(path, [(other, node)], "made", source())
    with pytest.raises(UserError, match="on none"):
        part_text(path, [], "made", source())


def test_the_source_says_when_and_by_which_software() -> None:
    (run, _) = runs(3000.0)[0]
    header = {
        **run.header,
        "started_utc": "2026-11-22T10:00:00Z",
        "libraries": {"gpu": {"name": "CUDA", "version": "13.0"}},
    }
    found = source_of("here", [replace(run, header=header)])
    assert dict(found) == {
        "kind": "measured",
        "source": "1 runs on here",
        "date": "2026-11-22",
        "software": "CUDA 13.0",
    }
