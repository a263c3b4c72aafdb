"""Where the files of a system are looked for: the suite, folders of sites outside of it, and miniatures."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from fabricheck import suite as suites
from fabricheck.cli import main
from fabricheck.errors import UserError
from fabricheck.records.finding_texts import CATALOGUE
from fabricheck.report.lines import with_program
from fabricheck.suite import MINIATURE, Suite, output_folder, outside_roots, require_plain, site_root, suite_root
from tests.support.toy import make_toy


def folder_with(root: Path, *systems: str) -> Path:
    for system in systems:
        site = root / "site_configs" / system
        site.mkdir(parents=True)
        (site / "settings.py").touch()
    (root / "config").mkdir(exist_ok=True)
    return root


def name_sites(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    monkeypatch.setenv("FABRICHECK_SITES", os.pathsep.join(map(str, folders)))


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    return folder_with(tmp_path / "suite", "here", "both")


def test_a_system_outside_of_the_suite(inside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = folder_with(tmp_path / "first", "theirs", "both"), folder_with(tmp_path / "second", "both")
    name_sites(monkeypatch, first, second)
    assert Suite(inside).systems() == ("both", "here", "theirs")
    assert site_root("theirs:gpu", inside) == first
    assert site_root("both", inside) == first  # before the next folder, and before the suite
    assert site_root("here", inside) == inside
    assert site_root("nowhere", inside) == inside
    assert Suite(inside).settings("theirs") == first / "site_configs" / "theirs" / "settings.py"


def test_a_rehearsal_never_reads_the_files_of_the_machine(
    inside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (inside / "site_configs" / "both" / MINIATURE).touch()
    name_sites(monkeypatch, folder_with(tmp_path / "outside", "both"))
    assert site_root("both", inside) == inside
    assert Suite(inside).is_miniature("both")


def test_a_folder_that_is_none_of_sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is not there must not make its systems unknown, or those of the suite theirs."""
    name_sites(monkeypatch, tmp_path / "typo")
    with pytest.raises(UserError, match=r"FABRICHECK_SITES names .*typo, which has no site_configs/"):
        outside_roots()


def test_an_installed_suite_leaves_nothing_in_itself(
    inside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RFM_PREFIX", raising=False)
    assert output_folder(inside) == inside / "output"
    monkeypatch.setattr(suites, "INSTALLED", inside)
    monkeypatch.chdir(tmp_path)
    assert output_folder(inside) == tmp_path / "output"


def test_a_suite_that_is_planted_above_the_current_folder_is_not_used(
    inside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = suite_root()
    below = inside / "home" / "private"
    below.mkdir(parents=True, mode=0o700)
    monkeypatch.delenv("FABRICHECK_SUITE", raising=False)
    monkeypatch.chdir(below)
    assert suite_root() == own == Path(suites.__file__).parent.parent
    monkeypatch.setenv("FABRICHECK_SUITE", str(inside))
    assert suite_root() == inside


@pytest.mark.parametrize(
    "planted", ["..", ".", "site_configs", "site_configs/here/settings.py", "config/policy.yaml", "src/backends/a.cpp"]
)
@pytest.mark.parametrize("variable", ["FABRICHECK_SUITE", "FABRICHECK_SITES"])
def test_what_all_users_can_change_is_refused(
    inside: Path, monkeypatch: pytest.MonkeyPatch, planted: str, variable: str
) -> None:
    (inside / "config" / "policy.yaml").touch()
    (inside / "src" / "backends").mkdir(parents=True)
    (inside / "src" / "backends" / "a.cpp").touch()
    (inside / planted).chmod(0o777)
    monkeypatch.setenv(variable, str(inside))
    with pytest.raises(UserError, match=f"{variable} names .*all users can change"):
        suite_root() if variable == "FABRICHECK_SUITE" else outside_roots()


@pytest.mark.parametrize(
    "name", ["a b", "$(touch x)", "${HOME}", "`id`", "it's", '"', "a:b", "100%", "a;b", "a\nb", "a*"]
)
def test_a_path_that_is_more_than_a_name_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="more than a name"):
        require_plain("the suite", Path("/shared") / name)
    require_plain("the suite", Path("/shared/größe_1.2-3+4,5=6@7~8"))


def test_a_folder_whose_name_is_a_command_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    toy = make_toy(tmp_path / "$(touch PLANTED)")
    monkeypatch.setenv("FABRICHECK_SUITE", str(toy.suite.root))
    monkeypatch.chdir(tmp_path)
    for words in (["run", "--list"], ["run"], ["run", f"--output={tmp_path / '$(touch PLANTED)' / 'o'}"]):
        with pytest.raises(SystemExit) as ended:
            main([*words, "--system=toy"])
        assert ended.value.code == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert not [*tmp_path.rglob("PLANTED")]


@pytest.mark.parametrize("activated", [True, False])
def test_printed_commands_can_be_pasted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, activated: bool) -> None:
    """`make demo` and a cron job have the environment on the search path of their own process alone."""
    prefix = tmp_path / "a b"
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "fabricheck").touch()
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setenv("VIRTUAL_ENV", str(prefix if activated else tmp_path))
    start = "fabricheck" if activated else f"'{prefix}/bin/fabricheck'"
    steps = CATALOGUE["all-slow"].steps
    assert f"{start} watch " in with_program(steps[0])
