"""ReFrame's own false greens, planted one by one in a small suite and run by the real ReFrame."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fabricheck.errors import UserError
from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.session.problems import problems_of_cases
from fabricheck.session.reframe import Selection, reframe_program
from fabricheck.session.reframe_report import FinishedSession
from fabricheck.session.suite_run import Launcher
from tests.support.toy import CHECK, SETTINGS, ToySuite

pytestmark = [pytest.mark.e2e, pytest.mark.full]


def run(toy: ToySuite, selection: Selection | None = None) -> FinishedSession:
    return Launcher(toy.suite, toy.output).run(selection or Selection("toy"))


def verdicts(session: FinishedSession) -> list[Verdict]:
    return [one.verdict for one in problems(session)]


def problems(session: FinishedSession) -> list[Finding]:
    return [*session.problems, *problems_of_cases(session.cases)]


def test_a_name_may_have_blanks(toy: ToySuite) -> None:
    toy.plant("    sourcesdir = None\n", '    sourcesdir = None\n    each = parameter(["a b", "a c"])\n')
    toy.plant("import reframe as rfm\n", "import reframe as rfm\nfrom reframe.core.builtins import parameter\n")
    session = run(toy, Selection("toy:default", tags=("toy",), names=("Measures %each=a b",), environments=("none",)))
    assert [case.attributes["each"] for case in session.cases] == ["a b"]
    assert problems(session) == [] and all(file.is_relative_to(session.folder) for file in session.files)


def test_a_failing_check_keeps_its_result_file_and_is_red_whatever_its_next_launch_says(toy: ToySuite) -> None:
    toy.plant("; true", f"; mkdir {toy.output}/launched; test $? -ne 0")
    session = run(toy, Selection("toy", more=("--max-retries=2",)))
    assert verdicts(session) == [Verdict.FAIL]
    assert len(session.files) == 1
    told = "was launched 2 times: FAIL, PASS; the result is FAIL"
    assert [each.message.endswith(told) for each in session.findings] == [True]


def test_a_warning_ends_the_run_with_a_reframe_that_cannot_make_it_an_error(
    toy: ToySuite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ReFrame 4.9 does not know RFM_WARN_AS_ERROR. That of the newest is among the planted faults."""
    older = tmp_path / "reframe"
    older.write_text(f'#!/bin/sh\nunset RFM_WARN_AS_ERROR\nexec {reframe_program()} "$@"\n')
    older.chmod(0o755)
    monkeypatch.setattr("fabricheck.session.reframe.reframe_program", lambda: str(older))
    (toy.check.parent / "broken.py").write_text("import no_such_module\n" + CHECK.replace("Measures", "Other"))
    with pytest.raises(UserError, match="no_such_module"):
        run(toy)


def test_no_check_begins_before_its_run_may(toy: ToySuite) -> None:
    def refuse() -> None:
        time.sleep(2)  # a toy has begun by then
        raise UserError("a file that the end needs is damaged")

    toy.plant("> result.jsonl", f"> result.jsonl; touch {toy.output}/begun")
    with pytest.raises(UserError, match="is damaged"):
        Launcher(toy.suite, toy.output, meanwhile=refuse).run(Selection("toy"))
    assert not (toy.output / "begun").exists()
    assert not [*toy.output.glob("runs/*")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("site_configuration = {'systems': [{}]}", r"toy/settings.py: KeyError: 'name';"),
        (SETTINGS.replace('"scheduler": "local", ', ""), "'scheduler' is a required property"),
        ("site_configuration = {}\nraise RuntimeError('two\\nlines')", "settings.py, line 2: RuntimeError: two;"),
        ("def (", r"toy/settings.py, line 1: SyntaxError: invalid syntax;"),
    ],
)
def test_settings_that_do_not_load(toy: ToySuite, text: str, says: str) -> None:
    settings = toy.suite.root / "site_configs" / "toy" / "settings.py"
    settings.write_text(text)
    with pytest.raises(UserError, match=f"^ReFrame cannot list the checks: .*{says}") as error:
        run(toy)
    assert len(str(error.value).splitlines()) == 1
    (listing,) = toy.output.glob("runs/*/listing.txt")
    assert str(listing) in str(error.value)
    assert listing.read_text().strip()
