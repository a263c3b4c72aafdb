"""What a run says while it goes on: one line for each check, from ReFrame's own lines, with what it is worth."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fabricheck.session.progress import Progress, past_seconds

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
    lines = said(SAID, plan=PLAN)
    assert len(lines) == 4
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


PLAN = ("PeerCopies %mover=copy %access=write", "PingPong %transport=mpi", "Collectives")


def test_what_checks_took_the_last_time_says_how_long_the_rest_takes() -> None:
    """Builds, and tests of other tags, count for nothing."""
    past = {
        "BuildFabricbench ~toy:default+none": 600.0,
        PLAN[0]: 10.0,
        PLAN[1]: 1200.0,
        PLAN[2]: 60.0,
        "Vendor": 9000.0,
    }
    first, second, *_ = said(SAID, past=past, plan=PLAN)
    assert first.endswith("  21 min left") and second.endswith("  21 min left")


def test_without_a_past_it_is_what_tests_took_so_far_and_no_build() -> None:
    lines = said(SAID, plan=PLAN)
    assert "left" not in lines[0]
    assert lines[1].endswith("  20 s left") and lines[2].endswith("  10 s left")


@given(st.text(max_size=200))
def test_no_line_of_reframe_ends_the_run(text: str) -> None:
    for prefix in ("", "[       OK ] (1/2) ", "P: ", "==> ", "[ RUN      ] "):
        said(f"{SAID}\n{prefix}{text}")


def test_the_newest_whole_report_that_has_a_test_counts(tmp_path: Path) -> None:
    for name, content in (("toy-1", {"a": 1.0, "b": 2.0}), ("toy-2", {"a": 5.0}), ("other-9", {"a": 9.0})):
        (tmp_path / name).mkdir()
        cases = [{"name": test, "time_total": took} for test, took in content.items()]
        (tmp_path / name / "reframe.json").write_text(json.dumps({"runs": [{"testcases": cases}]}))
    (tmp_path / "toy-3").mkdir()
    (tmp_path / "toy-3" / "reframe.json").write_text("{")
    assert past_seconds(tmp_path, "toy", "reframe.json") == {"a": 5.0, "b": 2.0}
    assert past_seconds(tmp_path / "none", "toy", "reframe.json") == {}


def test_why_a_check_is_left_out_is_told_whole() -> None:
    lines: list[str] = []
    progress = Progress(lines.append)
    why = "there is no network: set FABRICHECK_OSU to an installed prefix, a module, a tarball or a directory"
    progress.line(f"[     SKIP ] (1/4) FetchOsu ~local:default+mpich /766890f7 @local:default+mpich [{why}]")
    progress.flush()
    (line,) = lines
    assert why in line and "/766890f7" not in line


def test_a_reason_that_many_checks_have_is_told_once() -> None:
    why = "this MPI library is not GPU-aware"
    text = "\n".join(f"[     SKIP ] ({place}/3) {name} /0a1b2c3d @a:b+c [{why}]" for place, name in enumerate("ABC", 1))
    lines = said(text)
    assert why in lines[0] and not any(why in line for line in lines[1:])
