"""The scripts that a site runs, from the outside: exit statuses and files."""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ruamel.yaml import YAML

from fabricheck.records.verdict import Verdict
from fabricheck.store.reading import history
from fabricheck.suite import suite_root
from fabricheck.yardsticks.policy import load_policy
from tests.support import no_locks
from tests.support.schedulers import knows
from tests.support.toy import ToySuite
from tests.support.users import give, public

__all__ = ["public"]

pytestmark = [pytest.mark.e2e, pytest.mark.full]

NIGHTLY = suite_root() / "ci" / "nightly.sh"


def nightly(
    toy: ToySuite, *arguments: str, refused: tuple[str, ...] = (), cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "FABRICHECK_OUTPUT": str(toy.output), **variables}
    toy.check.write_text(toy.check.read_text().replace('tags = {"toy"}', 'tags = {"nightly"}'))
    command = [*refused, str(NIGHTLY), *arguments]
    return subprocess.run(
        command, cwd=cwd or toy.suite.root, env=environment, capture_output=True, text=True, check=False
    )


def make_result(toy: ToySuite, verdict: Verdict) -> None:
    """Changes the toy's result so that it has this verdict."""
    lines = toy.result.read_text().splitlines(keepends=True)
    if verdict is Verdict.FAIL:
        for line in (1, -1):
            lines[line] = lines[line].replace('"wrong_bytes":0', '"wrong_bytes":1')
    if verdict is Verdict.INCOMPLETE:
        lines.pop()
    if verdict is Verdict.INVALID:
        lines[2] = re.sub(r'"times_ns":\[[^]]*\]', '"times_ns":[1,1,1,1,1,1]', lines[2])
    toy.result.write_text("".join(lines))


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (Verdict.PASS, 0),
        (Verdict.FAIL, 3),
        pytest.param(Verdict.INCOMPLETE, 4, marks=pytest.mark.full),
        pytest.param(Verdict.INVALID, 5, marks=pytest.mark.full),
    ],
)
def test_each_verdict_has_its_exit_status(toy: ToySuite, tmp_path: Path, verdict: Verdict, status: int) -> None:
    make_result(toy, verdict)
    textfiles = tmp_path / "textfiles"
    textfiles.mkdir()
    (textfiles / ".fabricheck-toy.new").symlink_to(tmp_path / "mine")  # which another user left
    host = json.loads(toy.result.read_text().partition("\n")[0])["ranks"][0]["host"]
    path = knows(tmp_path / "bin", host)
    job = nightly(toy, "toy", FABRICHECK_TEXTFILE=str(textfiles), FABRICHECK_DRAIN="print", PATH=path)
    assert job.returncode == status, job.stdout + job.stderr
    written = json.loads((toy.output / "latest-toy" / "verdict.json").read_text())
    assert (written["verdict"], written["exit_status"]) == (verdict.value, status)
    published = textfiles / "fabricheck-toy.prom"
    assert len([*textfiles.iterdir()]) == 2 and not (tmp_path / "mine").exists()
    assert f'fabricheck_exit_status{{system="toy"}} {float(status)}' in published.read_text()
    assert ("scontrol update NodeName=" in job.stdout) == (verdict is Verdict.FAIL)


@pytest.mark.parametrize("mode", [0o755, pytest.param(0o777, marks=pytest.mark.full)])
def test_published_files_follow_no_planted_link(toy: ToySuite, tmp_path: Path, mode: int) -> None:
    """And root publishes nothing where others can change it."""
    victim, artifacts = tmp_path / "victim", tmp_path / "artifacts"
    victim.write_text("mine\n")
    artifacts.mkdir()
    artifacts.chmod(mode)
    (artifacts / "verdict.json").symlink_to(victim)
    job = nightly(toy, "toy", FABRICHECK_ARTIFACTS=str(artifacts))
    assert (job.returncode, victim.read_text()) == (0, "mine\n")
    is_published = not (artifacts / "verdict.json").is_symlink()
    assert is_published is (mode == 0o755 or os.geteuid() != 0)
    assert is_published is not ("can change" in job.stderr)


def test_root_makes_no_folder_where_another_user_s_link_leads(toy: ToySuite, public: Path) -> None:
    """Neither the output nor the artifacts; and a module in the current folder is not run."""
    theirs, elsewhere = public / "theirs", public / "elsewhere"
    (theirs / "fabricheck").mkdir(parents=True)
    elsewhere.mkdir()
    (theirs / "way").symlink_to(elsewhere)
    (theirs / "fabricheck" / "__init__.py").write_text("")
    (theirs / "fabricheck" / "trust.py").write_text(f"open({str(elsewhere / 'ran')!r}, 'w')\n")
    give(theirs)
    job = nightly(toy, "toy", FABRICHECK_ARTIFACTS=str(theirs / "way" / "artifacts"), cwd=theirs)
    assert job.returncode == 0 and str(theirs) in job.stderr
    assert nightly(toy, "toy", FABRICHECK_OUTPUT=str(theirs / "way" / "output"), cwd=theirs).returncode == 2
    assert not [*elsewhere.iterdir()]


def test_only_this_run_s_verdict_is_published(toy: ToySuite, tmp_path: Path) -> None:
    """Not one of a time when the clock was wrong, nor one of a system whose name begins alike."""
    for name in ("toy-20991231T000000Z", "toy-x-20991231T000000Z"):
        folder = toy.output / "runs" / name
        folder.mkdir(parents=True)
        (folder / "verdict.json").write_text("{}")
        os.utime(folder / "verdict.json", (4e9, 4e9))
    (toy.output / "latest-toy").mkdir()
    kept = tmp_path / "kept"
    job = nightly(toy, "toy", FABRICHECK_ARTIFACTS=str(kept))
    assert job.returncode == 0, job.stderr
    assert json.loads((kept / "verdict.json").read_text())["system"] == "toy"


def test_root_runs_no_settings_that_a_group_can_change(toy: ToySuite) -> None:
    if os.geteuid() != 0:
        pytest.skip("is a rule for root")
    toy.suite.settings("toy").chmod(0o664)
    job = nightly(toy, "toy", FABRICHECK_SUITE=str(toy.suite.root))
    assert job.returncode == 2 and "settings.py" in job.stderr
    assert not [*toy.output.glob("runs/*")]


@pytest.mark.full
def test_where_files_cannot_be_locked_it_is_measured_all_the_same(toy: ToySuite) -> None:
    job = nightly(toy, "toy", refused=(sys.executable, no_locks.__file__, "ENOLCK"))
    assert job.returncode == 0, job.stdout + job.stderr
    assert len(history(toy.output / "store", system="toy")) == 2
    assert (toy.output / "latest-toy" / "report.html").exists()
    assert not [*toy.output.glob(".begun-*"), *toy.output.glob(".*.owner")]


@pytest.mark.parametrize("arguments", [[], ["nowhere"], ["toy", "--no-such-option"]])
def test_a_mistake_is_2_and_keeps_the_newest_run(toy: ToySuite, arguments: list[str]) -> None:
    job = nightly(toy, *arguments)
    assert job.returncode == 2, job.stdout + job.stderr
    assert "Traceback" not in job.stderr
    assert not (toy.output / "latest-toy").exists()


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("echo 'DEGRADED    a GPU'; echo 'DEGRADED: nid001: 4 GPUs'; exit 1", 1),
        ("echo 'INCOMPLETE: nid001: 3 GPUs'; exit 4", 1),
        ("echo 'PASS: nid001: 4 GPUs'", 0),
        ("echo 'ModuleNotFoundError: fabricheck' >&2; exit 1", 0),  # as Python ends where half of it is there
        ("exit 127", 0),
        ("kill -9 $$", 0),
        (None, 0),
    ],
)
def test_a_prolog_without_a_fabricheck_that_answers_drains_nothing(
    tmp_path: Path, program: str | None, status: int
) -> None:
    file = tmp_path / "fabricheck"
    if program is not None:
        file.write_text(f"#!/bin/sh\n{program}\n")
        file.chmod(0o755)
    environment = {**os.environ, "PROGRAM": str(file), "SYSTEM": "site:gpu"}
    script = [str(suite_root() / "ci" / "prolog.sh")]
    assert subprocess.run(script, env=environment, capture_output=True, check=False).returncode == status


def answering(folder: Path, text: str, status: int) -> dict[str, str]:
    """The scripts of ci/ in `folder`, and an environment with such a Fabricheck and a scontrol that keeps its words."""
    for name in ("prolog.sh", "health.sh", "pbs_hook.py"):
        shutil.copy(suite_root() / "ci" / name, folder)
    programs = {
        "fabricheck": f"echo '{text}'; exit {status}",
        "scontrol": f'if [ "$1" = show ]; then echo "State=$STATE Reason=${{REASON-$(cat {folder}/reason)}} [root]"; '
        f'exit $SHOWS; fi; echo "$*" >> {folder}/said; echo "${{4#Reason=}}" > {folder}/reason',
        "sinfo": f'echo "gpu|nid001|idle|none"; cat {folder}/others; cat {folder}/later 2>/dev/null >> {folder}/others',
        "logger": f'echo "$*" >> {folder}/log',
    }
    for name, content in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{content}\n")
        (folder / name).chmod(0o755)
    (folder / "others").touch()
    (folder / "reason").touch()
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    program = str(folder / "fabricheck")
    return {**os.environ, "PROGRAM": program, "PATH": path, "SLURMD_NODENAME": "nid001", "SHOWS": "0"}


def other_nodes(drained: int) -> str:
    """What sinfo says of the 39 other nodes of a partition, some drained by Fabricheck, and of those of another."""
    states = ["drained|fabricheck: DEGRADED: 3 links"] * drained + ["idle|none"] * (39 - drained)
    lines = [f"gpu|nid{number:03}|{state}" for number, state in enumerate(states, 2)]
    lines += [f"cpu|nid{number}|drained|fabricheck: FAIL" for number in range(100, 140)]
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize(
    ("text", "status", "state", "drained"),
    [
        ("DEGRADED: nid001: 3 links", 1, "IDLE", True),
        ("DEGRADED: nid001: 3 links", 1, "IDLE+DRAIN", False),
        ("PASS: nid001", 0, "IDLE", False),
        ("no such system", 2, "IDLE", False),
    ],
)
def test_a_health_check_of_slurm_drains_only_what_is_at_fault(
    tmp_path: Path, text: str, status: int, state: str, drained: bool
) -> None:
    environment = {**answering(tmp_path, text, status), "STATE": state}
    job = subprocess.run([str(tmp_path / "health.sh")], env=environment, capture_output=True, text=True, check=False)
    assert job.returncode == 0, job.stderr
    said = (tmp_path / "said").read_text() if (tmp_path / "said").exists() else ""
    assert said == (f"update NodeName=nid001 State=DRAIN Reason=fabricheck: {text}\n" if drained else "")


@pytest.mark.parametrize(
    ("prolog", "shows"),
    [
        (None, 0),  # is not there
        ("#!/bin/sh\nkill -9 $$\n", 0),
        ("#!/bin/sh\necho FAIL: nid001; exit 2\n", 0),
        ("#!/nowhere\n", 0),
        ("#!/bin/sh\nexit 1\n", 0),  # without a reason
        ("#!/bin/sh\necho FAIL: nid001; exit 1\n", 1),  # nobody knows how the node is
    ],
)
def test_a_health_check_without_an_answer_drains_nothing(tmp_path: Path, prolog: str | None, shows: int) -> None:
    environment = {**answering(tmp_path, "FAIL: nid001", 3), "STATE": "IDLE", "SHOWS": str(shows)}
    (tmp_path / "prolog.sh").unlink()
    if prolog is not None:
        (tmp_path / "prolog.sh").write_text(prolog)
        (tmp_path / "prolog.sh").chmod(0o755)
    job = subprocess.run([str(tmp_path / "health.sh")], env=environment, capture_output=True, check=False)
    assert (job.returncode, (tmp_path / "said").exists()) == (0, False)


@pytest.mark.parametrize(
    ("before", "later", "states", "more"),
    [
        (1, 0, ["DRAIN"], {}),  # 2 of 40 nodes are 5%
        (2, 0, [], {}),
        (0, 39, ["DRAIN", "UNDRAIN"], {}),  # all others at the same time
        (0, 39, ["DRAIN"], {"REASON": "ann: RMA"}),  # and somebody drained it for another reason since
    ],
)
def test_a_health_check_drains_no_more_of_a_partition_than_ci_drain(
    tmp_path: Path, before: int, later: int, states: list[str], more: dict[str, str]
) -> None:
    environment = {**answering(tmp_path, "DEGRADED: nid001: no port is up", 1), "STATE": "IDLE", **more}
    (tmp_path / "others").write_text(other_nodes(before))
    (tmp_path / "later").write_text(other_nodes(later) if later else "")
    job = subprocess.run([str(tmp_path / "health.sh")], env=environment, capture_output=True, text=True, check=False)
    assert job.returncode == 0, job.stderr
    said = (tmp_path / "said").read_text().splitlines() if (tmp_path / "said").exists() else []
    assert [word for line in said for word in line.split() if word.startswith("State=")] == [
        f"State={state}" for state in states
    ]
    logged = (tmp_path / "log").read_text() if (tmp_path / "log").exists() else ""
    assert ("no port is up" in logged) is (before == 2 or later == 39)
    (most,) = re.findall(r"MOST:-(\d+)", (tmp_path / "health.sh").read_text())
    assert int(most) / 100 == load_policy(suite_root() / "config" / "policy.yaml").most_drained


@pytest.mark.parametrize(("text", "status", "offline"), [("FAIL: nid001: a GPU", 3, True), ("PASS: nid001", 0, False)])
def test_a_hook_of_pbs_takes_a_node_away_only_for_its_own_fault(
    tmp_path: Path, text: str, status: int, offline: bool
) -> None:
    environment = answering(tmp_path, text, status)
    (tmp_path / "pbs.py").write_text(
        "from types import SimpleNamespace as S\nND_OFFLINE = 'offline'\nnode = S(state='free', comment='')\n"
        "calls = []\njob = S(rerun=lambda: calls.append('rerun'))\n"
        "def get_local_nodename(): return 'nid001'\n"
        "def event(): return S(vnode_list={'nid001': node}, job=job, reject=lambda why: calls.append(why))\n"
    )
    hook = (tmp_path / "pbs_hook.py").read_text().replace("/etc/pbs/fabricheck/prolog.sh", str(tmp_path / "prolog.sh"))
    (tmp_path / "pbs_hook.py").write_text(f"{hook}\nprint([pbs.node.state, pbs.node.comment, *pbs.calls])\n")
    command = [sys.executable, "pbs_hook.py"]
    job = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    why = f"fabricheck: {text}"
    assert job.stdout == f"{['offline', why, 'rerun', why] if offline else ['free', '']}\n"


def test_flux_runs_the_prolog_on_each_node_of_a_job() -> None:
    """Its plugin is not loaded by default, and without `per-rank` a prolog runs on the first rank of Flux alone."""
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    ci = suite_root() / "ci"
    settings = tomllib.loads((ci / "flux-perilog.toml").read_text())["job-manager"]
    *shell, command = settings["prolog"]["command"]
    assert settings["plugins"] == [{"load": "perilog.so"}] and settings["prolog"]["per-rank"]
    program = command.partition(";")[0]
    assert (ci / Path(program).name).stat().st_mode & 0o111
    for status in (0, 1, 2, 127):
        ended = subprocess.run([*shell, command.replace(program, f"(exit {status})")], check=False)
        assert (ended.returncode != 0) is (status == 1)


def test_ci_servers_keep_what_was_found_also_where_it_is_red() -> None:
    ci = suite_root() / "ci"
    load = YAML(typ="safe").load
    gitlab = load((ci / "gitlab.yml").read_text())["fabricheck"]
    github = load((ci / "github.yml").read_text())["jobs"]["nightly"]
    jenkins = (ci / "Jenkinsfile").read_text()
    (measure,) = (line for line in gitlab["script"] if line.startswith("ci/nightly.sh"))
    assert gitlab["artifacts"]["when"] == "always"
    assert gitlab["artifacts"]["reports"]["junit"] == "fabricheck-results/junit.xml"
    assert measure in [step.get("run") for step in github["steps"]]
    assert github["steps"][-1]["if"] == "always()"
    assert measure in jenkins and "always {" in jenkins and "fabricheck-results/junit.xml" in jenkins
    folders = gitlab["variables"]["FABRICHECK_ARTIFACTS"], github["env"]["FABRICHECK_ARTIFACTS"]
    assert all(each.endswith("/fabricheck-results") for each in folders)
    # GitHub gives a job only what its file names.
    page = (ci.parent / "docs" / "every-night.md").read_text()
    needed = {
        name
        for name in re.findall(r"`(FABRICHECK_[A-Z]+)", page)
        if name not in ("FABRICHECK_TEXTFILE", "FABRICHECK_DRAIN")
    }
    assert needed == {name for name in github["env"] if name.startswith("FABRICHECK")}


class _Webhook(http.server.BaseHTTPRequestHandler):
    said: ClassVar[list[Any]] = []

    def do_POST(self) -> None:
        self.said.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.FAIL])
def test_a_webhook_is_told_what_is_not_pass(toy: ToySuite, tmp_path: Path, verdict: Verdict) -> None:
    make_result(toy, verdict)
    _Webhook.said.clear()
    with http.server.HTTPServer(("127.0.0.1", 0), _Webhook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        told = f"http://127.0.0.1:{server.server_port}/hook"
        kept = tmp_path / "kept"
        job = nightly(toy, "toy", FABRICHECK_NOTIFY=told, FABRICHECK_ARTIFACTS=str(kept))
        server.shutdown()
    assert {each.name for each in kept.iterdir()} == {"report.html", "verdict.json", "junit.xml", "metrics.prom"}
    assert "/hook" not in job.stdout + job.stderr
    if verdict is Verdict.PASS:
        assert _Webhook.said == []
    else:
        ((first, *_),) = [each["text"].splitlines() for each in _Webhook.said]
        assert first.startswith("FAIL toy: ")


def test_a_webhook_or_scheduler_that_does_not_answer_changes_no_verdict(toy: ToySuite, tmp_path: Path) -> None:
    make_result(toy, Verdict.FAIL)
    (tmp_path / "sinfo").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "sinfo").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    job = nightly(toy, "toy", FABRICHECK_NOTIFY="http://127.0.0.1:9/secret", FABRICHECK_DRAIN="print", PATH=path)
    assert job.returncode == 3
    assert "nobody was notified" in job.stderr and "secret" not in job.stderr
