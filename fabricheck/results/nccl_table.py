"""The table that nccl-tests and rccl-tests make, whether it was printed or written as JSON, and what must hold in it.

It says much twice, and that is checked: the sizes follow from the options, algbw from size and time, busbw from algbw
and the number of ranks, the footer's average from all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from fabricheck.records.run import Samples
from fabricheck.records.verdict import Verdict
from fabricheck.results.vendor_text import LARGEST_RANKS, Complaints, Line, one_time, products_agree

Placement = Literal["out-of-place", "in-place"]
# A printed number and half a unit of its last digit.
Number = tuple[float, float]


@dataclass(frozen=True)
class Test:
    """`shared`: the buffer has one share a rank; bandwidths are size / time, times the factors of n ranks."""

    operation: str
    shared: bool = False
    transfers: bool = False

    def algbw_factor(self, n: int) -> float:
        """The share of a buffer that algbw counts, of `n` ranks (nccl-tests, PERFORMANCE.md)."""
        return (n - 1) / n if self.operation == "hypercube" else 1.0

    def busbw_factor(self, n: int) -> float:
        """busbw divided by algbw, of `n` ranks (nccl-tests, PERFORMANCE.md)."""
        if self.operation == "allreduce":
            return 2 * (n - 1) / n
        return (n - 1) / n if self.shared else 1.0


TESTS = {
    "all_reduce_perf": Test("allreduce"),
    "all_gather_perf": Test("allgather", shared=True),
    "alltoall_perf": Test("alltoall", shared=True),
    "alltoallv_perf": Test("alltoallv", shared=True, transfers=True),
    "broadcast_perf": Test("broadcast"),
    "gather_perf": Test("gather", shared=True, transfers=True),
    "hypercube_perf": Test("hypercube", shared=True, transfers=True),
    "reduce_perf": Test("reduce"),
    "reduce_scatter_perf": Test("reduce_scatter", shared=True),
    "scatter_perf": Test("scatter", shared=True, transfers=True),
    "sendrecv_perf": Test("sendrecv", transfers=True),
}
_REDUCING = frozenset({"allreduce", "reduce", "reduce_scatter"})
_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
# There the tool cannot check a result in place, and prints N/A.
_UNCHECKED_IN_PLACE = frozenset({"sendrecv", "alltoall", "alltoallv"})
# From here on alltoall is the library's own collective (nccl-tests, src/alltoall.cu).
OWN_ALLTOALL = 22800

_ELEMENT_BYTES = {
    **dict.fromkeys(("int8", "uint8", "char", "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "int", "float"), 4),
    **dict.fromkeys(("int64", "uint64", "double"), 8),
}


@dataclass(frozen=True)
class Config:
    """The options that an output states in its first lines; sizes in bytes."""

    minimum: int
    maximum: int
    step: int
    factor: bool
    warmup: int
    iterations: int
    validation: int
    devices_per_process: int


@dataclass(frozen=True)
class Half:
    """One placement of a row. `wrong` elements are None where the tool printed N/A; `times_us` None without `-I 1`."""

    placement: Placement
    time: Number
    algbw: Number
    busbw: Number
    wrong: int | None
    times_us: npt.NDArray[np.float64] | None = None
    skipped: int = 0


@dataclass(frozen=True)
class NcclRow:
    """A line of the table: a size in bytes, with the columns out of place and in place."""

    where: Line
    size: int
    count: int
    datatype: str
    redop: str
    root: int
    halves: tuple[Half, ...]


@dataclass
class NcclTestsTable:
    """What either form of output says, before it is checked."""

    complaints: Complaints
    tool: str | None = None
    suite: str = "nccl-tests"
    ranks: int | None = None
    config: Config | None = None
    facts: dict[str, str] = field(default_factory=dict)
    rows: list[NcclRow] = field(default_factory=list)
    average: Number | None = None
    out_of_bounds: int | None = None
    own_alltoall: bool = False

    def name_test(self) -> None:
        """Takes the one test that the table can be of, where nothing names it (before 2.16.7): by operation, roots, and
        the ratio of its bandwidths."""
        fitting = [name for name, test in TESTS.items() if self.rows and self.ranks and self.fits(test, self.ranks)]
        if self.tool is None and len(fitting) == 1:
            self.tool = fitting[0]
            self.facts["test"] = "by its numbers"

    def fits(self, test: Test, ranks: int) -> bool:
        """Whether every row can be of `test`: its reduction, its root and its busbw agree."""
        reduces, rooted = test.operation in _REDUCING, test.operation in _ROOTED
        factor = test.busbw_factor(ranks) / 1e3
        return all(
            (row.redop != "none") == reduces
            and (row.root >= 0) == rooted
            and all(products_agree(half.time, half.busbw, (row.size * factor, 0.0)) for half in row.halves)
            for row in self.rows
        )

    def check(self) -> tuple[Samples, ...]:
        """The samples of the table; what does not agree with the options and the footer becomes a problem."""
        self.name_test()
        complaints, test = self.complaints, TESTS.get(self.tool or "")
        if test is None:
            what = "does not name its test: give --tool" if self.tool is None else "is of a test that cannot be read"
            complaints.invalid(None, f"the output {what}")
            return ()
        if self.config is None or self.ranks is None:
            complaints.incomplete(None, "the output does not state its options and number of ranks")
            return ()
        if not self.rows:
            complaints.incomplete(None, "the table has no rows: the run ended before it measured anything")
            return ()
        if self.out_of_bounds is None or self.average is None:
            complaints.incomplete(None, "the footer is missing: the output was cut off, or the run did not end")
        elif self.out_of_bounds > 0:
            complaints.fail(None, f"the data were wrong: out of bounds values: {self.out_of_bounds}")
        if not 2 <= self.ranks <= LARGEST_RANKS:
            complaints.invalid(None, f"{self.ranks} ranks are impossible")
            return ()
        self.facts |= {"datatype": self.rows[0].datatype, "redop": self.rows[0].redop}
        self.facts["validation"] = "off" if self.config.validation == 0 else "passed"
        self.check_blocks(test)
        sound = [row for row in self.rows if self.is_sound(row, test, self.ranks, self.config)]
        self.check_average()
        halves = [(row, half) for row in sound if row.size > 0 for half in row.halves]
        return tuple(
            each
            for row, half in halves
            for each in complaints.sample(row.where, self.sample(row, half, test, self.ranks, self.config))
        )

    def check_blocks(self, test: Test) -> None:
        """The sizes of each root must be those that the options give, in their order."""
        blocks: list[list[NcclRow]] = []
        for row in self.rows:
            if not blocks or row.root != blocks[-1][0].root:
                blocks.append([])
            blocks[-1].append(row)
            if (row.datatype, row.redop) != (self.rows[0].datatype, self.rows[0].redop):
                self.complaints.invalid(row.where, "there are several datatypes or operations: run one at a time")
                return
        if len({block[0].root for block in blocks}) != len(blocks):
            self.complaints.invalid(None, "the rows of a root are not consecutive: rows are repeated or moved")
        for block in blocks:
            self.check_sizes(block, test)

    def check_sizes(self, block: Sequence[NcclRow], test: Test) -> None:
        """Adds a problem unless the rows have all sizes that the options ask for, in order."""
        assert self.config is not None and self.ranks is not None
        sizes = [(row.size, row.count) for row in block]
        element = _ELEMENT_BYTES.get(block[0].datatype)
        if element is None:
            self.complaints.invalid(block[0].where, "the datatype is unknown")
            return
        if test.operation == "alltoallv":
            # The sizes follow from a matrix that the output does not show.
            if [size for size, _ in sizes] != sorted({size for size, _ in sizes}):
                self.complaints.invalid(block[0].where, "the sizes are not ascending from here on")
            return
        mistake: tuple[int, str] | None = None
        asked = list(_planned(self.config, len(sizes)))
        shares = self.ranks if test.shared else 1
        for aligned in (True, False) if test.shared else (False,):  # versions before 2.10 did not align shares
            mistake = _size_mistake(sizes, [_size_and_count(size, element, shares, aligned) for size in asked])
            if mistake is None:
                return
        assert mistake is not None
        index, message = mistake
        verdict = Verdict.INVALID if index < len(sizes) else Verdict.INCOMPLETE
        self.complaints.add(verdict, block[min(index, len(block) - 1)].where, message)

    def is_sound(self, row: NcclRow, test: Test, ranks: int, config: Config) -> bool:
        """Whether the numbers of a row belong together; what does not is a problem."""
        sound = True
        if not -1 <= row.root < ranks:
            self.complaints.invalid(row.where, f"there is no root {row.root} in {ranks} ranks")
            sound = False
        for half in row.halves:
            if (
                half.wrong is None
                and config.validation
                and not (half.placement == "in-place" and test.operation in _UNCHECKED_IN_PLACE)
            ):
                self.complaints.invalid(row.where, "validation was on and the number of wrong elements is N/A")
                sound = False
            if half.wrong is not None and not config.validation:
                self.complaints.invalid(row.where, "validation was off and there is a number of wrong elements")
                sound = False
            if half.wrong:
                self.facts["validation"] = "failed"
                self.complaints.fail(row.where, f"the data were wrong in {half.wrong} elements ({half.placement})")
            kilobytes = row.size / 1e3  # us times GB/s
            algbw, busbw = test.algbw_factor(ranks), test.busbw_factor(ranks)
            mistake = None
            if half.time[0] <= 0:
                mistake = "a time of zero is impossible"
            elif not products_agree(half.time, half.algbw, (kilobytes * algbw, 0.0)):
                mistake = f"size, time and algbw do not match ({half.placement})"
            elif not products_agree(half.time, half.busbw, (kilobytes * busbw, 0.0)):
                mistake = f"busbw does not match {ranks} ranks and its time ({half.placement})"
            if mistake is not None:
                self.complaints.invalid(row.where, mistake)
                sound = False
        return sound

    def check_average(self) -> None:
        """Adds a problem if the footer's average busbw differs from the mean of the rows."""
        numbers = [half.busbw for row in self.rows for half in row.halves]
        if self.average is None or not numbers:
            return
        mean = sum(value for value, _ in numbers) / len(numbers)
        slack = sum(half for _, half in numbers) / len(numbers) + self.average[1]
        if abs(mean - self.average[0]) > slack * (1 + 1e-6):
            self.complaints.invalid(
                None, f"the footer's average busbw of {self.average[0]:g} differs from that of the rows ({mean:g})"
            )

    def sample(self, row: NcclRow, half: Half, test: Test, ranks: int, config: Config) -> Samples | None:
        """The sample of half a row (out of place or in place); None where its time or size is impossible."""
        operation = "bidirectional" if test.operation == "sendrecv" and ranks == 2 else test.operation
        transfers = test.transfers or (test.operation == "alltoall" and not self.own_alltoall)
        root = max(row.root, 0)
        mean = one_time(
            operation,
            row.size,
            (root, *(rank for rank in range(ranks) if rank != root)),
            1e3 * half.time[0],
            implementation="transfers" if transfers else "library",
            # Elements are counted; each has at least one wrong byte.
            wrong_bytes=-1 if half.wrong is None else half.wrong,
            warmup=config.warmup + half.skipped,
            placement=half.placement,
        )
        if half.times_us is None or mean is None:
            return mean
        times = np.maximum(np.rint(1e3 * half.times_us[half.skipped :]), 1).astype(np.int64)
        times.flags.writeable = False
        return replace(mean, times_ns=times, statistic="iterations")


def config_of(rows: Sequence[NcclRow]) -> Config:
    """The options as far as the rows tell them: sizes follow one step, and both ends are taken as requested."""
    sizes = [row.size for row in rows if row.root == rows[0].root]
    first, second = sizes[0], sizes[1] if len(sizes) > 1 else 2 * sizes[0]
    factor = first > 0 and second % first == 0 and (len(sizes) < 3 or sizes[2] * first == second * second)
    step = second // first if factor else second - first
    validated = any(half.wrong is not None for row in rows for half in row.halves)
    return Config(first, sizes[-1], max(step, 2 if factor else 1), factor, -1, 0, int(validated), 1)


def _planned(config: Config, limit: int) -> Iterator[int]:
    """The sizes that the options give, one more than `limit` at most."""
    size = config.minimum
    for _ in range(limit + 1):
        if size > config.maximum:
            return
        yield size
        size = size * config.step if config.factor else size + config.step


def _size_and_count(size: int, element: int, shares: int, aligned: bool) -> tuple[int, int]:
    """What is printed for an asked `size` (nccl-tests, GetCollByteCount): `shares` of whole elements, or of 16 B."""
    count = size // element // shares
    if aligned:
        count -= count % (16 // element)
    return count * element * shares, count


def _size_mistake(sizes: Sequence[tuple[int, int]], planned: Sequence[tuple[int, int]]) -> tuple[int, str] | None:
    for index, (have, want) in enumerate(zip(sizes, planned, strict=False)):
        if have != want:
            belongs = f"{want[1]} in {want[0]} B are expected: rows are missing, repeated or damaged"
            return index, f"{have[1]} elements in {have[0]} B where {belongs}"
    if len(sizes) > len(planned):
        return len(planned), "there are more rows than the options request"
    if len(sizes) < len(planned):
        return len(sizes), f"rows are missing after {sizes[-1][0]} B"
    return None
