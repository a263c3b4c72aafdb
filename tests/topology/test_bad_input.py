"""A user's mistake is one line that names file, line and field."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.site.validation import problems, reference_problems
from fabricheck.topology.model import find_topology, load_topology
from fabricheck.yardsticks.published import load_published
from fabricheck.yardsticks.references import load_references
from tests.support.nodes import ROOT

GOOD = (ROOT / "tests/data/topologies/three_gpus.yaml").read_text(encoding="utf-8")


def fails(tmp_path: Path, text: str) -> str:
    file = tmp_path / "topology.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as error:
        load_topology(file)
    message = str(error.value)
    assert "\n" not in message
    return message.replace(str(file), "FILE")


def test_the_good_one_loads(tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").write_text(GOOD, encoding="utf-8")
    assert load_topology(tmp_path / "topology.yaml").links[0].total_gbps == 800


@pytest.mark.parametrize(
    ("old", "new", "line", "field"),
    [
        ("[gpu1, gpu2]", "[gpu1, gpu9]", 14, "links[0].pairs[1]"),
        ("25 GB/s", "25", 12, "links[0].rate"),
        ("25 GB/s", '"25"', 12, "links[0].rate"),
        ("25 GB/s", "25 GiB/s", 12, "links[0].rate"),
        ("25 GB/s", "0 GB/s", 12, "links[0].rate"),
        (", [gpu1, gpu2]", "", 6, "gpus[2]"),
        ("name: gpu2", "name: gpu1", 6, "gpus[2].name"),
        ("index: 2", "index: 1", 6, "gpus[2].index"),
        ("[gpu1, gpu2]", "[gpu1, gpu1]", 14, "links[0].pairs[1]"),
        ("[gpu1, gpu2]", "[gpu1, gpu2], [gpu2, gpu1]", 14, "links[0].pairs[2]"),
        ("    count: 4", "    count: 0", 11, "links[0].count"),
        ("    count: 4", "    count: 4\n    width: 4", 12, "links[0].width"),
        ("    source: made up\n", "", 10, "links[0].source"),
        ("model: A100}\n  - {name: gpu1", "modell: A100}\n  - {name: gpu1", 4, "gpus[0]"),
        ("system: example", "system: example\nsystem: other", 2, "system"),
        ("cpus:\n  - {name: cpu0}\n", "cpus: []\n", 7, "cpus"),
        ("links:", "nic_association: {scheme: packed, source: x}\nlinks:", 9, "nic_association.scheme"),
        ("links:", "host_memory: guessed\nlinks:", 9, "host_memory"),
        ("{name: cpu0}", "{name: cpu0, device_rate: 36 GB/s}", 8, "cpus[0].device_rate"),
        ("description: three GPUs", "description: [", 4, ""),
    ],
)
def test_mistakes(tmp_path: Path, *, old: str, new: str, line: int, field: str) -> None:
    assert old in GOOD
    message = fails(tmp_path, GOOD.replace(old, new, 1))
    assert message.startswith(f"FILE:{line}: "), message
    assert field in message


HUB = GOOD.replace("links:", "switches:\n  - {name: pcie0, model: x, host_only: true}\nlinks:")


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ("[gpu1, gpu2]", "switches[0]: pcie0 is host_only, and linked to nothing: link it to GPUs and to a CPU"),
        ("[gpu1, gpu2], [gpu0, pcie0]", "pcie0 is host_only, and linked to gpus: link it to GPUs and to a CPU"),
        ("[gpu1, pcie0], [gpu2, pcie0], [pcie0, cpu0]", "gpus[2]: gpu2 is disconnected"),
    ],
)
def test_a_switch_to_the_host_joins_gpus_with_a_cpu_and_not_with_each_other(
    tmp_path: Path, pairs: str, said: str
) -> None:
    assert said in fails(tmp_path, HUB.replace("[gpu1, gpu2]", pairs))


def test_a_single_gpu_without_a_link(tmp_path: Path) -> None:
    text = "system: x\ndescription: x\ngpus:\n  - {name: gpu0, index: 0, model: A}\ncpus:\n  - {name: cpu0}\n"
    assert fails(tmp_path, text).startswith("FILE:4: gpus[0]: gpu0 is disconnected")


@pytest.mark.parametrize("text", ["", "- 1\n", "just text\n"])
def test_no_mapping(tmp_path: Path, text: str) -> None:
    assert "not a mapping" in fails(tmp_path, text)


def test_unknown_system() -> None:
    with pytest.raises(UserError, match=r"no system 'atlantis'.*systems are alps, aurora"):
        find_topology("atlantis", ROOT / "site_configs")


REFERENCES = """\
$sources:
  made: {kind: published, source: nowhere}
$provenance:
  Check: made
Check:
  $index: [transport]
  copy:
    pingpong_uncontended_0_1_1gib_goodput: [400, -0.1, null, Gb/s]
"""


def reference_messages(tmp_path: Path, old: str = "", new: str = "") -> list[str]:
    file = tmp_path / "lumi.yaml"
    assert old in REFERENCES
    file.write_text(REFERENCES.replace(old, new, 1) if old else REFERENCES, encoding="utf-8")
    return list(reference_problems(load_references(file), {"": find_topology("lumi", ROOT / "site_configs")}))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[400, -0.1, null, Gb/s]", "[1700, -0.1, null, Gb/s]", "1700 Gb/s is above the ceiling of 1680 Gb/s"),
        ("[400, -0.1, null, Gb/s]", "[400, -0.1, null, GB/s]", "3200 Gb/s is above the ceiling"),
        ("pingpong_uncontended_0_1", "pingpong_uncontended_0_1_2", "is between two ranks"),
        ("pingpong_uncontended_0_1", "ping_uncontended_0_1", "no metric is called"),
        ("pingpong_uncontended_0_1", "allgather_uncontended_all2147483647", "no run has 2,147,483,647 ranks"),
        ("pingpong_uncontended_0_1", "allgather_uncontended_all0", "no run has 0 ranks"),
        ("pingpong_uncontended_0_1", "rail_bidirectional_uncontended_99999x99999x1", "no run has 9,999,800,001 ranks"),
        ("1gib_goodput: [400, -0.1, null, Gb/s]", "8b_latency: [0.001, null, 0.1, us]", "below the least plausible"),
        ("1gib_goodput: [400, -0.1, null, Gb/s]", "8b_latency: [2, null, 0.1, ms]", "a latency is in us, not ms"),
    ],
)
def test_references_that_cannot_be(tmp_path: Path, old: str, new: str, says: str) -> None:
    messages = reference_messages(tmp_path, old, new)
    assert len(messages) == 1
    assert says in messages[0]
    assert "\n" not in messages[0]


def test_a_duplicate_metric(tmp_path: Path) -> None:
    line = "    pingpong_uncontended_0_1_1gib_goodput: [400, -0.1, null, Gb/s]\n"
    with pytest.raises(UserError, match=r"lumi.yaml:9: .*pingpong_uncontended_0_1_1gib_goodput: is given twice"):
        reference_messages(tmp_path, line, line + line)


def test_validate_reports_a_site_without_settings(tmp_path: Path) -> None:
    site = tmp_path / "site_configs" / "example"
    site.mkdir(parents=True)
    (site / "topology.yaml").write_text(GOOD.replace("example", "other", 1), encoding="utf-8")
    found = list(problems(tmp_path, "example"))
    assert [("'other'" in found[0]), ("settings.py: does not exist" in found[1])] == [True, True]


@pytest.mark.parametrize("of_the_suite", [True, False])
@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("    unit: GB/s busbw\n", "", "unit: is missing"),
        ('    conditions: "8 H100 at 16 GB"\n', "", "has no conditions"),
    ],
)
def test_validate_refuses_a_row_of_a_part_that_cannot_judge_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, of_the_suite: bool, before: str, after: str, says: str
) -> None:
    outside = tmp_path / "outside"
    (outside / "site_configs" / "example").mkdir(parents=True)
    monkeypatch.setenv("FABRICHECK_SITES", str(outside))
    text = (ROOT / "reference_values" / "parts" / "h100.yaml").read_text(encoding="utf-8")
    part = (tmp_path if of_the_suite else outside) / "reference_values" / "parts" / "h100.yaml"
    part.parent.mkdir(parents=True)
    part.write_text(text.replace(before, after, 1), encoding="utf-8")
    (line,) = (line for line in problems(tmp_path, "example") if "h100.yaml" in line)
    assert says in line and "\n" not in line


PARTITION = """
site_configuration = {
    "systems": [{"name": "example", "hostnames": [".*"], "partitions": [
        {"name": "p", "scheduler": "slrum", "launcher": "local", "environs": []}]}],
}
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('site_configuration = {"systems": [{"name": "example"}]}\n', "KeyError: 'partitions'"),
        (PARTITION, "no such scheduler: 'slrum'"),
        ("site_configuration = {\n", "SyntaxError: '{' was never closed (settings.py, line 1)"),
        ('site_configuration = {}\nraise RuntimeError("two\\nlines")\n', "RuntimeError: two lines"),
    ],
)
def test_validate_reports_what_reframe_does_not_load(tmp_path: Path, text: str, says: str) -> None:
    site = tmp_path / "site_configs" / "example"
    site.mkdir(parents=True)
    (site / "topology.yaml").write_text(GOOD, encoding="utf-8")
    (site / "settings.py").write_text(text, encoding="utf-8")
    settings, references = problems(tmp_path, "example")
    assert "settings.py: ReFrame does not load it: " in settings
    assert says in settings
    assert "reference_values/example.yaml: does not exist" in references


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("system: lumi\nvalues:\n  - {what: a, value: 1.0, unit: x, conditions: c}\n", "values[0].source: is missing"),
        (
            "system: other\nvalues:\n  - {what: a, value: 1.0, unit: x, conditions: c, source: s}\n",
            "system: is 'other'",
        ),
        (
            "system: lumi\nvalues:\n"
            "  - {what: a, value: [2.0, 1.0], relation: from_to, unit: x, conditions: c, source: s}\n",
            "not in ascending order: 2, 1",
        ),
        ("system: lumi\nvalues:\n  - {what: a, value: 1.0, unit: x, conditions: c, source: s}\n", "judges or waits"),
    ],
)
def test_published_values(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "lumi.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as error:
        load_published(file)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("module", "too_old"),
    [
        ("cuda/9.2.148", True),
        ("nvidia/cudatoolkit/10.1", True),
        ("cuda/11.0", False),
        ("cuda", False),
        ("gcc/9", False),
    ],
)
def test_validate_knows_which_cuda_compiles_fabricbench(tmp_path: Path, module: str, too_old: bool) -> None:
    site = tmp_path / "site_configs" / "sierra"
    shutil.copytree(ROOT / "site_configs" / "sierra", site)
    shutil.copytree(ROOT / "config", tmp_path / "config")
    settings = site / "settings.py"
    text = settings.read_text()
    assert text.count('"cuda"]') == 1
    settings.write_text(text.replace('"cuda"]', f'"{module}"]'))
    found = [problem for problem in problems(tmp_path, "sierra") if "C++17" in problem]
    assert len(found) == too_old and all(module in problem for problem in found)
