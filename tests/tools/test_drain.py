"""ci/drain.py on verdicts of runs: what it prints, what it does not, and when it does nothing."""

from __future__ import annotations

import datetime
import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ci.drain import Node, ask_scheduler
from ci.drain import main as drain_main
from fabricheck.errors import UserError
from fabricheck.records.component import short_host
from fabricheck.records.finding_texts import CATALOGUE, Certainty
from fabricheck.records.verdict import Verdict
from fabricheck.suite import suite_root
from tests.support.effort import effort
from tests.support.schedulers import knows
from tests.support.users import SOMEONE, public

__all__ = ["public"]

DRAINED = "Reason=fabricheck 1a2b3c4d: "
Content = Mapping[str, Any]


def bad(node: str, verdict: str = "FAIL", message: str = "it failed twice") -> dict[str, Any]:
    found = {"verdict": verdict, "part": node, "message": message, "code": "slow-node"}
    return {"node": node, "verdict": verdict, "evidence": [found]}


def run(test: str, verdict: str, *hosts: str, busy: tuple[str, ...] = ()) -> dict[str, Any]:
    problems = [] if verdict == "PASS" else [{"message": "3 wrong bytes", "verdict": verdict, "code": "wrong-bytes"}]
    return {"test": test, "verdict": verdict, "hosts": [*hosts], "problems": problems, "metrics": [], "busy": [*busy]}


def ago(hours: float) -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=hours)


def verdict_of(*runs: Content, session: str = "1a2b3c4d-55", ago_h: float = 1.0, **more: Any) -> dict[str, Any]:
    known = {"id": session, "started": ago(ago_h + 0.2).isoformat(), "ended": ago(ago_h).isoformat()}
    return {"system": "alps", "rehearsal": False, "session": known, "runs": [*runs], **more}


def fleet(*found: Content, nodes: int = 64, good: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    return verdict_of(**{"fleet": {"nodes": nodes, "bad": [*found], "good": [*good]}, **more})


def cluster(**away: str) -> dict[str, Node]:
    """64 nodes of the partition gpu; those of `away` are drained for a reason."""
    names = [f"nid{number:03}" for number in range(1, 65)]
    return {name: Node(name, frozenset({"gpu"}), name in away, away.get(name, ""), ago(1000)) for name in names}


class Drain:
    """Calls the script, and keeps what it said."""

    def __init__(self, folder: Path, said: pytest.CaptureFixture[str]) -> None:
        self.folder, self.said = folder, said
        self.nodes = cluster()
        self.out: list[str] = []
        self.err: list[str] = []

    def write(self, name: str, content: Content | str) -> Path:
        file = self.folder / name
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        return file

    def __call__(self, content: Content | str, *options: str, system: str = "alps") -> int:
        file = self.write("verdict.json", content)
        status = drain_main([str(file), f"--system={system}", *options], lambda _: self.nodes)
        said = self.said.readouterr()
        self.out, self.err = said.out.splitlines(), said.err.splitlines()
        return status

    @property
    def drained(self) -> list[str]:
        return [line.split()[2].partition("=")[2] for line in self.out if "State=DRAIN" in line]

    @property
    def undrained(self) -> list[str]:
        return [line.split()[2].partition("=")[2] for line in self.out if "State=UNDRAIN" in line]


@pytest.fixture
def drain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Drain:
    return Drain(tmp_path, capsys)


BAD = (bad("nid003"), bad("nid004", "INCOMPLETE"), bad("nid005", "DEGRADED", "loses 50%; really"))


def test_fail_and_degraded_are_drained(drain: Drain) -> None:
    assert drain(fleet(*BAD)) == 0
    assert drain.err == []
    assert drain.out == [
        f"scontrol update NodeName=nid003 State=DRAIN '{DRAINED}nid003: it failed twice'",
        f"scontrol update NodeName=nid005 State=DRAIN '{DRAINED}nid005: loses 50%; really'",
    ]


def test_a_run_that_failed_on_one_node_alone(drain: Drain) -> None:
    runs = [
        run("Copies", "FAIL", "nid003"),
        run("Pairs", "FAIL", "nid004", "nid005"),
        run("Host", "DEGRADED", "nid006"),
    ]
    assert drain(verdict_of(*runs)) == 0
    assert drain.drained == ["nid003"]
    assert drain.err == []
    assert drain(verdict_of(*runs[1:])) == 0
    assert (drain.out, len(drain.err)) == ([], 1)


@pytest.mark.parametrize(
    ("scheduler", "line"),
    [
        ("pbs", "pbsnodes -o -C 'fabricheck 1a2b3c4d: nid003: it failed twice' nid003"),
        ("flux", "flux resource drain nid003 'fabricheck 1a2b3c4d: nid003: it failed twice'"),
    ],
)
def test_other_schedulers(drain: Drain, scheduler: str, line: str) -> None:
    assert drain(fleet(BAD[0]), f"--scheduler={scheduler}") == 0
    assert drain.out == [line]


def many(count: int) -> list[dict[str, Any]]:
    return [bad(f"nid{number:03}") for number in range(1, count + 1)]


@pytest.mark.parametrize(
    ("count", "options", "drained"),
    [(3, (), 3), (4, (), 0), (32, (), 0), (64, (), 0), (4, ("--really=3",), 0), (4, ("--really=4",), 4)],
)
def test_no_more_than_a_share_of_a_partition(drain: Drain, count: int, options: tuple[str, ...], drained: int) -> None:
    """5% of 64 nodes are three."""
    assert drain(fleet(*many(count)), *options) == (0 if drained else 2)
    assert len(drain.drained) == drained
    assert drained or len(drain.err) == 1


def test_of_a_small_partition_one_node_may_be_drained(drain: Drain) -> None:
    drain.nodes = {name: each for name, each in cluster().items() if name < "nid005"}
    assert drain(fleet(*many(1), nodes=4)) == 0
    assert drain(fleet(*many(2), nodes=4)) == 2


def test_what_was_drained_on_other_days_counts(drain: Drain) -> None:
    drain.nodes = cluster(nid010="fabricheck 99999999: slow", nid011="fabricheck 88888888: slow", nid012="bad fan")
    assert drain(fleet(*many(1))) == 0
    assert drain(fleet(*many(2))) == 2


@pytest.mark.parametrize("name", ["ALL", "nid[001-064]", "nid001,nid002", "nid999", "-h", "$(id)"])
@pytest.mark.parametrize("of_a_fleet", [True, False])
def test_a_name_that_the_scheduler_does_not_have_is_not_printed(drain: Drain, name: str, of_a_fleet: bool) -> None:
    content = fleet(bad(name)) if of_a_fleet else verdict_of(run("Copies", "FAIL", name))
    assert drain(content) == 0
    assert (drain.out, len(drain.err)) == ([], 1)


def test_what_a_node_says_does_nothing_to_a_terminal(drain: Drain) -> None:
    drain.nodes = cluster(nid004="\x1b[2J ann")
    assert drain(fleet(bad("nid003", message="\x1b]0;x\x07 \u202eslow"), bad("nid004"), bad("\x1b[8m"))) == 0
    assert (len(drain.out), len(drain.err)) == (1, 2)
    assert all(line.isprintable() for line in [*drain.out, *drain.err])


def test_a_system_is_named_with_its_partition_or_without(drain: Drain) -> None:
    assert drain(fleet(*BAD), system="lumi:gpu") == 2
    assert drain(fleet(*BAD), system="alps:gpu") == 0


def test_a_machine_that_was_busy_is_not_drained(drain: Drain) -> None:
    runs = [run("Copies", "FAIL", "nid003.site.org", busy=("nid003",)), run("Copies", "FAIL", "nid004")]
    assert drain(verdict_of(*runs)) == 0
    assert drain.drained == ["nid004"]
    assert "nid003" in drain.err[0]


def test_a_name_is_compared_with_its_domain_or_without(drain: Drain) -> None:
    """And an address has none: 10.0.0.3 and 10.0.0.4 are two nodes."""
    names = {"nid003.site.org", "nid004.site.org", "nid004.else.org", "10.0.0.3", "10.0.0.4", "10"}
    drain.nodes = {name: Node(name, frozenset({"gpu"}), booted=ago(1000)) for name in names}
    waivers = drain.write("waivers", "nid003 ann 2999-12-31 waits")
    for host in ("nid003", "nid003.site.org", "nid003.else.org", "nid004", "10.0.0.5"):
        assert drain(fleet(bad(host)), f"--waivers={waivers}") == 0
        assert drain.drained == [], host
    assert drain(fleet(bad("nid003"))) == 0
    assert drain.drained == ["nid003.site.org"]
    other = {**bad("10.0.0.4"), "node": "10.0.0.3"}
    assert drain(fleet(other)) == 0
    assert drain.drained == []
    assert drain(fleet(bad("10.0.0.3"))) == 0
    assert drain.drained == ["10.0.0.3"]


def test_root_takes_no_verdict_that_another_user_wrote(drain: Drain, public: Path) -> None:
    file = public / "verdict.json"
    file.write_text(json.dumps(fleet(*BAD)))
    os.chown(file, SOMEONE, SOMEONE)
    assert drain_main([str(file), "--system=alps"], lambda _: drain.nodes) == 2
    said = drain.said.readouterr()
    assert said.out == "" and str(file) in said.err


def test_a_waiver_holds_until_its_day_ends(drain: Drain) -> None:
    known = ("nid[002-003].site.org ann 2999-12-31 waits", "nid005 bob 2020-01-01 repair", "nid999 eve 2999-12-31 gone")
    waivers = drain.write("waivers", "\n".join(["# known", *known]))
    assert drain(fleet(*BAD), f"--waivers={waivers}") == 0
    assert drain.drained == ["nid005"]
    assert [line.split(": ")[0] for line in drain.err] == [f"{waivers}:3", f"{waivers}:4", "nid003"]


@pytest.mark.parametrize(
    "line", ["nid003 ann", "nid003 ann tomorrow why", "nid003 ann 2999-13-01 why", "nid[ ann 2999-12-31 x"]
)
def test_a_waiver_that_is_none_is_one_line(drain: Drain, line: str) -> None:
    waivers = drain.write("waivers", f"{line}\n")
    assert drain(fleet(*BAD), f"--waivers={waivers}") == 2
    assert (drain.out, len(drain.err)) == ([], 1)


OURS = "fabricheck 0ld0ld00: 3 wrong bytes"
OF_A_FLEET = "fabricheck 0ld0ld00: nid003: 3 wrong bytes"


def after(
    drain: Drain, before: Content, now: Content, *options: str, reason: str = OURS, booted: float = 1000.0
) -> list[str]:
    """`booted`: hours ago."""
    drain.nodes = cluster(nid003=reason)
    drain.nodes["nid003"] = replace(drain.nodes["nid003"], booted=ago(booted))
    assert (
        drain(
            now,
            f"--after={drain.write('before.json', {**before, 'session': {**before['session'], 'id': '0ld0ld00'}})}",
            *options,
        )
        == 0
    )
    return drain.undrained


BEFORE = verdict_of(run("Copies", "FAIL", "nid003"), run("Host", "PASS", "nid003"), ago_h=500)


@pytest.mark.parametrize(
    ("now", "good"),
    [
        (verdict_of(run("Copies", "PASS", "nid003")), True),
        (verdict_of(run("Host", "PASS", "nid003")), False),  # another test
        (verdict_of(run("Copies", "PASS", "nid004")), False),  # another node
        (verdict_of(run("Copies", "PASS", "nid003"), run("Host", "INVALID", "nid003")), False),
        (verdict_of(run("Copies", "INCOMPLETE", "nid003")), False),
    ],
)
def test_only_a_pass_of_the_failed_test_undrains(drain: Drain, now: Content, good: bool) -> None:
    assert after(drain, BEFORE, now) == (["nid003"] if good else [])


def test_a_fleet_s_node_is_undrained_by_what_its_fleet_ran(drain: Drain) -> None:
    """Such as one with which no MPI started: no run of it failed."""
    ran = [run("Smoke", "PASS", "nid001"), run("Pairs", "PASS", "nid001", "nid002")]
    before = fleet(bad("nid003", message="3 wrong bytes"), runs=ran, ago_h=500)
    now = [run("Smoke", "PASS", "nid003"), run("Pairs", "PASS", "nid001", "nid003")]
    assert after(drain, before, fleet(good=("nid003",), runs=now), reason=OF_A_FLEET) == ["nid003"]
    assert after(drain, before, fleet(good=("nid003",), runs=now[:1]), reason=OF_A_FLEET) == []
    assert after(drain, before, fleet(good=(), runs=now), reason=OF_A_FLEET) == []


RUN = run("Copies", "FAIL", "nid003")


@pytest.mark.parametrize(
    "content",
    [
        "[" * 3000,
        "[]",
        verdict_of({**RUN, "hosts": "v"}),
        verdict_of("FAIL"),  # type: ignore[arg-type]
        {**verdict_of(RUN), "session": {"id": "1a2b3c4d", "ended": "2026-11-20T03:00:00"}},
        fleet(bad("")),
        fleet({**bad("nid003"), "evidence": []}),
        fleet({**bad("nid003"), "evidence": [{"verdict": "FAIL", "message": "slow", "code": "no-such-code"}]}),
        verdict_of({**RUN, "verdict": "BROKEN"}),
    ],
)
def test_a_damaged_verdict_is_one_line_and_drains_nothing(drain: Drain, content: Content | str) -> None:
    assert drain(content) == 2
    assert drain.out == []
    assert len(drain.err) == 1 and "is not a verdict.json" in drain.err[0]


SAID = {
    "sinfo": "nid001|gpu|idle|none\nnid001|all|idle|none\nnid002|gpu|drained*|bad | fan\nnid003|gpu|down$|none\n",
    "pbsnodes": json.dumps(
        {"nodes": {"nid001": {"state": "free"}, "nid002": {"state": "offline", "comment": "bad | fan"}}}
    ),
    "flux": "avail|nid001|\ndrain|nid[002-003]|bad | fan\n",
}


@pytest.mark.parametrize(("scheduler", "program"), [("slurm", "sinfo"), ("pbs", "pbsnodes"), ("flux", "flux")])
def test_a_scheduler_says_which_nodes_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduler: str, program: str
) -> None:
    (tmp_path / "said").write_text(SAID[program])
    file = tmp_path / program
    file.write_text(f"#!/bin/sh\n/bin/cat {tmp_path / 'said'}\n")
    file.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    slurm = tmp_path / "scontrol"
    slurm.write_text("#!/bin/sh\necho NodeName=nid001 Arch=x86_64 BootTime=1764000000 SlurmdStartTime=1764000100\n")
    slurm.chmod(0o755)
    nodes = ask_scheduler(scheduler)
    assert (nodes["nid001"].booted is not None) is (scheduler == "slurm")
    assert (nodes["nid001"].away, nodes["nid002"].away, nodes["nid002"].reason) == (False, True, "bad | fan")
    file.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(UserError):
        ask_scheduler(scheduler)
    file.unlink()
    with pytest.raises(UserError):
        ask_scheduler(scheduler)


def test_it_is_a_script(tmp_path: Path) -> None:
    """Whatever the current folder has."""
    (tmp_path / "verdict.json").write_text(json.dumps(fleet(*BAD)))
    (tmp_path / "json.py").write_text("raise SystemExit(7)")
    command = [sys.executable, str(suite_root() / "ci" / "drain.py"), "verdict.json", "--system=alps"]
    environment = {**os.environ, "PATH": knows(tmp_path / "bin", "nid003")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "NodeName=nid003" in done.stdout) == (0, True), done.stderr


CERTAIN = (Certainty.MEASURED, Certainty.CONTRAST)


def drawn_findings(draw: random.Random, host: str) -> list[dict[str, Any]]:
    """Findings of any code and verdict; some name the node, another one, two of them, or none."""
    findings = []
    for _ in range(draw.randint(1, 3)):
        places: list[list[dict[str, str]]] = [
            [],
            [{"kind": "node", "node": host}],
            [{"kind": "gpu", "name": "gpu1", "node": host}],
            [{"kind": "node", "node": "nid060"}],
            [{"kind": "path", "node": host, "far_node": "nid060"}],
        ]
        verdict = draw.choice([*["FAIL"] * 8, *[each.value for each in Verdict]])
        place = draw.choice([places[0], places[1], *places])
        code = draw.choice(["wrong-bytes", "slow-node", draw.choice(list(CATALOGUE))])
        findings.append({"verdict": verdict, "message": "it failed", "part": host, "components": place, "code": code})
    return findings


def drawn_verdict(draw: random.Random, session: str, verdict: str) -> dict[str, Any]:
    """A verdict of one node, with its domain or without, any time ago, of this system or another, of a fleet or a run.

    It may lack a field, contradict itself, or have the node twice.
    """
    host = draw.choice(["nid003"] * 4 + ["nid004"]) + draw.choice(["", "", ".site.org"])
    findings = drawn_findings(draw, host)
    problems = [] if verdict == "PASS" else [{name: each[name] for name in each if name != "part"} for each in findings]
    one = {**run("Copies", verdict, host), "problems": problems}
    evidence = [{"node": host, "verdict": "FAIL", "evidence": findings}] if verdict != "PASS" else []
    good = [short_host(host)] * (not evidence or draw.random() < 0.1)
    more: dict[str, Any] = {"fleet": {"nodes": 64, "bad": evidence, "good": good}}
    twice = [run("Copies", draw.choice(["PASS", "FAIL"]), f"{short_host(host)}.site.org")] * (draw.random() < 0.1)
    content = verdict_of(
        one, *twice, session=session, ago_h=draw.choice([0.5, 0.5, 2, 5, 20, 30]), **draw.choice([{}, more])
    )
    times: dict[str, Any] = content["session"]
    for name in ("started", "ended"):
        if draw.random() < 0.1:
            times[name] = draw.choice(["2026-11-20T00:00:00", "yesterday", 7, ago(-3).isoformat(), times["ended"]])
    content |= {"system": draw.choice(["alps"] * 9 + ["lumi"]), "rehearsal": draw.random() < 0.05}
    if draw.random() < 0.05:
        place = draw.choice([content, times, one])
        place.pop(draw.choice([*place]))
    return content


def may_drain(content: Content, node: str, booted: datetime.datetime | None) -> bool:
    """By hand what a drain needs: a certain finding of this node alone, of today, and of this boot."""
    session, fleet_of = content["session"], content.get("fleet", {"bad": [], "good": []})
    began, ended = (
        datetime.datetime.fromisoformat(session.get(name, session["ended"])) for name in ("started", "ended")
    )
    findings = [one for each in fleet_of["bad"] for one in each["evidence"] if short_host(each["node"]) == node]
    findings += [
        one for each in content["runs"] for one in each["problems"] if {*map(short_host, each["hosts"])} == {node}
    ]
    proven = [
        one
        for one in findings
        if one["verdict"] in ("FAIL", "DEGRADED")
        and CATALOGUE[one["code"]].certainty in CERTAIN
        and all(
            {*map(short_host, (part["node"], part.get("far_node", node)))} == {node}
            for part in one.get("components", ())
        )
    ]
    fresh = booted is not None and booted < began <= ended and ago(24) < ended < ago(-1)
    return (
        bool(proven)
        and fresh
        and content["system"] == "alps"
        and not content["rehearsal"]
        and node not in fleet_of["good"]
    )


def test_never_an_action_without_a_newer_finding_of_this_node(drain: Drain) -> None:
    """Verdicts, times, reasons and boots of every kind."""
    drains = undrains = 0
    for number in range(effort(1000, share=3)):
        draw = random.Random(number)
        kinds = draw.choice([*[["FAIL", "PASS"]] * 4, ["FAIL", "FAIL"], ["PASS", "DEGRADED"]])
        before, now = map(drawn_verdict, [draw] * 2, ["0ld0ld00", "1a2b3c4d"], kinds)
        parts = draw.choice(["", *(f"{host}: " for each in before.get("runs", ()) for host in each.get("hosts", ()))])
        reason = draw.choice([*[f"{OURS[:21]}{parts}it failed"] * 6, OURS, f"{OURS}, RMA", "ann: RMA", ""])
        booted = draw.choice([None, ago(0.2), ago(3), ago(10), ago(1000), ago(1000)])
        drain.nodes = cluster(nid003=reason) if draw.random() < 0.8 else cluster()
        drain.nodes = {name: replace(node, booted=booted) for name, node in drain.nodes.items()}
        status = drain(now, f"--after={drain.write('before.json', before)}")
        assert status == 2 or drain.out or drain.err
        assert status != 2 or (not drain.out and len(drain.err) == 1)
        for node in drain.drained:
            assert may_drain(now, node, booted) and not drain.nodes[node].away, (number, drain.out)
        for node in drain.undrained:
            was = drain.nodes[node].reason
            assert was.startswith("fabricheck 0ld0ld00: ") and "RMA" not in was, (number, was)
            began = now["session"].get("started", now["session"]["ended"])
            assert before["session"]["ended"] < began, number
            assert {each["verdict"] for each in now["runs"] if short_host(each["hosts"][0]) == node} == {"PASS"}, number
            assert now["system"] == before["system"] == "alps" and booted is not None and booted < ago(0.6), number
        drains, undrains = drains + len(drain.drained), undrains + len(drain.undrained)
    assert drains > 0 and undrains > 0, (drains, undrains)
