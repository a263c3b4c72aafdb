"""Generated pages and schemas are those of today's code, and the files of the suite are as their schemas say."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from fabricheck.records.component import Component, Kind
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.report.paper_figures import load_figures
from fabricheck.topology.model import load_topology
from fabricheck.yardsticks.references import load_references
from tools import catalogue_page, commands_page, metrics_page, schemas

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    catalogue_page.PAGE: catalogue_page.render,
    commands_page.PAGE: commands_page.render,
    commands_page.PAGE_OF_LAB: commands_page.render_lab,
    metrics_page.PAGE: metrics_page.render,
}


@pytest.mark.parametrize(("page", "render"), PAGES.items(), ids=[page.stem for page in PAGES])
def test_the_page_is_that_of_the_code(page: Path, render: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`make docs` writes it again."""
    monkeypatch.chdir(ROOT)
    assert page.read_text(encoding="utf-8") == render()


def test_the_schemas_are_those_of_the_code() -> None:
    written = {file.relative_to(ROOT): file.read_text(encoding="utf-8") for file in (ROOT / schemas.FOLDER).iterdir()}
    assert written == schemas.schemas()


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("topology", "site_configs/*/topology*.yaml"),
        ("policy", "config/policy.yaml"),
        ("part", "reference_values/parts/*.yaml"),
        ("result", "tests/data/fabricbench/*.jsonl"),
    ],
)
def test_what_the_suite_has_is_as_its_schema_says(name: str, pattern: str) -> None:
    validator = Draft202012Validator(json.loads((ROOT / schemas.FOLDER / f"{name}.json").read_text(encoding="utf-8")))
    for file in ROOT.glob(pattern):
        text = file.read_text(encoding="utf-8")
        for line in text.splitlines() if file.suffix == ".jsonl" else [text]:
            content = json.loads(json.dumps(YAML(typ="safe").load(line), default=str))  # YAML's dates are texts
            assert [error.message for error in validator.iter_errors(content)] == [], file
            assert not validator.is_valid({**content, "no_such_field": 1})


def test_the_examples_of_formats_load(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    topology, _, references = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "topology.yaml").write_text(topology, encoding="utf-8")
    assert load_topology(tmp_path / "topology.yaml").nic_scheme == "packed"
    (tmp_path / "references.yaml").write_text(references, encoding="utf-8")
    of_pairs = load_references(tmp_path / "references.yaml").of("PointToPoint")
    assert len(of_pairs.lookup({"$partition": "h200:gpu", "transport": "ccl"})) == 2


def test_the_papers_page_has_each_figure_and_its_drawings() -> None:
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (\S+):", page, re.MULTILINE) == list(load_figures(ROOT / "reference_values" / "published"))
    linked = set(re.findall(r"\]\(results/papers/(\S+)\)", page))
    assert linked == {file.name for file in (ROOT / "docs" / "results" / "papers").iterdir()}


def test_a_finding_is_written_with_the_fields_of_its_class() -> None:
    """The schema has those of the class, since a finding leaves out the figures that it has not."""
    gpu = Component(Kind.GPU, "gpu0", "nid001")
    finding = Finding("slow-gpu", Verdict.DEGRADED, "slow", (gpu,), 1, 2, "Gb/s", ("metric",), ("file",), 0.1)
    assert finding.as_json().keys() == schemas.fields_of(Finding).keys()
