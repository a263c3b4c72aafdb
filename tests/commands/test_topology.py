"""`fabricheck expected` and `fabricheck validate`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fabricheck.commands.topology import expected, validate
from tests.support.nodes import PAPERS, ROOT, system


@pytest.mark.parametrize("name", [*PAPERS, "local"])
def test_expected_of_every_system(name: str) -> None:
    result = CliRunner().invoke(expected, ["--system", name, "--format", "json"], catch_exceptions=False)
    content = json.loads(result.stdout)
    assert (result.exit_code, content["system"]) == (0, name)
    pairs = [row for row in content["rows"] if row["operation"] == "pingpong" and row["transport"] == "direct"]
    gpus = len(system(name).gpus)
    assert len(pairs) == gpus * (gpus - 1)


@pytest.mark.parametrize(
    ("name", "unit"), [("lumi", "GB/s"), *((name, "Gb/s") for name in (*PAPERS, "local", "emulated"))]
)
def test_the_text_fits_80_columns(name: str, unit: str) -> None:
    result = CliRunner().invoke(expected, ["--system", name, "--unit", unit], catch_exceptions=False)
    assert result.exit_code == 0 and result.stdout.startswith(f"{name}: ")
    assert [line for line in result.stdout.splitlines() if len(line) > 80] == []
    # Every pair is in one class, and every value has a note that says where it comes from.
    numbers = {line.split("]")[0].strip("[") for line in result.stdout.splitlines() if line.startswith("[")}
    rows = [line for line in result.stdout.splitlines() if line.endswith("]")]
    assert {line.rsplit("[", 1)[1].rstrip("]") for line in rows} <= numbers


def test_a_large_node_is_a_few_lines(tmp_path: Path) -> None:
    gpus = "".join(f"  - {{name: gpu{one}, index: {one}, model: test}}\n" for one in range(72))
    pairs = ", ".join(f"[gpu{one}, switch]" for one in range(72))
    link = f"  - {{technology: NVLink4, count: 18, rate: 25 GB/s, source: test, pairs: [{pairs}]}}\n"
    switch = "switches:\n  - {name: switch, model: test}\n"
    text = f"system: rack\ndescription: 72 GPUs\ngpus:\n{gpus}cpus:\n  - {{name: cpu0}}\n{switch}links:\n{link}"
    file = tmp_path / "topology.yaml"
    file.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(expected, ["--system", str(file)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) < 60
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "every pair" in result.stdout


def test_validate_all_systems() -> None:
    result = CliRunner().invoke(validate, [], catch_exceptions=False)
    assert result.exit_code == 0, result.stdout
    assert {line.split(":")[0] for line in result.stdout.splitlines()} >= {*PAPERS, "local"}


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A suite of one's own, to be changed."""
    for folder in ("site_configs", "config", "reference_values", "checks"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    monkeypatch.setenv("FABRICHECK_SUITE", str(tmp_path))
    return tmp_path


def test_validate_finds_what_is_wrong(suite: Path) -> None:
    settings = suite / "site_configs" / "lumi" / "settings.py"
    text = settings.read_text(encoding="utf-8")
    settings.write_text(text.replace("count=8", "count=4").replace('tuning_profile="lumi"', 'tuning_profile="moon"'))
    result = CliRunner().invoke(validate, ["--system=lumi", "--system=alps"], catch_exceptions=False)
    assert result.exit_code == 1
    assert "lumi: 3 wrong" in result.stdout
    assert "cores" in result.stdout
    assert "has 4 GPUs, its topology 8" in result.stdout
    assert "tuning_profile 'moon'" in result.stdout
    assert "alps: ok" in result.stdout


def test_validate_wants_the_number_of_nodes(suite: Path) -> None:
    """Without it there is no check of the network, and nothing else would say so."""
    topology = suite / "site_configs" / "lumi" / "topology.yaml"
    text = topology.read_text(encoding="utf-8")
    topology.write_text(text[: text.index("fabric:")], encoding="utf-8")
    emulated = suite / "site_configs" / "emulated" / "settings.py"
    text = emulated.read_text(encoding="utf-8")
    text = text.replace('"nodes": nodes,', '"nodes": 1,').replace('["remote",', '["multinode", "remote",')
    emulated.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(validate, ["--system=lumi", "--system=emulated"], catch_exceptions=False)
    assert result.exit_code == 1
    assert "partition gpu: has no number of nodes, so its network would not be tested" in result.stdout
    assert "partition pair: has the feature multinode and 1 nodes" in result.stdout


UNSUPPORTED = {"host_numa=elsewhere": "why", "page_migration": "why", "host_numa=remote": ""}
WRONG_EXTRAS: tuple[tuple[dict[str, Any], int], ...] = (
    ({"unsupported": UNSUPPORTED, "most_bytes": "1MiB", "size_step": 1, "budget": "0.1s", "nodes": 0}, 7),
    ({"most_byte": 4096, "mpicxx": "mpicxx"}, 2),
    ({"unsupported": ["host_numa=remote"], "most_bytes": 0, "most_nodes": True}, 3),
)


@pytest.mark.parametrize(("extras", "wrong"), WRONG_EXTRAS)
def test_validate_knows_what_extras_can_say(suite: Path, extras: dict[str, Any], wrong: int) -> None:
    """A line for each, that names it."""
    settings = suite / "site_configs" / "lumi" / "settings.py"
    text = settings.read_text(encoding="utf-8")
    settings.write_text(text.replace('tuning_profile="lumi"', f'tuning_profile="lumi", extras={extras}'))
    result = CliRunner().invoke(validate, ["--system=lumi"], catch_exceptions=False)
    assert result.exit_code == 1
    assert f"lumi: {wrong} wrong" in result.stdout
    assert [name for name in extras if name not in result.stdout] == []


def test_validate_wants_references_of_every_test_or_a_reason(suite: Path) -> None:
    check = "import reframe as rfm\n\n@rfm.simple_test\nclass Another(rfm.RunOnlyRegressionTest):\n    pass\n"
    (suite / "checks" / "another.py").write_text(check, encoding="utf-8")
    (suite / "reference_values" / "alps.yaml").unlink()
    result = CliRunner().invoke(validate, ["--system=lumi"], catch_exceptions=False)
    assert result.exit_code == 0, result.stdout
    lumi = suite / "reference_values" / "lumi.yaml"
    lumi.write_text(lumi.read_text(encoding="utf-8").replace("'*'", "PingPong"), encoding="utf-8")
    result = CliRunner().invoke(validate, ["--system=lumi", "--system=alps"], catch_exceptions=False)
    assert result.exit_code == 1
    assert "lumi.yaml: has no references of Another" in result.stdout
    assert "alps.yaml: does not exist" in result.stdout


FURTHER = ("alps", "aurora", "hgx-h200")
# One of each kind: no GPUs, made up, tuned (AMD, NVIDIA), Intel, and one whose network nobody described.
OF_EACH_KIND = ("local", "emulated", "lumi", *(pytest.param(each, marks=pytest.mark.full) for each in FURTHER))


@pytest.mark.parametrize("system", OF_EACH_KIND)
def test_reframe_lists_the_tests_of_every_system_offline(system: str, tmp_path: Path) -> None:
    import os
    import subprocess
    import sys

    reframe = Path(sys.executable).with_name("reframe")
    files = f"{ROOT / 'config' / 'common.py'}:{ROOT / 'site_configs' / system / 'settings.py'}"
    environment = {**os.environ, "RFM_CONFIG_FILES": files, "RFM_PREFIX": str(tmp_path), "RFM_COLORIZE": "no"}
    command = [str(reframe), "--system", system, "--checkpath", str(ROOT / "checks"), "--recursive", "--list=C"]
    job = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert job.returncode == 0, job.stdout + job.stderr
    names = ["PingPong", "BothDirections", "Collectives", "SmokeLibraries"]
    for name in names if system != "emulated" else ["NodePairs", "NetworkCollectives", "SmokeNodes"]:
        assert f"- {name} %transport=mpi" in job.stdout
    # Systems whose number of nodes is known have their network checked, and no other.
    assert ("- SmokeNodes %transport=mpi" in job.stdout) == (system not in ("local", "dardel", "hgx-h100", "hgx-h200"))
    assert ("%transport=copy" in job.stdout) == (system not in ("local", "emulated"))
