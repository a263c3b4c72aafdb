"""`fabricheck store` as a user calls it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fabricheck.store.folders import FILES, METRICS, SUMS
from fabricheck.store.reading import entries_of, history
from fabricheck.store.session import NodeRecord, read_record
from tests.support.commands import run
from tests.support.result_files import CUDA
from tests.support.sessions import add, result_file


def run_folder(root: Path, night: int, *, system: str = "local", moved: bool = False) -> Path:
    """A folder as `fabricheck run` leaves it, of one test that passed; `moved` from another place since."""
    folder = root / "output" / "runs" / f"{system}-{night}"
    test = folder / "output" / system / "default" / "openmpi" / "PingPong_1"
    result_file(test, night)
    (test / "rfm_job.sh").write_text("module load openmpi/5.0\n")
    old = Path("/elsewhere") if moved else folder
    info = {
        "uuid": f"{night:08d}-aaaa",
        "time_start_unix": 1788228000.25 + 86400 * night,
        "time_end_unix": 1788229000.5 + 86400 * night,
        "hostname": "login1",
        "version": "4.10.4",
        "num_cases": 1,
        "prefix_output": str(old / "output"),
        "prefix_stage": str(old / "stage"),
        "firmware": "28.39",
        "cmdline": "reframe --tag=nightly --run",
    }
    record = {
        "unique_name": "PingPong_3",
        "name": "PingPong %transport=mpi",
        "transport": "mpi",
        "tags": ["nightly"],
        "system": system,
        "partition": "default",
        "environ": "openmpi",
        "result": "pass",
        "fixture": False,
        "outputdir": str(old / test.relative_to(folder)),
        "stagedir": None,
    }
    (folder / "reframe.json").write_text(json.dumps({"session_info": info, "runs": [{"testcases": [record]}]}))
    return folder


def test_the_folder_of_a_run(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("store", "import", run_folder(suite, 0), run_folder(suite, 1, moved=True)) == 0
    assert capsys.readouterr().out.count("stored in") == 2
    found = history(suite / "output" / "store", system="local")
    assert found["session"].unique().sort().to_list() == ["00000000-aaaa", "00000001-aaaa"]
    assert found["test"].unique().to_list() == ["PingPong %transport=mpi"]
    assert found["tags"].to_list()[0] == ["nightly"]
    software = json.loads(found["software"][0])
    assert (software["firmware"], software["module openmpi"], software["ReFrame"]) == ("28.39", "5.0", "4.10.4")
    entry = entries_of(suite / "output" / "store", "local")[0]
    known = read_record(entry)
    assert (known.level, known.nodes) == ("nightly", {"nid001": NodeRecord(verdict="PASS")})
    # What the suite is now says nothing about when the run was.
    assert "suite" not in software


def named_file(
    folder: Path, night: int, number: int = 0, case: str = "PingPong,%transport=mpi,@local:gpu+openmpi"
) -> Path:
    return result_file(folder, night, number, change=lambda lines: lines[0].update(case=case))


def test_result_files(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They name their tests; one that does not is none of the history."""
    files = [named_file(suite, 0, number) for number in range(2)]
    assert run("store", "import", *files) == 0
    found = history(suite / "output" / "store", system="local")
    assert found["session"].n_unique() == 1 and found["run_id"].n_unique() == 2
    assert found.select("partition", "environment", "test").unique().rows() == [
        ("gpu", "openmpi", "PingPong %transport=mpi")
    ]
    capsys.readouterr()
    for words, told in (
        (reversed(files), "is stored already"),
        ((*files, "--system", "alps"), "is a run of local instead of alps"),
        ((CUDA,), "does not name its test"),
    ):
        assert run("store", "import", *words) == 2
        assert told in capsys.readouterr().err


def test_values_of_a_part_go_into_its_file_among_the_parts(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = suite / "reference_values" / "parts"
    assert run("calibrate", "--system", "hgx-h200", "--part", "made.yaml", "--write", "--results", CUDA) == 0
    text = (parts / "made.yaml").read_text()
    assert "goodput" in text
    assert not (suite / "made.yaml").exists()
    assert run("calibrate", "--system", "hgx-h200", "--part", "made.yaml", "--runs", "00000000") == 2
    capsys.readouterr()
    assert run("calibrate", "--system", "hgx-h200", "--part", "made.yaml") == 2
    assert "--results" in capsys.readouterr().err
    # The same of the folder of a run, beside one that is damaged, which is left out with one line.
    test = run_folder(suite, 0, system="hgx-h200") / "output" / "hgx-h200" / "default" / "openmpi" / "PingPong_1"
    next(test.glob("*.jsonl")).write_bytes(CUDA.read_bytes())
    damaged = run_folder(suite, 1, system="hgx-h200") / "reframe.json"
    damaged.write_text("[]")
    capsys.readouterr()
    assert run("calibrate", "--system", "hgx-h200", "--part", "again.yaml", "--write") == 0
    assert (parts / "again.yaml").read_text() == text
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert str(damaged) in line


def test_import_of_what_is_none(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_folder(suite, 0)
    assert run("store", "import", folder, "--system", "hgx-h200") == 2
    assert "is a run of local instead of hgx-h200" in capsys.readouterr().err
    report = folder / "reframe.json"
    for text in (
        "",
        "[]",
        '{"session_info": {}}',
        report.read_text()[:-20],
        report.read_text().replace('"name"', '"x"'),
    ):
        report.write_text(text)
        assert run("store", "import", folder) == 2
        said = capsys.readouterr().err
        assert "is not a report of a run that ReFrame" in said or "is not valid JSON" in said
    report.unlink()
    assert run("store", "import", folder) == 2
    assert "reframe.json: cannot be read" in capsys.readouterr().err
    (suite / "no.jsonl").write_text("nothing")
    assert run("store", "import", suite / "no.jsonl") == 2
    assert "has no valid header" in capsys.readouterr().err
    assert not (suite / "output" / "store").exists()


@pytest.mark.parametrize("case", ["T\0,@local:gpu+gnu", "T,@local:g\npu+gnu", "@local:gpu+gnu", "T,@local:gpu", "T"])
def test_a_name_that_is_none_of_a_test_is_one_line(suite: Path, capsys: pytest.CaptureFixture[str], case: str) -> None:
    assert run("store", "import", named_file(suite, 0, case=case)) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_import_into_a_damaged_store_stores_and_says_so(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("store", "import", named_file(suite, 0)) == 0
    (entry,) = (suite / "output" / "store" / "local").iterdir()
    (entry / "session.json").write_text("{}")
    assert run("store", "import", named_file(suite, 1)) == 1
    assert "fabricheck: the store is damaged: " in capsys.readouterr().err
    assert len(list((suite / "output" / "store" / "local").iterdir())) == 2


@pytest.mark.parametrize(
    "place", ["", "local", "local/ENTRY", *(f"local/ENTRY/{each}" for each in ("", *FILES, SUMS)), "local/.writing-0"]
)
def test_a_link_to_nowhere_in_a_store(suite: Path, capsys: pytest.CaptureFixture[str], place: str) -> None:
    """Beside a store's files, or in place of one: each command says what is wrong or does without, and removes none."""
    store = suite / "output" / "store"
    for night in range(2):
        assert run("store", "import", named_file(suite, night)) == 0
    first = sorted((store / "local").iterdir())[0]
    link = store / place.replace("ENTRY", first.name)
    if place.endswith("ENTRY"):
        link = link.with_name(f"{first.name}0")
    elif link.is_dir():
        link /= "link"
    else:
        link.unlink(missing_ok=True)
    link.symlink_to(suite / "nowhere")
    capsys.readouterr()
    draft = place.endswith(".writing-0")
    for words in (
        ("store", "ls"),
        ("store", "verify"),
        ("watch", "--system", "local"),
        ("calibrate", "--system", "local"),
        ("compare", "0", "1"),
        ("store", "import", named_file(suite, 2)),
    ):
        status = run(*words)
        said = capsys.readouterr()
        assert status in range(6), (words, said)
        assert len(said.err.splitlines()) <= 2, (words, said)
        assert not re.search(r"No such file|[Tt]raceback|mistake in Fabricheck", said.err), (words, said)
        if words == ("store", "verify"):
            assert status == (0 if draft else 1)
            assert str(link if link.name not in (*FILES, SUMS) else link.parent) in said.out
        if words == ("store", "ls"):
            # A session is listed by its own record: another file of it is of no concern.
            assert (status == 0) == (draft or (link.parent == first and link.name not in (FILES[0], SUMS)))
        assert link.is_symlink()


def test_ls_and_verify(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = suite / "elsewhere"
    entries = [add(suite, store, night)[0] for night in range(2)]
    assert run("store", "ls", "--store", store) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:5] for line in lines[1:]] == [
        [f"2026-09-0{night + 1}T02:00:00Z", f"0000000{night}-0000-4000-8000-000000000000", "PASS", "1", "2"]
        for night in range(2)
    ]
    assert run("store", "verify", "--store", store) == 0
    (entries[1].path / METRICS).write_bytes(b"")
    assert run("store", "verify", "--store", store) == 1
    assert f"damaged: {entries[1].path}: {METRICS}" in capsys.readouterr().out
    assert run("store", "verify", "--store", suite / "nowhere") == 2
