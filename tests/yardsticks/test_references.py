from __future__ import annotations

from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.yardsticks.references import References, load_references

ROOT = Path(__file__).resolve().parents[2]

SOURCES = """
$sources:
  run1: {kind: measured, source: acceptance, date: 2026-11-21, system: x, software: y, command: z, runs: 3}
  paper: {kind: published, source: "SC24 paper, figure 3"}
"""


def load(tmp_path: Path, text: str) -> References:
    path = tmp_path / "refs.yaml"
    path.write_text(text)
    return load_references(path)


SMALL = (
    SOURCES
    + """
$provenance: {Ping: run1, Plain: paper}
Ping:
  $index: ['$partition', transport]
  'h200:gpu':
    ccl: {goodput: [2830, -0.03, 0.05, Gb/s], latency: [22.0, -0.5, 0.15, us]}
    mpi: {goodput: [$xfail, 'bug 123', [3000.0, -0.03, 0.05, Gb/s]]}
    (m|x)pi.*: {goodput: [1000, -0.03, null, Gb/s]}
    .*: {goodput: [500, -0.03, null, Gb/s]}
Plain:
  '*': {goodput: [1, -0.1, null, Gb/s], latency: [9, null, 0.1, us]}
  h200: {goodput: [2, -0.1, null, Gb/s]}
  'h200:gpu': {goodput: [3, -0.1, null, Gb/s]}
"""
)


def value(references: References, test: str, name: str = "goodput", **keys: str | int) -> float | None:
    found = references.of(test).lookup({"$partition": "h200:gpu", **keys})
    return found[name].value if name in found else None


def test_a_reference_is_looked_up(tmp_path: Path) -> None:
    found = load(tmp_path, SMALL).of("Ping").lookup({"$partition": "h200:gpu", "transport": "ccl", "more": 1})
    assert set(found) == {"goodput", "latency"}
    reference = found["goodput"]
    assert (reference.value, reference.lower, reference.upper, reference.unit) == (2830.0, -0.03, 0.05, "Gb/s")
    assert reference.provenance == "run1: measured, 2026-11-21: acceptance"


def test_equal_keys_come_before_patterns_and_the_first_pattern_counts(tmp_path: Path) -> None:
    references = load(tmp_path, SMALL)
    found = {each: value(references, "Ping", transport=each) for each in ("ccl", "mpi", "mpix", "xpi", "other")}
    assert found == {"ccl": 2830, "mpi": 3000, "mpix": 1000, "xpi": 1000, "other": 500}
    assert references.of("Ping").lookup({"$partition": "h100:gpu", "transport": "ccl"}) == {}


def test_an_expected_failure_keeps_its_message(tmp_path: Path) -> None:
    found = load(tmp_path, SMALL).of("Ping").lookup({"$partition": "h200:gpu", "transport": "mpi"})
    assert found["goodput"].provenance.startswith("expected to fail (bug 123); run1: measured")


def test_a_narrower_scope_overrides_a_wider_one(tmp_path: Path) -> None:
    references = load(tmp_path, SMALL).of("Plain")
    for partition, goodput in (("h200:gpu", 3), ("h200:cpu", 2), ("lumi:gpu", 1)):
        found = references.lookup({"$partition": partition})
        assert (found["goodput"].value, found["latency"].value) == (goodput, 9)


def test_what_the_index_needs_has_to_be_said(tmp_path: Path) -> None:
    references = load(tmp_path, SMALL)
    with pytest.raises(UserError, match=r"indexed by \$partition, transport: give transport"):
        references.of("Ping").lookup({"$partition": "h200:gpu"})
    with pytest.raises(UserError, match="give --key"):
        references.of("Plain").lookup({})
    with pytest.raises(UserError, match="has no references of 'Pong'; others: Ping, Plain"):
        references.of("Pong")


def test_numbers_match_numbers_only(tmp_path: Path) -> None:
    text = SOURCES + "$provenance: {A: run1}\nA:\n  $index: [n]\n  8: {x: [1, -0.1, null, Gb/s]}\n"
    references = load(tmp_path, text).of("A")
    assert references.lookup({"n": 8})["x"].value == 1
    assert references.lookup({"n": "8"}) == {}


def test_provenance_may_end_at_any_level(tmp_path: Path) -> None:
    text = (
        SOURCES
        + """
$provenance:
  A:
    a: run1
    b: {x: paper, y: run1}
A:
  $index: [n]
  a: {x: [1, -0.1, null, Gb/s]}
  b: {x: [1, -0.1, null, Gb/s], y: [1, -0.1, null, Gb/s]}
"""
    )
    references = load(tmp_path, text).of("A")
    assert references.lookup({"n": "b"})["x"].provenance == "paper: published: SC24 paper, figure 3"
    assert references.lookup({"n": "b"})["y"].provenance.startswith("run1")
    assert references.lookup({"n": "a"})["x"].provenance.startswith("run1")


def test_a_file_without_tests_is_fine(tmp_path: Path) -> None:
    assert load(tmp_path, "{}").tests == {}


def one(entry: str) -> str:
    return f"{SOURCES}$provenance: {{A: run1}}\nA:\n  $index: [n]\n  a:\n    x: {entry}\n"


def tree(body: str, provenance: str = "{A: run1}") -> str:
    return f"{SOURCES}$provenance: {provenance}\nA:\n{body}"


GOOD = "{x: [1, -0.1, null, Gb/s]}"

# Of a value with its bounds and unit.
VALUES = (
    "[0, -0.1, null, Gb/s]",
    "[-1, -0.1, null, Gb/s]",
    "[.nan, -0.1, null, Gb/s]",
    "[.inf, -0.1, null, Gb/s]",
    "[null, -0.1, null, Gb/s]",
    "['1', -0.1, null, Gb/s]",
    "[1e3, -0.1, null, Gb/s]",
    "[true, -0.1, null, Gb/s]",
    "[1, -0.1, null]",
    "[1, -0.1, null, Gb/s, run1]",
    "{value: 1}",
    "[1, -0.1, null, '']",
    "[1, 0.1, null, Gb/s]",
    "[1, -1, null, Gb/s]",
    "[1, .nan, null, Gb/s]",
    "[1, -0.1, -0.1, Gb/s]",
    "[1, null, .inf, us]",
    "[1, null, 0.1, Gb/s]",
    "[1, -0.1, null, us]",
    "[1, null, null, '%']",
    "[$xfail, [1, -0.1, null, Gb/s]]",
    "[$maybe, a, [1, -0.1, null, Gb/s]]",
)
# Of the rest of a file, and where the mistake is.
MISTAKES = [
    (tree("  $index: [n]\n  a: {'x:y': [1, -0.1, null, Gb/s]}\n"), ":8: A.a.x:y: "),
    (tree("  $index: [n]\n  a: {}\n"), ":8: A.a: "),
    (tree("  $index: [n]\n"), ":6: A: "),
    (tree(f"  $index: [n, m]\n  a: {GOOD}\n"), ":8: A.a.x: "),
    (tree(f"  $index: [n]\n  a: {{b: {GOOD}}}\n"), ":8: A.a.b: "),
    (tree(f"  $index: n\n  a: {GOOD}\n"), ":7: A.$index: "),
    (tree(f"  $index: [n]\n  a|b: {GOOD}\n"), ":8: A.a|b: "),
    (tree(f"  $index: [n]\n  '*': {GOOD}\n"), ":8: A.*: "),
    (tree(f"  $index: [n]\n  yes: {GOOD}\n"), ":8: A.yes: "),
    (tree(f"  $index: [n]\n  1.5: {GOOD}\n"), ":8: A.1.5: "),
    (tree(f"  8: {GOOD}\n"), ":7: A.8: "),
    (tree(f"  $index: [n]\n  a: {GOOD}\n  a: {GOOD}\n"), ":9: A.a: "),
    (tree(f"  $index: [n]\n  a: {GOOD}\n", "{}"), ":8: A.a.x: "),
    (tree(f"  $index: [n]\n  a: {GOOD}\n", "{A: {b: run1}}"), ":8: A.a.x: "),
    (tree(f"  $index: [n]\n  a: {GOOD}\n", "{A: run2}"), ":8: A.a.x: "),
    (tree(f"  $index: [n]\n  a: {GOOD}\n", "{A: {a: run1, b: run1}}"), ":5: $provenance.A.b: "),
    (tree(f"  $index: [n]\n  a: {GOOD}\n", "{A: run1, B: run1}"), ":5: $provenance.B: "),
    ("a-b: {}", ":1: a-b: "),
    ("$sources: {a: {source: x}}", ":1: $sources.a.kind: "),
    ("$sources: {a: {kind: vendor}}", ":1: $sources.a.source: "),
    ("$sources: {a: {kind: measured, source: x, date: 2026-11-21, system: y, software: z}}", ":1: $sources.a: "),
    ("$sources: {a: {kind: vendor, source: x, url: y}}", ":1: $sources.a.url: "),
    ("[]", ":1: "),
    ("A: 1", ":1: A: "),
]


@pytest.mark.parametrize(
    ("text", "place"), [*((one(value), ":9: A.a.x") for value in VALUES), *MISTAKES], ids=lambda text: text[-40:]
)
def test_what_would_let_everything_pass_is_refused(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(UserError) as error:
        load(tmp_path, text)
    assert str(error.value).startswith(f"{tmp_path / 'refs.yaml'}{place}")
    assert len(str(error.value).splitlines()) == 1


def test_the_good_forms_of_those_mistakes_are_accepted(tmp_path: Path) -> None:
    assert load(tmp_path, one("[1, -0.1, null, Gb/s]")).tests
    assert load(tmp_path, tree(f"  $index: [n]\n  (a|b)[|]\\|: {GOOD}\n")).tests


def test_the_references_of_the_suite_are_good() -> None:
    for path in sorted((ROOT / "reference_values").glob("*.yaml")):
        load_references(path)


@pytest.mark.parametrize("key", ["(a+)+", "(a|b)*c", ".*.*.*.*.*"])
def test_a_key_that_could_be_matched_for_ever_is_refused(tmp_path: Path, key: str) -> None:
    path = tmp_path / "refs.yaml"
    path.write_text(tree(f"  $index: [n]\n  '{key}': {GOOD}\n"), encoding="utf-8")
    with pytest.raises(UserError, match="repetition"):
        load_references(path)
