"""What is read from a YAML file is what a person and `fabricheck calibrate` wrote into it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from yaml import SafeLoader

from fabricheck.errors import UserError
from fabricheck.yamlfile import _LOADER, read_yaml


@pytest.mark.parametrize(
    "text", ["on", "No", "017", "0o17", "0b11", "12:30", "0000:18:00.0", "1e3", "1.5e3", "1e+3", "-1e-3", "-.5", "._5"]
)
def test_what_reframe_would_read_differently_is_refused(tmp_path: Path, text: str) -> None:
    """ReFrame reads reference files with a YAML 1.1 parser, to which `on` is true, 017 is 15 and 1e3 a text."""
    file = tmp_path / "file.yaml"
    for content in (f"a: [0, {text}]\n", f"{text}: 1\n"):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(UserError, match=f":1: .*read {re.escape(text)} differently; for a text put it into quotes"):
            read_yaml(file)
    file.write_text(f"a: '{text}'\n", encoding="utf-8")
    assert read_yaml(file).content == {"a": text}


def test_a_number_that_no_float_holds_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(f"a: [1, {'9' * 400}]\n", encoding="utf-8")
    with pytest.raises(UserError, match=r":1: a\[1\]: a number of 400 digits"):
        read_yaml(file)
    file.write_text(f"a: '{'9' * 400}'\nb: {'9' * 300}\n", encoding="utf-8")
    assert float(read_yaml(file).content["b"]) == 1e300


def test_numbers_truth_values_and_texts_are_read_as_such(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(
        "a: [1, 0, -2.5, 1.5e+3, 1.0e-3, .5, 0x1f, true, ~, n, one, 1.2.3, 00:1a.0, 0:10, nid001]\n", encoding="utf-8"
    )
    expected = [1, 0, -2.5, 1500.0, 0.001, 0.5, 31, True, None, "n", "one", "1.2.3", "00:1a.0", "0:10", "nid001"]
    assert read_yaml(file).content == {"a": expected}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2\n", r":4: b\.c: is given twice$"),
        ("a: &x [*x]\n", r":1: a\[0\]: an alias contains itself$"),
        ("a: 1\nb: [1\n", ":3: is not valid YAML: while parsing a flow sequence, "),
        ("a: 1\n---\nb: 2\n", ":2: is not valid YAML: expected a single document in the stream, but found another"),
        *(
            (f"a: {text}\n", ":1: is not plain YAML")
            for text in ("!!bool x", '!!float ""', '!!int ""', "!!timestamp x")
        ),
        ("2025-09-01: 1\n", ":1: a name has to be text or a number: put it into quotes"),
        ("? [a, b]\n: 1\n", ":1: a name has to be text or a number"),
        ("a: " + 40 * "[" + 40 * "]", ":1: is nested more than 32 deep"),
        ("a: " + 4000 * "[" + 4000 * "]", ":1: is nested more than 32 deep"),
        ('a: "b !c"\nb: ' + 4000 * "[", ":2: is nested more than 32 deep"),
        (4000 * "- ", "is nested more than 32 deep"),
        ("a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [{9 * f'*a{n - 1}, '}]\n" for n in range(1, 20)), "aliases included"),
        (f"a: {2_000_000 * 'x'}\n", "has 2000004 characters, and 2000000 are allowed"),
        ("a: 2025-99-01\n", "is not valid YAML: month must be in 1..12"),
        ("a: !!python/object/apply:os.system [exit]\n", ":1: is not plain YAML: a tag such as !!str is not allowed"),
    ],
)
@pytest.mark.parametrize("loader", [_LOADER, SafeLoader])
def test_a_mistake_is_one_line_that_names_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str, loader: type[SafeLoader]
) -> None:
    monkeypatch.setattr("fabricheck.yamlfile._LOADER", loader)
    file = tmp_path / "file.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message) as caught:
        read_yaml(file)
    assert len(str(caught.value).splitlines()) == 1
