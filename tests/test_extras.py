"""The keys that a site's settings may have in `extras`."""

from __future__ import annotations

import re
from pathlib import Path

import fabricheck
from fabricheck.extras import KEYS, misplaced_keys

_READ = re.compile(r"""extras(?:\.get\(|\[)["'](\w+)["']|["'](\w+)["'] in extras""")


def test_every_key_that_is_read_is_known() -> None:
    sources = [each.read_text(encoding="utf-8") for each in Path(fabricheck.__file__).parent.rglob("*.py")]
    read = {one or other for text in sources for one, other in _READ.findall(text)}
    assert len(read) > 30
    assert read <= KEYS["partition"].keys() | KEYS["environment"].keys()


def test_keys_of_a_site_for_itself_are_its_own() -> None:
    assert [*misplaced_keys({"rack": 3, "nodes": 2, "our_budget_code": "x"}, "partition")] == []
    assert [*misplaced_keys({"launcher": "srun", "mpi": "openmpi"}, "environment")] == []


def test_a_key_of_a_partition_is_not_looked_for_in_an_environment() -> None:
    (line,) = misplaced_keys({"nodes": 4}, "environment")
    assert line == "'nodes' in extras of the environment has no effect: move it to those of the partition"
