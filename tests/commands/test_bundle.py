"""`fabricheck bundle`: everything of a run that can be read, and no name where names are hidden."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from pathlib import Path

import pytest

from fabricheck.cli import main
from fabricheck.errors import UserError
from fabricheck.fleet.record import Fleet
from fabricheck.session.bundle import write_bundle
from tests.support.result_files import HOST, lines_of, write


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run on the node login7.site.example, as `fabricheck run` leaves it."""
    folder = tmp_path / "runs" / "toy-20261122T000000Z"
    stage = folder / "output/toy/default/none/Measures"
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
    file = str(stage / "result.jsonl")
    told = {"file": file, "verdict": "PASS", "problems": [], "hosts": ["login7.site.example"]}
    (folder / "verdict.json").write_text(json.dumps({"runs": [told]}))
    (folder / "report.html").write_text("<html>")
    return folder


def contents(archive: Path) -> dict[str, str]:
    """The text of each file but fabricbench's sources."""
    with tarfile.open(archive) as opened:
        members = [each for each in opened.getmembers() if "/src/" not in each.name]
        return {each.name: opened.extractfile(each).read().decode() for each in members}  # type: ignore[union-attr]


def test_it_has_all_that_is_text(run: Path, tmp_path: Path) -> None:
    write_bundle(run, tmp_path / "b.tar.gz", hide=False)
    found = contents(tmp_path / "b.tar.gz")
    names = {name.removeprefix("toy-20261122T000000Z/") for name in found}
    assert names == {
        "REPRODUCE.md", "reframe.json", "verdict.json", "report.html", "output/toy/default/none/Measures/result.jsonl",
        "output/toy/default/none/Measures/rfm_job.err", "output/toy/default/none/Measures/node-state/login7.addresses",
    }  # fmt: skip
    assert found["toy-20261122T000000Z/verdict.json"] == (run / "verdict.json").read_text()


def test_it_says_how_to_build_launch_and_judge_the_failing_run(run: Path, tmp_path: Path) -> None:
    """A vendor unpacks it, and pastes lines that need nothing of the site but its modules."""
    stage = run / "output/toy/default/none" / "Measures"
    shutil.copytree(stage, run / "output/toy/default/none" / "Passes")
    (stage / "rfm_job.sh").write_text(
        "#!/bin/bash\n#SBATCH --account=project_465\nmodule load openmpi\nexport A=1\n"
        "export PATH=/s/.venv/mpi/mpich/bin:$PATH\nmkdir -p node-state\n"
        "sh -c collect node-state/before.log\nsrun -n 2 /cache/x/fabricbench --transport=mpi "
        "--matrix=/opt/suite/src/data/moe-3-combine.mtx,/opt/suite/src/data/moe-3-dispatch.mtx\nexit $status\n"
    )
    built = run / "output/toy/default/none" / "Build"
    built.mkdir()
    (built / "rfm_build.sh").write_text(
        "sh /s/src/build_once.sh fabricbench /s /c . 'cmake' -DFABRICHECK_BACKEND=cuda "
        "-DMPI_CXX_COMPILER=/s/.venv/mpi/mpich/bin/mpicxx\n"
    )
    files = {name: f"/there/{run.name}/output/toy/default/none/{name}/result.jsonl" for name in ("Passes", "Measures")}
    verdicts = {"Passes": "PASS", "Measures": "FAIL"}
    runs = [{"file": files[name], "verdict": verdicts[name], "problems": [], "hosts": []} for name in files]
    (run / "verdict.json").write_text(json.dumps({"system": "local", "verdict": "FAIL", "runs": runs}))
    bundle = write_bundle(run, tmp_path / "b.tar.gz", hide=True)
    found = {name.partition("/")[2]: text for name, text in contents(tmp_path / "b.tar.gz").items()}
    lines = found["REPRODUCE.md"].splitlines()
    assert [line.split()[1] for line in lines if line.startswith("| ")][1:] == ["FAIL", "PASS"]
    first = lines.index("module load openmpi")
    assert lines[first : first + 5] == [
        "module load openmpi",
        "export A=1",
        "cmake -S src -B build-none -DFABRICHECK_BACKEND=cuda -DMPI_CXX_COMPILER=mpicxx",
        "cmake --build build-none --parallel --target fabricbench",
        "srun -n 2 build-none/fabricbench --transport=mpi "
        "--matrix=src/data/moe-3-combine.mtx,src/data/moe-3-dispatch.mtx",
    ]
    assert any(
        line.startswith("fabricheck judge output/toy/default/none/Measures/result.jsonl --site site") for line in lines
    )
    assert "src/CMakeLists.txt" in bundle and "site/site_configs/local/topology.yaml" in found
    assert "project_465" not in "".join(found.values())


def test_hidden_names_are_nowhere_and_what_is_like_them_stays(run: Path, tmp_path: Path) -> None:
    write_bundle(run, tmp_path / "b.tar.gz", hide=True, more=["secret-project"])
    found = contents(tmp_path / "b.tar.gz")
    text = "".join([*found, *found.values()])
    for name in ("login7.site", "site.example", "secret-project", "curie", str(tmp_path), "10.7.3.21"):
        assert name not in text
    errors = found["toy-20261122T000000Z/output/toy/default/none/Measures/rfm_job.err"]
    assert re.fullmatch(r"x[0-9a-f]{8}: link down; login77 is another; /home of x[0-9a-f]{8}\n", errors)
    assert any(name.endswith(".html") for name in found)


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
    with pytest.raises(UserError, match=rf"^{tmp_path}: has no verdict\.json"):
        write_bundle(tmp_path, tmp_path / "b.tar.gz", hide=False)
    shutil.copytree(run, tmp_path / "copy")
    with pytest.raises(UserError, match="cannot be written"):
        write_bundle(run, tmp_path / "none" / "b.tar.gz", hide=False)
    assert not (tmp_path / "b.tar.gz").exists()


SECRETS = (
    "nid0123 nid0123-ib0 nid0123.hsn0 NID0123 Nid0124s nid[0123-0125,0130] nid01[23-25]",
    "fe80::506b:4b03:00f5:a1b2%ib0 2001:db8::17 10.7.3.21 10.7.3.255:4242",
    "50:6b:4b:00:a1:b2 80:00:02:08:fe:80:00:00:00:00:00:00:50:6b:4b:03:00:f5:a1:b2 506b:4b03:00f5:a1b2",
    "0x506b4b0300f5a1b2 S-506b4b0300f5a1b2",
    "/scratch/project_465000123/marie/run/libx.so.4 /home/marie/bin/x /lustre/p465/data",
    "marie@site.example /users/marie /users/marie/",
    "--account=project_465 -A project_466 Account=project_467 --reservation=marie-res",
    "SLURM_JOB_ACCOUNT=project_465 SLURM_SUBMIT_HOST=nid-login7 account project_468",
    "uid=54021(marie) gid=54022(phys) /run/user/54021 process 4711 (gmx_mpi, 3 GB)",
)
KEPT = "/usr/lib/libmpi.so.40 0000:0f:00.0 NVIDIA H200 GPU-0a1b2c3d 12:30:45 std::abc 580.95.05 127.0.0.1 Gb/s"
KEPT += ' 64 ranks 1795642905123456 {"hash":"c61abd48333544ca"}'


def test_what_only_looks_like_a_name_is_hidden_too(run: Path, tmp_path: Path) -> None:
    busiest = ["vasp_std 12.5", "fabricbench 0.8", "cmake 0.2"]
    state = {"gpus": [{"processes": [{"pid": 4711, "name": "gmx_mpi"}]}], "busiest": busiest}
    stage = run / "output/toy/default/none" / "Measures"
    (stage / "node-state" / "login7.before.json").write_text(json.dumps(state))
    (stage / "rfm_job.out").write_text("\n".join([*SECRETS, "vasp_std 12.5", KEPT, "leaf07sw"]))
    write_bundle(run, tmp_path / "b.tar.gz", hide=True, nodes=["nid0001", "LEAF07sw"])
    found = contents(tmp_path / "b.tar.gz")
    text = found["toy-20261122T000000Z/output/toy/default/none/Measures/rfm_job.out"]
    # A salted hash can hold any digits.
    words = re.sub("x[0-9a-f]{8}|nvidia", "#", text.lower())
    assert re.findall(r"nid|506b|fe80|2001|10\.7|project|465|marie|phys|540|4711|gmx|vasp", words) == []
    assert KEPT in text and "leaf07" not in text and "/libx.so.4" in text
    assert "gmx_mpi" not in "".join([*found, *found.values()])
    assert "--target fabricbench" in found["toy-20261122T000000Z/REPRODUCE.md"]


def test_nodes_of_a_fleet_that_nothing_was_measured_on_are_hidden(run: Path, tmp_path: Path) -> None:
    (run / "fleet").mkdir()
    left = {"nid009": "its state in Slurm is drained"}
    Fleet(run / "fleet", "toy", "toy:default", "nid[001-009]", "7", ("nid001", "nid002"), left).write()
    (run / "verdict.json").write_text(
        json.dumps({"said": "nid[001-002] and nid009 are bad; nid[001-002,009] were asked"})
    )
    write_bundle(run, tmp_path / "b.tar.gz", hide=True)
    found = contents(tmp_path / "b.tar.gz")
    assert "nid" not in "".join([*found, *found.values()])
    write_bundle(run, tmp_path / "c.tar.gz", hide=False)
    assert "nid" in "".join(contents(tmp_path / "c.tar.gz").values())
