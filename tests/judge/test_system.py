"""The judge of a system: which of its files count for a run, and what it says where one is missing or unclear."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.judge.system import ByHand, Judged, SystemJudge, without_references
from fabricheck.records.case import name_of_header, name_without_blanks, parse_attribute, parse_case
from fabricheck.records.rehearsal import as_rehearsal
from fabricheck.records.verdict import Verdict
from fabricheck.results.fabricbench import read_run
from tests.support.result_files import CUDA, lines_of, write
from tests.support.sessions import make_suite

METRIC = "allreduce_uncontended_all4_1gib_goodput"
REFERENCES = """
$sources:
  run1: {kind: vendor, source: made up for a test}
$provenance: {Indexed: run1, Other: run1}
Indexed:
  $index: [flavour, transport, backend, num_tasks]
  sweet:
    ccl: {cuda: {4: {METRIC: [1000, -0.1, 0.1, Gb/s]}}}
  sour:
    ccl: {cuda: {4: {METRIC: [2000, -0.1, 0.1, Gb/s]}}}
Other:
  '*': {METRIC: [3000, -0.1, 0.1, Gb/s]}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_suite(tmp_path)


@pytest.fixture
def references(root: Path) -> Path:
    file = root / "reference_values" / "hgx-h200.yaml"
    file.write_text(REFERENCES.replace("METRIC", METRIC), encoding="utf-8")
    return root


def judged(root: Path, test: str, file: Path = CUDA, system: str = "hgx-h200", **attributes: str | int) -> Judged:
    return ByHand(lambda name: SystemJudge.of(name, root), system, test, attributes).read(file)


def reference_of(found: Judged) -> float | None:
    """The reference that the metric is judged by."""
    (metric,) = [each for each in found.run.judgements if each.name == METRIC]
    return metric.reference.value if metric.reference else None


def value(root: Path, test: str, **attributes: str | int) -> float | None:
    return reference_of(ByHand(lambda name: SystemJudge.of(name, root), "hgx-h200", test, attributes).read(CUDA))


def of_case(file: Path, case: str) -> Path:
    """The result file, as one of the test case writes it."""
    return write(
        file,
        [{**line, "case": case.replace(" ", ",")} if line["record"] == "header" else line for line in lines_of(CUDA)],
    )


def test_references_are_those_of_the_test_and_its_attributes(references: Path) -> None:
    """What the result file says of itself, the transport, the backend and the ranks, need not be said."""
    assert value(references, "Indexed", flavour="sweet") == 1000
    assert value(references, "Indexed", flavour="sour") == 2000
    assert value(references, "Other", **{"$partition": "hgx-h200:gpu"}) == 3000


def test_nobody_contradicts_what_the_file_says(references: Path) -> None:
    with pytest.raises(UserError, match="transport is ccl in the file and mpi in --test or --key: correct the option"):
        value(references, "Indexed", flavour="sweet", transport="mpi")


def test_a_file_says_of_which_test_it_is(references: Path, tmp_path: Path) -> None:
    """A mixed report needs no --test, no --key and no --system."""
    sweet = of_case(tmp_path / "sweet.jsonl", "Indexed %flavour=sweet @hgx-h200:gpu4+openmpi")
    other = of_case(tmp_path / "other.jsonl", "Other @hgx-h200:gpu4+openmpi")
    found = [judged(references, "", file, system="") for file in (sweet, other)]
    assert [reference_of(each) for each in found] == [1000, 3000]
    assert [each.partition for each in found] == 2 * ["hgx-h200:gpu4"]
    assert found[0].run.test == "Indexed %flavour=sweet @hgx-h200:gpu4+openmpi"
    assert without_references(found) == ""
    assert reference_of(judged(references, "", sweet, flavour="sour")) == 2000


def test_a_file_of_no_test_is_judged_without_references_and_that_is_told(references: Path, tmp_path: Path) -> None:
    for file in (CUDA, of_case(tmp_path / "own.jsonl", "by hand, on Tuesday")):
        found = judged(references, "", file)
        assert reference_of(found) is None
        assert found.tests == ("Indexed", "Other")
        assert "Indexed, Other" in without_references([found, judged(references, "Other @hgx-h200:gpu4")])
    with pytest.raises(UserError, match="Nobody"):
        judged(references, "Nobody")


def test_a_test_may_be_named_as_it_is_printed(references: Path) -> None:
    assert value(references, "Indexed %flavour=sour @hgx-h200:gpu+openmpi") == 2000
    assert value(references, "Other @hgx-h200:gpu+openmpi") == 3000
    with pytest.raises(UserError, match="'and' is neither %NAME=VALUE nor @SYSTEM:PARTITION"):
        value(references, "Indexed and more")


def test_one_test_alone_need_not_be_said(references: Path) -> None:
    file = references / "reference_values" / "hgx-h200.yaml"
    text = file.read_text(encoding="utf-8")
    alone = text[: text.index("Indexed:\n")].replace("Indexed: run1, ", "") + text[text.index("Other:\n") :]
    file.write_text(alone, encoding="utf-8")
    assert value(references, "", **{"$partition": "hgx-h200:gpu"}) == 3000


def test_without_references_nothing_is_compared_and_no_test_can_be_named(root: Path) -> None:
    assert value(root, "") is None
    with pytest.raises(UserError) as error:
        judged(root, "Other")
    assert str(error.value) == "hgx-h200 has no references: leave out --test 'Other'"


def test_a_test_without_references_is_judged_by_the_model_alone(references: Path) -> None:
    found = SystemJudge.of("hgx-h200", references).judge(read_run(CUDA), "Unknown")
    assert found.judgements
    assert all(each.reference is None for each in found.judgements)
    assert found.topology is not None and found.topology.system == "hgx-h200"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b", ("a", "b")),
        ("a=4", ("a", 4)),
        ("a=-4", ("a", "-4")),
        ("a=b=c", ("a", "b=c")),
    ],
)
def test_a_key_is_a_name_and_a_value(text: str, found: tuple[str, str | int]) -> None:
    assert parse_attribute(text) == found


def test_a_rehearsal_has_no_references(references: Path) -> None:
    judge = SystemJudge.of("hgx-h200", references)
    for run, calibrated in ((read_run(CUDA), True), (as_rehearsal(read_run(CUDA)), False)):
        found = judge.judge(run, "Indexed", {"flavour": "sweet"})
        assert any(each.calibrated for each in found.judgements) is calibrated


def test_references_of_other_nodes_are_told(root: Path) -> None:
    """They go by rank, so that a node is held against what another one gave."""
    hosts = sorted({rank.host for rank in read_run(CUDA).ranks})

    def findings(nodes: str) -> list[str]:
        content = REFERENCES.replace("METRIC", METRIC).replace("made up for a test", f"made up, nodes: '{nodes}'")
        (root / "reference_values" / "hgx-h200.yaml").write_text(content, encoding="utf-8")
        judge = SystemJudge.of("hgx-h200", root)
        alone = judge.judge_alone(read_run(CUDA), "Other", {"$partition": "hgx-h200:gpu"})
        return [each.message for each in judge.compare([alone]).findings if "references" in each.message]

    assert findings(",".join(hosts)) == []
    (said,) = findings("nid[1-3]")
    assert said.endswith(f"ran on {hosts[0]}, and its references were measured on nid[1-3]")
    with pytest.raises(UserError, match=r"'nid\[1' is not a list of names"):
        findings("nid[1")


@pytest.mark.parametrize(
    ("system", "other"), [("hgx-h100", "H100 80GB HBM3"), ("alps", "H100"), ("lumi", "MI250X GCD")]
)
def test_a_run_on_the_gpus_of_another_system_is_invalid(system: str, other: str) -> None:
    alone = SystemJudge.of(system).judge_alone(read_run(CUDA))
    assert alone.verdict is Verdict.INVALID
    (said,) = (each.message for each in alone.problems if "rank 0 used" in each.message)
    assert f"rank 0 used NVIDIA H200, and the GPUs of {system} are {other}" in said


def test_a_run_on_its_own_gpus_or_rehearsed_is_not(tmp_path: Path) -> None:
    judge = SystemJudge.of("hgx-h200")
    assert not any(" used " in each.message for each in judge.judge_alone(read_run(CUDA)).problems)
    superchip = lines_of(CUDA)
    for rank in superchip[0]["ranks"]:
        rank["device"]["name"] = "NVIDIA GH200 120GB"
    run = read_run(write(tmp_path / "alps.jsonl", superchip))
    assert not any(" used " in each.message for each in SystemJudge.of("alps").judge_alone(run).problems)
    rehearsed = SystemJudge.of("alps").judge_alone(as_rehearsal(read_run(CUDA)))
    assert not any(" used " in each.message for each in rehearsed.problems)


def test_a_test_is_its_class_and_its_parameters_in_their_order() -> None:
    test, attributes = parse_case("PingPong %transport=ccl %ranks=4 @alps:gpu+gnu")
    expected = [("transport", "ccl"), ("ranks", 4), ("$partition", "alps:gpu"), ("$environ", "gnu")]
    assert (test, [*attributes.items()]) == ("PingPong", expected)
    assert parse_case("") == ("", {})


def test_the_name_of_a_case_is_one_word_where_a_program_has_to_take_it() -> None:
    name = "SmokeMode %ccl_mode=registered,graph-20 %nodes=2 @alps:gpu+gnu"
    word = name_without_blanks(name)
    assert " " not in word and name_of_header({"case": word}) == name
    assert name_without_blanks("Quoted %each='a b' @x:y+z") == ""
    assert name_of_header({}) == ""


@pytest.mark.parametrize("text", ["", "a", "a=", "=b", "="])
def test_anything_else_is_no_key(text: str) -> None:
    with pytest.raises(UserError) as error:
        parse_attribute(text)
    assert str(error.value) == f"--key {text!r} is not NAME=VALUE"
