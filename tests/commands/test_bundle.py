"""`fabricheck bundle`: everything of a run that can be read, and no name where names are hidden."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from fabricheck.cli import main
from fabricheck.errors import UserError
from fabricheck.fleet.record import Fleet, Unchecked
from fabricheck.session.bundle import write_bundle
from tests.support.result_files import HOST, lines_of, write


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run on the node login7.site.example, as `fabricheck run` leaves it."""
    folder = tmp_path / "runs" / "toy-20261122T000000Z"
    stage = folder / "output" / "toy" / "Measures"
    stage.mkdir(parents=True)
    lines = lines_of(HOST)
    for rank in lines[0]["ranks"]:
        rank["host"] = "login7.site.example"
    write(stage / "result.jsonl", lines)
    (stage / "program").write_bytes(b"\x7fELF\0\0")
    state = stage / "node-state"
    state.mkdir()
    (state / "login7.addresses").write_text('{"hsn0": ["10.7.3.21", 9000]}')
    (stage / "rfm_job.err").write_text("login7: link down; login77 is another; /home of secret-project\n")
    case = {
        "name": "Measures", "unique_name": "Measures", "environ": "none", "system": "toy", "partition": "default",
        "result": "pass", "outputdir": str(stage), "stagedir": None, "fixture": False, "fail_phase": None,
    }  # fmt: skip
    info = {
        "uuid": "1", "time_start_unix": 0, "time_end_unix": 1, "hostname": "login7", "version": "4.10.4",
        "num_cases": 1, "user": "curie", "prefix_output": str(folder / "output"), "prefix_stage": str(folder / "stage"),
    }  # fmt: skip
    (folder / "reframe.json").write_text(json.dumps({"session_info": info, "runs": [{"testcases": [case]}]}))
    (folder / "verdict.json").write_text('{"hosts": ["login7.site.example"]}')
    (folder / "report.html").write_text("<html>")
    return folder


def contents(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as opened:
        return {each.name: opened.extractfile(each).read().decode() for each in opened.getmembers()}  # type: ignore[union-attr]


def test_it_has_all_that_is_text(run: Path, tmp_path: Path) -> None:
    write_bundle(run, tmp_path / "b.tar.gz", hide=False)
    found = contents(tmp_path / "b.tar.gz")
    names = {name.removeprefix("toy-20261122T000000Z/") for name in found}
    assert names == {
        "reframe.json", "verdict.json", "report.html", "output/toy/Measures/result.jsonl",
        "output/toy/Measures/rfm_job.err", "output/toy/Measures/node-state/login7.addresses",
    }  # fmt: skip
    assert found["toy-20261122T000000Z/verdict.json"] == (run / "verdict.json").read_text()


def test_hidden_names_are_nowhere_and_what_is_like_them_stays(run: Path, tmp_path: Path) -> None:
    write_bundle(run, tmp_path / "b.tar.gz", hide=True, more=["secret-project"])
    found = contents(tmp_path / "b.tar.gz")
    text = "".join([*found, *found.values()])
    for name in ("login7.site", "site.example", "secret-project", "curie", str(tmp_path), "10.7.3.21"):
        assert name not in text
    errors = found["toy-20261122T000000Z/output/toy/Measures/rfm_job.err"]
    assert errors == "node2: link down; login77 is another; /home of name1\n"
    assert not any(name.endswith(".html") for name in found)


@pytest.mark.parametrize(
    ("policy", "hidden"), [("hide_names: true", ("curie", "login7.")), ("hide: [down]", ("down",))]
)
def test_the_sites_policy_hides_without_being_asked(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, hidden: tuple[str, ...]
) -> None:
    suite = tmp_path / "suite"
    for name in ("config", "site_configs", "checks"):
        (suite / name).mkdir(parents=True)
    (suite / "config" / "policy.yaml").write_text(policy)
    monkeypatch.setenv("FABRICHECK_SUITE", str(suite))
    with pytest.raises(SystemExit) as ended:
        main(["bundle", str(run), "--output", str(tmp_path / "b.tar.gz")])
    assert ended.value.code == 0
    text = "".join(contents(tmp_path / "b.tar.gz").values())
    assert not any(name in text for name in hidden)


def test_links_that_others_left_are_not_followed(run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("")
    for name in ("b.tar.gz", ".b.tar.gz.unfinished"):
        (tmp_path / name).symlink_to(mine)
    write_bundle(run, tmp_path / "b.tar.gz", hide=False)
    assert mine.read_text() == ""
    assert not (tmp_path / "b.tar.gz").is_symlink() and contents(tmp_path / "b.tar.gz")


def test_a_folder_that_is_no_run_is_refused_and_leaves_nothing(tmp_path: Path, run: Path) -> None:
    with pytest.raises(UserError, match=r"has no verdict\.json"):
        write_bundle(tmp_path, tmp_path / "b.tar.gz", hide=False)
    shutil.copytree(run, tmp_path / "copy")
    with pytest.raises(UserError, match="cannot be written"):
        write_bundle(run, tmp_path / "none" / "b.tar.gz", hide=False)
    assert not (tmp_path / "b.tar.gz").exists()


def test_nodes_of_a_fleet_that_nothing_was_measured_on_are_hidden(run: Path, tmp_path: Path) -> None:
    (run / "fleet").mkdir()
    left = (Unchecked("nid009", "Slurm has it drained"),)
    Fleet(run / "fleet", "toy", "toy:default", "nid[001-009]", "7", ("nid001", "nid002"), left).write()
    (run / "verdict.json").write_text(
        json.dumps({"said": "nid[001-002] and nid009 are bad; nid[001-002,009] were asked"})
    )
    write_bundle(run, tmp_path / "b.tar.gz", hide=True)
    found = contents(tmp_path / "b.tar.gz")
    assert "nid" not in "".join([*found, *found.values()])
    write_bundle(run, tmp_path / "c.tar.gz", hide=False)
    assert "nid" in "".join(contents(tmp_path / "c.tar.gz").values())
