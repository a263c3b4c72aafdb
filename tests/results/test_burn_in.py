from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fabricheck.records.metrics import metrics_of, parse_metric_name
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from tests.support.burn_ins import burn_in_lines, gpus_of, windows_of, write_burn_in
from tests.support.result_files import Line, verdicts


def test_windows_are_iterations_of_metrics_that_history_and_comparisons_know(tmp_path: Path) -> None:
    lines = burn_in_lines(gpus=2)
    run = read_run(write_burn_in(tmp_path, lines))
    assert run.problems == ()
    names = [metric.name for metric in metrics_of(run)]
    assert names[0] == "allreduce_uncontended_all2_1gib_goodput"
    assert {parse_metric_name(name).operation for name in names[1:]} == {"product", "traffic", "copies"}
    assert len(names) == 1 + 2 * (2 + 1 + 2)  # alone and together: of each rank, of all, of each rank
    (product,) = (one for one in metrics_of(run) if one.name == "product_contended_1_384mib_goodput")
    medians = [window["products"]["median_ns"][1] for window in windows_of(lines)]
    assert product.samples.times_ns.tolist() == medians
    (traffic,) = (one for one in metrics_of(run) if one.name == "traffic_contended_all2_1gib_goodput")
    assert traffic.samples.times_ns[0] == max(windows_of(lines)[0]["traffic"]["median_ns"])


def test_what_gpus_report_by_window_are_counters_of_their_states(tmp_path: Path) -> None:
    lines = burn_in_lines(gpus=2)
    for gpu in gpus_of(lines, "nid001", 1, first=30):
        gpu["counters"]["ecc_uncorrected"] = 2
    [line for line in lines if line["record"] == "node"][40]["xids"] = [["0000:01:00.0", 63]]
    load = read_run(write_burn_in(tmp_path, lines)).burn_in
    assert load is not None
    before, after = load.states.before["nid001"], load.states.after["nid001"]
    assert [gpu.counters["ecc_uncorrected"] for gpu in (*before.gpus, *after.gpus)] == [0, 0, 0, 2]
    assert [gpu.counters["throttled_ns_sw_power_cap"] for gpu in after.gpus] == pytest.approx([82e9] * 2)
    assert [(event.part, event.number) for event in after.xids or ()] == [("0000:01:00.0", "63")]


def _without(record: str) -> Callable[[list[Line]], object]:
    def remove(lines: list[Line]) -> None:
        lines[:] = [line for line in lines if line["record"] != record]

    return remove


DAMAGES: dict[str, Callable[[list[Line]], object]] = {
    "a window is lost": lambda lines: lines.remove(windows_of(lines)[5]),
    "a rank is lost": lambda lines: windows_of(lines)[5]["products"]["median_ns"].pop(),
    "it ends before it begins": lambda lines: windows_of(lines)[5].update(end_ns=1),
    "no phase": lambda lines: windows_of(lines)[5].update(phase="rest"),
    "no products": lambda lines: windows_of(lines)[5].pop("products"),
    "a negative time": lambda lines: windows_of(lines)[5]["copies"]["median_ns"].__setitem__(0, -1),
    "another node": lambda lines: next(line for line in lines if line["record"] == "node").update(host="nid009"),
    "none was planned": lambda lines: lines[0]["plan"].pop("burn_in"),
    "of other ranks": lambda lines: lines[2]["by"].pop(),
    "a gauge of two": lambda lines: gpus_of(lines, "nid001", 0)[3].update(power_w=[1.0, 2.0]),
    "the footer counts others": lambda lines: lines[-1].update(windows=3),
    "no windows": _without("window"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_burn_in_is_never_green_and_says_so_in_a_line(damage: str, tmp_path: Path) -> None:
    lines = burn_in_lines(gpus=2, together=20)
    DAMAGES[damage](lines)
    run = read_run(write_burn_in(tmp_path, lines))
    assert verdicts(run) == {Verdict.INVALID} or Verdict.INCOMPLETE in verdicts(run)
    assert all("\n" not in problem.message for problem in run.problems)
    assert run.burn_in is None


def test_wrong_products_that_the_footer_does_not_count(tmp_path: Path) -> None:
    lines = burn_in_lines(gpus=2, together=20)
    path = write_burn_in(tmp_path, lines)
    assert read_run(path).problems == ()
    windows_of(lines)[3]["products"]["wrong_words"][0] = 1
    text = path.read_text()
    path.write_text(text.replace('"wrong_words": [0, 0]', '"wrong_words": [1, 0]', 1))
    assert verdicts(read_run(path)) == {Verdict.INVALID}
