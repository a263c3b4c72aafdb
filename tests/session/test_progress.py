"""What a run says while it goes on: one line for each check, from ReFrame's own lines, with what it is worth."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabricheck.records.finding import Finding
from fabricheck.records.verdict import Verdict
from fabricheck.results.check_judgement import write_judgement
from fabricheck.session.progress import Progress, TimeLeft

SAID = """\
[==========] Running 3 check(s)
[----------] start processing checks
[ RUN      ] BuildFabricbench ~toy:default+none /0a1b2c3d @toy:default+none
[       OK ] (1/4) BuildFabricbench ~toy:default+none /0a1b2c3d @toy:default+none
[ RUN      ] PeerCopies %mover=copy %access=write /11223344 @toy:default+none
[       OK ] (2/4) PeerCopies %mover=copy %access=write /11223344 @toy:default+none
P: pingpong_uncontended_0_1_8b_latency: 2.4234999999999998 us (r:0, l:None, u:None)
P: pingpong_uncontended_0_1_1gib_goodput: 3165.4321 Gb/s (r:0, l:None, u:None)
[ RUN      ] PingPong %transport=mpi /55667788 @toy:default+none
[     FAIL ] (3/4) PingPong %transport=mpi /55667788 @toy:default+none
==> test failed during 'sanity': test staged in 'STAGE'
[     SKIP ] (4/4) Collectives /99aabbcc @toy:default+none
[     SKIP ] (4/4) Collectives /99aabbcc @toy:default+none
[----------] all spawned checks have finished
[  FAILED  ] Ran 4/4 test case(s) from 3 check(s) (1 failure(s), 1 skipped, 0 aborted)
"""


def said(text: str, **more: object) -> list[str]:
    lines: list[str] = []
    clock = iter(range(0, 10_000, 10))
    progress = Progress(lines.append, clock=lambda: float(next(clock)), **more)  # type: ignore[arg-type]
    for line in text.splitlines():
        progress.line(line)
    progress.flush()
    return lines


def test_each_check_is_one_line_with_verdict_value_and_time_left() -> None:
    """Of two that are left out for one reason the first."""
    lines = said(SAID)
    assert len(lines) == 5
    # A build may take minutes, and says so when it begins, in a file too.
    assert lines.pop(0).split() == ["BuildFabricbench", "toy:default+none", "…"]
    assert lines[0].startswith("1/4  BuildFabricbench toy:default+none  ")
    words = lines[1].split()
    assert words[:5] == ["2/4", "PeerCopies", "copy", "write", "PASS"]
    assert "3,165 Gb/s" in lines[1] and lines[1].endswith(" s left")
    assert "not PASS  in its sanity" in lines[2]
    assert lines[3].split()[:3] == ["4/4", "Collectives", "skip"]
    assert all(len(line) <= 80 for line in lines)
    assert not any("2.4234" in line for line in lines)


def test_what_a_failed_job_said_last_stands_in_its_line(tmp_path: Path) -> None:
    (tmp_path / "rfm_job.err").write_text("noise\n" * 5000 + "mpirun has detected an attempt to run as root.\n\n")
    (line,) = [line for line in said(SAID.replace("STAGE", str(tmp_path)), width=120) if "PingPong" in line]
    assert "mpirun has detected an attempt to run as root" in line


def test_what_a_check_found_stands_in_its_line_before_what_its_job_said(tmp_path: Path) -> None:
    (tmp_path / "rfm_job.err").write_text("-" * 70 + "\n")
    file = str(tmp_path / "result.jsonl")
    write_judgement(
        tmp_path, [Finding("rank-crashed", Verdict.INCOMPLETE, f"{file}: rank 1 was killed", files=(file,))]
    )
    (line,) = [line for line in said(SAID.replace("STAGE", str(tmp_path)), width=120) if "PingPong" in line]
    assert "rank 1 was killed" in line and file not in line


def seconds_left(left: TimeLeft, now: float) -> float:
    """What it says, as seconds."""
    number, unit = left.text(now).split()[:2]
    return float(number) * {"s": 1, "min": 60}[unit]


def test_the_time_left_is_right_however_long_builds_take() -> None:
    """Twenty tests of 10, 15 and 20 s in one job, after a build of five minutes."""
    left, now, end = TimeLeft(), 0.0, 2.5
    left.begin("Build ~toy:default", now)
    now, left.tests = now + 300, 21
    costs = [10.0 + 5 * (number % 3) for number in range(20)]
    for number, cost in enumerate(costs):
        left.begin(f"Test{number}", now)
        rest = sum(costs[number:])
        if sum(costs) * 0.1 <= sum(costs) - rest and number < 19:
            assert seconds_left(left, now) == pytest.approx(rest + end, rel=0.3)
        now += cost


@given(st.text(max_size=200))
def test_no_line_of_reframe_ends_the_run(text: str) -> None:
    for prefix in ("", "[       OK ] (1/2) ", "P: ", "==> ", "[ RUN      ] "):
        said(f"{SAID}\n{prefix}{text}")


def test_why_a_check_is_left_out_is_told_whole() -> None:
    lines: list[str] = []
    progress = Progress(lines.append)
    why = "there is no network: set FABRICHECK_OSU to an installed prefix, a module, a tarball or a directory"
    progress.line(f"[     SKIP ] (1/4) FetchOsu ~local:default+mpich /766890f7 @local:default+mpich [{why}]")
    progress.flush()
    (line,) = lines
    assert why in line and "/766890f7" not in line
