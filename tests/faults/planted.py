"""A ReFrame check with a planted defect for each value of its parameter; tests/faults/test_one_node.py runs it.

What fabricbench can plant itself it plants (`--inject`). The rest are stand-ins: the result file of a real run is
edited before it is judged, as a broken file system, another program or version of fabricbench could have left it.
"""

import json
import re
from datetime import datetime, timedelta
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import (
    fixture,
    parameter,
    performance_function,
    run_after,
    run_before,
    sanity_function,
    variable,
)

from fabricheck.rfm import BuildFabricbench, FabricbenchCheck

INJECTED = {
    "wrong_byte": "wrong-byte",
    "hung_rank": "hang:1",
    "killed_rank": "kill:1",
    "crashed_rank": "crash:1",
    "no_footer": "no-footer",
}


def edit_lines(change):
    def edit(file):
        lines = file.read_text().splitlines()
        change(lines)
        file.write_text("".join(f"{line}\n" for line in lines))

    return edit


def edit_record(number, **fields):
    def change(lines):
        lines[number] = json.dumps({**json.loads(lines[number]), **fields})

    return edit_lines(change)


def replace(number, old, new):
    def change(lines):
        assert old in lines[number]
        lines[number] = lines[number].replace(old, new)

    return edit_lines(change)


def interleave(lines):
    """As two runs that write to one file at the same time would leave it."""
    other = [re.sub(r'"run_id":"....', '"run_id":"0000', line) for line in lines]
    lines[:] = [line for pair in zip(lines, other, strict=True) for line in pair]


def of_an_earlier_run(lines):
    lines[:] = [re.sub(r'"run_id":"....', '"run_id":"0000', line) for line in lines]
    lines[0] = re.sub(r'"started_utc":"[^"]*"', '"started_utc":"2020-01-01T00:00:00Z"', lines[0])


def an_hour_behind(lines):
    began = re.search(r'"started_utc":"([^"]*)Z"', lines[0])[1]
    behind = datetime.fromisoformat(began) - timedelta(hours=1)
    lines[0] = lines[0].replace(began, behind.isoformat(timespec="seconds"))


def with_another_mpi(lines):
    header = json.loads(lines[0])
    header["libraries"]["mpi"]["version"] = "9.9.9"
    lines[0] = json.dumps(header)


def set_times(text):
    def change(lines):
        head, _, tail = lines[2].partition('"times_ns":[')
        times, _, rest = tail.partition("]")
        lines[2] = f'{head}"times_ns":[{",".join([text] * len(times.split(",")))}]{rest}'

    return edit_lines(change)


def cut_off_with_its_job(file):
    file.with_name("exit-status").unlink()
    edit_lines(lambda lines: lines.pop())(file)


EDITED = {
    "truncated_file": lambda file: file.write_bytes(file.read_bytes()[:-700]),
    "empty_file": lambda file: file.write_text(""),
    "missing_file": lambda file: file.unlink(),
    "not_a_number": set_times("NaN"),
    "infinite": set_times("Infinity"),
    "impossible_value": set_times("1"),
    "zero_time": set_times("0"),
    "renamed_operation": replace(1, '"pingpong"', '"pongping"'),
    "duplicated_line": edit_lines(lambda lines: lines.insert(2, lines[1])),
    "interleaved_lines": edit_lines(interleave),
    "reordered_lines": edit_lines(lambda lines: lines.insert(1, lines.pop(2))),
    "stale_file": edit_lines(of_an_earlier_run),
    "clock_behind": edit_lines(an_hour_behind),
    "another_mpi": edit_lines(with_another_mpi),
    "another_transport": edit_record(0, transport="copy"),
    "bad_exit_status": lambda file: file.with_name("exit-status").write_text("1\n"),
    "no_exit_status": cut_off_with_its_job,
    "ended_afterwards": lambda file: file.with_name("exit-status").unlink(),
    "launcher_killed": lambda file: file.with_name("exit-status").write_text("137\n"),
}
OTHERS = ["fewer_ranks", "wrong_module", "tuning_not_in_effect", "reference_missed", "reference_in_another_unit"]


class Small(rfm.RunOnlyRegressionTest, FabricbenchCheck):
    transport = variable(str, value="mpi")
    operations = ["pingpong"]
    sizes = {"other": "8B,64KiB"}
    budget = 0.02
    least_iterations = 10
    ranks = 2


@rfm.simple_test
class Healthy(Small):
    tags = {"healthy"}


@rfm.simple_test
class HealthyFour(Small):
    operations = [
        "pingpong",
        "bidirectional",
        "alltoall",
        "allreduce",
        "allgather",
        "reduce_scatter",
        "broadcast",
        "reduce",
    ]
    ranks = 4
    tags = {"healthy"}

    @run_after("init")
    def choose_environment(self):
        self.valid_prog_environs = ["openmpi"]


@rfm.simple_test
class Planted(Small):
    defect = parameter([*INJECTED, *EDITED, *OTHERS])
    timeout = 3.0
    tags = {"planted"}

    @run_after("init")
    def choose_environment(self):
        self.valid_prog_environs = ["openmpi"]

    @run_before("run")
    def inject(self):
        if self.defect in INJECTED:
            self.executable_opts.append(f"--inject={INJECTED[self.defect]}")
        if self.defect == "fewer_ranks":
            self.num_tasks = 1
        if self.defect == "wrong_module":
            # Another library's launcher says how many it started, and each is alone.
            self.num_tasks = 1
            self.executable = f"env -u OMPI_COMM_WORLD_SIZE PMI_SIZE=2 {self.executable}"
        if self.defect == "tuning_not_in_effect":
            self.tuning = {"NCCL_IGNORE_CPU_AFFINITY": "1"}

    @run_before("sanity")
    def edit(self):
        if self.defect in EDITED:
            EDITED[self.defect](Path(self.stagedir) / "result.jsonl")


@rfm.simple_test
class PlainReframe(rfm.RunOnlyRegressionTest):
    """What a careful person writes without this suite: the table's last row has to be there; its goodput is read."""

    defect = parameter(["program_fails", "fewer_ranks", *INJECTED])
    fabricbench = fixture(BuildFabricbench, scope="environment")
    valid_systems = ["*"]
    valid_prog_environs = ["openmpi"]
    sourcesdir = None
    num_tasks = 2
    time_limit = "20s"
    tags = {"plain"}

    @run_before("run")
    def command(self):
        self.executable = self.fabricbench.program
        self.executable_opts = [
            "--operations=pingpong",
            "--sizes=8B,64KiB",
            "--budget=0.02",
            "--timeout=3",
            "--output=r",
        ]
        if self.defect in INJECTED:
            self.executable_opts.append(f"--inject={INJECTED[self.defect]}")
        if self.defect == "program_fails":
            self.postrun_cmds = ["exit 1"]
        if self.defect == "fewer_ranks":
            # As a launcher of another MPI library does: two processes that do not know of each other.
            self.executable_opts.append("--expect-ranks=2")
            self.num_tasks = 1

    @sanity_function
    def is_fine(self):
        return sn.assert_found(r"64 KiB", self.stdout)

    @performance_function("Gb/s")
    def goodput(self):
        return sn.extractsingle(r"1->0 +64 KiB +\d+ +\S+ +(\S+)", self.stdout, 1, float)
