"""The published schema is the one that files are read by."""

import json
from pathlib import Path

from ruamel.yaml import YAML

from fabricheck.topology.model import load_topology
from fabricheck.topology.schema import TopologyFile

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_published_schema_is_current() -> None:
    published = json.loads((DOCS / "topology.schema.json").read_text(encoding="utf-8"))
    assert published == TopologyFile.model_json_schema()


def test_the_documented_example_loads(tmp_path: Path) -> None:
    text = (DOCS / "topology-format.md").read_text(encoding="utf-8")
    example = text.split("```yaml\n", 1)[1].split("```", 1)[0]
    assert YAML(typ="safe").load(example)["system"] == "example"
    file = tmp_path / "topology.yaml"
    file.write_text(example, encoding="utf-8")
    assert load_topology(file).nic_scheme == "packed"
