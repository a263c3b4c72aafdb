"""Generated inputs for every command that reads a file: no traceback, no hang, no wrong green.

    python -m benchmarks.fuzz [--inputs 100000] [--command NAME]... [--keep FOLDER]

Valid files (tests/data, site_configs/, reference_values/, a small store) are damaged by hypothesis: bytes, lines,
numbers, names and whole parts are changed, doubled, lost, or replaced by what breaks parsers. Each is given to its
command, in this process. Found is: an exit status that is none of those documented, a mistake in Fabricheck itself (70)
or anything else that would be a traceback, more than 5 s of processor time, and a green verdict on a measurement
that is not there or too slow. Commands take turns, a batch of inputs each; a batch that is done is a line of
FOLDER/batches.jsonl, and a later call goes on from there. Prints the table of all of them, and the inputs that were
taken wrongly lie beside it; the exit status is 1 where anything was found.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from fabricheck.cli import main as fabricheck
from fabricheck.judge import known as parts
from fabricheck.judge import policy, references
from fabricheck.topology import model
from tests.support.result_files import HOST
from tests.support.sessions import add, make_suite

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"
LIMIT_S = 5.0
BATCH = 250
STATUSES = frozenset(range(6))

#: What breaks parsers, in place of a part of a file or beside it.
NASTY = (
    *(
        b"",
        b"\0",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"\x1b[2J\x1b]0;x\x07",
        "\u202e\u2028".encode(),
        b"\r",
        b"\t",
        b"%",
        b"$ref",
    ),
    *(
        b"nan",
        b"NaN",
        b"-inf",
        b"Infinity",
        b"1e999",
        b"-0",
        b"0x1F",
        b"1_000",
        b"9" * 400,
        b"1e-320",
        b"true",
        b"null",
        b"~",
    ),
    *(
        b"[" * 3000,
        b"{" * 3000,
        b'{"a":' * 2000,
        b"- " * 2000,
        b"&a [*a]",
        b"*x",
        b"<<: *x",
        b"? [a]",
        b"!!bool x",
        b"!!float ''",
    ),
    *(
        b"!!python/name:os.system",
        b"2026-01-01",
        b"2026-99-99",
        b"12:30:45",
        b"---\n",
        b"...\n",
        b"''",
        b'"',
        b"x" * 70000,
    ),
    *(
        b"a0: &a0 [1,1]\n"
        + b"".join(b"a%d: &a%d [%s]\n" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 12)),
    ),
)


class Hang(BaseException):
    """More than LIMIT_S of processor time. No Exception, so that no command takes it for a mistake of its own."""


@dataclass(frozen=True)
class Target:
    """A command, valid inputs of it, and its arguments for the damaged file and the one that it was."""

    name: str
    inputs: Sequence[Path]
    arguments: Callable[[Path, Path], Sequence[str | Path]]
    is_wrong_green: Callable[[bytes], bool] = lambda _: False


@dataclass
class Found:
    runs: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def known_references(folder: Path) -> Path:
    """References that the synthetic result of two ranks just meets."""
    file = folder / "references.yaml"
    file.write_text(
        "$sources:\n  run1: {kind: vendor, source: made up}\n$provenance: {Ping: run1}\n"
        "Ping:\n  $index: [transport]\n  mpi:\n"
        "    pingpong_uncontended_0_1_1mib_goodput: [98, -0.05, 0.05, Gb/s]\n"
        "    pingpong_uncontended_0_1_8b_latency: [0.41, -0.5, 0.1, us]\n",
        encoding="utf-8",
    )
    return file


def times_of(content: bytes) -> dict[tuple[str, int], tuple[float, int]]:
    """Median time and wrong bytes by operation and size, of what can be read of a result file."""
    found = {}
    for line in content.split(b"\n"):
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            value = json.loads(line)
            if value["record"] == "samples":
                times = statistics.median(value["times_ns"])
                found[value["operation"], value["bytes"]] = times, value["wrong_bytes"]
    return found


def wrong_green(content: bytes) -> bool:
    """Whether a result that passed lacks a measurement, is wrong, or slower than the references' tolerance allows."""
    now = times_of(content)
    for key, (time, _) in times_of(HOST.read_bytes()).items():
        if key not in now or now[key][1] != 0 or now[key][0] > 1.2 * time:
            return True
    return False


def targets(folder: Path) -> Iterator[Target]:
    """Every command that reads files; `folder` is for what they need beside them."""
    known = known_references(folder)
    results = [*DATA.glob("fabricbench/*.jsonl"), *DATA.glob("emulated/*.jsonl")]
    vendor = [
        each for each in DATA.glob("suites/*/*") if each.suffix in (".txt", ".json") and each.parent.name != "logs"
    ]
    topologies, rules = [*ROOT.glob("site_configs/*/topology*.yaml")], ROOT / "config" / "policy.yaml"
    published = [*ROOT.glob("reference_values/**/*.yaml")]
    suite, output, store = make_suite(folder / "suite"), folder / "out", folder / "store"
    add(suite, store, 0)
    add(suite, store, 1)
    stored = sorted(file for file in store.rglob("*") if file.is_file())
    sites = sorted(file for file in DATA.glob("site/*/*") if file.is_file())

    pairs = [folder / name for name in ("all.jsonl", "healthy.jsonl")]
    for file in pairs:
        text = (DATA / "emulated" / file.name).read_text(encoding="utf-8")
        file.write_text(text.replace("unidirectional", "bidirectional"), encoding="utf-8")

    def of_system(file: Path) -> list[str | Path]:
        if file.parent.name == "emulated":
            return ["--system", "emulated"]
        return ["--system", "hgx-h200", "--test", "PingPong @hgx-h200:gpu+openmpi"]

    def in_store(words: Sequence[str | Path]) -> Callable[[Path, Path], Sequence[str | Path]]:
        def arguments(damaged: Path, file: Path) -> Sequence[str | Path]:
            return [*words, "--store", _replaced(store, file, damaged, folder / "copy")]

        return arguments

    def in_site(damaged: Path, file: Path) -> Sequence[str | Path]:
        made = folder / "made"
        shutil.rmtree(made, ignore_errors=True)
        return [
            "init",
            "--from",
            _replaced(file.parent, file, damaged, folder / "copy"),
            "--system",
            "made",
            "--site",
            made,
        ]

    judged: list[str | Path] = ["judge", "--references", known, "--test", "Ping"]
    to_report: list[str | Path] = ["--output", output / "report.html"]
    to_store: list[str | Path] = ["--system", "local", "--test", "T", "--store", output / "s"]
    yield Target("judge", [HOST], lambda file, _: [*judged, file], wrong_green)
    yield Target("judge --system", results, lambda file, was: ["judge", file, *of_system(was)])
    yield Target("judge, a vendor's output", vendor, lambda file, _: ["judge", file, "--ranks", "4", "--json"])
    yield Target("judge --topology", topologies, lambda file, _: ["judge", HOST, "--topology", file])
    yield Target("judge --policy", [rules], lambda file, _: ["judge", HOST, "--policy", file])
    yield Target("judge --references", [known, *published], lambda file, _: [*judged[:1], HOST, "--references", file])
    yield Target("expected", topologies, lambda file, _: ["expected", file])
    yield Target("observations", results, lambda file, _: ["observations", file])
    yield Target("report", results, lambda file, was: ["report", file, *of_system(was), *to_report])
    yield Target("pairwise locate", pairs, lambda file, _: ["pairwise", "locate", file, "--system", "emulated"])
    yield Target("store import", results, lambda file, _: ["store", "import", file, *to_store])
    yield Target("store ls", stored, in_store(["store", "ls"]))
    yield Target("store verify", stored, in_store(["store", "verify"]))
    yield Target("watch", stored, in_store(["watch", "local"]))
    yield Target("ledger", stored, in_store(["ledger", "local"]))
    yield Target("report of a store", stored, in_store(["report", "--system", "local", *to_report]))
    yield Target("replay", stored, in_store(["replay", "--system", "local"]))
    yield Target("compare", stored, in_store(["compare", "00000000", "00000001"]))
    yield Target("init", sites, in_site)


def _replaced(folder: Path, file: Path, damaged: Path, copy: Path) -> Path:
    """`copy`, made a copy of `folder` in which `damaged` stands for `file`."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    shutil.copy(damaged, copy / file.relative_to(folder))
    return copy


@st.composite
def damaged(draw: st.DrawFn, inputs: Sequence[Path]) -> tuple[Path, bytes]:
    """A valid input, and its content after one to four changes."""
    file = draw(st.sampled_from(list(inputs)))
    content = file.read_bytes()
    for _ in range(draw(st.integers(1, 4))):
        content = _changed(draw, content)
    return file, content


def _changed(draw: st.DrawFn, content: bytes) -> bytes:
    at, length = draw(st.integers(0, len(content))), draw(st.sampled_from([0, 1, 1, 2, 8, 40, 400]))
    how = draw(
        st.sampled_from(["replace", "insert", "number", "number", "line lost", "line doubled", "cut", "byte", "moved"])
    )
    lines = content.split(b"\n")
    line = content.count(b"\n", 0, at)
    if how == "replace":
        return content[:at] + draw(st.sampled_from(NASTY)) + content[at + length :]
    if how == "insert":
        return content[:at] + draw(st.binary(max_size=12)) + content[at:]
    if how == "number":
        return _other_number(draw, content, at)
    if how == "line lost":
        return b"\n".join([*lines[:line], *lines[line + 1 :]])
    if how == "line doubled":
        return b"\n".join([*lines[: line + 1], *lines[line:]])
    if how == "moved":
        to = draw(st.integers(0, len(lines)))
        rest = [*lines[:line], *lines[line + 1 :]]
        return b"\n".join([*rest[:to], lines[line], *rest[to:]])
    return content[:at] if how == "cut" else content[:at] + draw(st.binary(min_size=1, max_size=1)) + content[at + 1 :]


def _other_number(draw: st.DrawFn, content: bytes, at: int) -> bytes:
    """The number that follows on `at` replaced by another one."""
    start = next((index for index in range(at, len(content)) if content[index : index + 1].isdigit()), len(content))
    end = next(
        (index for index in range(start, len(content)) if not content[index : index + 1].isdigit()), len(content)
    )
    number = draw(st.one_of(st.integers(-2, 70), st.integers(-(2**70), 2**70), st.floats()))
    return content[:start] + str(number).encode() + content[end:]


def status_of(arguments: Sequence[str | Path]) -> int | str:
    """The exit status of a command, or what would have been a traceback or a hang."""

    def too_long(_number: int, _frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    try:
        # What a command sets for its own children is gone with its process: no other input is to find it.
        with (
            mock.patch.dict(os.environ),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()) as said,
        ):
            fabricheck([str(each) for each in arguments])
    except SystemExit as ended:
        return said.getvalue().strip() if ended.code == 70 else int(ended.code or 0)
    except Hang:
        return f"more than {LIMIT_S:g} s"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return 0


@contextlib.contextmanager
def own_files_read_once() -> Iterator[None]:
    """What lies in the repository is valid and the same for each input: reading it is most of the time of a command."""

    def once(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
        cached = functools.cache(read)
        return lambda file: (cached if Path(file).is_relative_to(ROOT) else read)(file)

    with contextlib.ExitStack() as stack:
        readers = (
            (parts, "load_part"),
            (policy, "load_policy"),
            (references, "load_references"),
            (model, "load_topology"),
        )
        for module, name in readers:
            stack.enter_context(mock.patch.object(module, name, once(getattr(module, name))))
        yield


def fuzz(target: Target, inputs: int, start: int, keep: Path) -> Found:
    """Gives `inputs` damaged files to a command; what it did wrong is in the result, and its input below `keep`."""
    found = Found()
    with tempfile.TemporaryDirectory() as temporary:

        @seed(start)
        @settings(
            max_examples=inputs,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(damaged(target.inputs))
        def run(given_input: tuple[Path, bytes]) -> None:
            valid, content = given_input
            file = Path(temporary) / f"input{valid.suffix}"
            file.write_bytes(content)
            status = status_of(target.arguments(file, valid))
            found.runs += 1
            wrong = status if isinstance(status, str) else "" if status in STATUSES else f"exit status {status}"
            if status == 0 and target.is_wrong_green(content):
                wrong = "a wrong green"
            if isinstance(status, int):
                found.statuses[status] += 1
            if wrong:
                keep.mkdir(parents=True, exist_ok=True)
                name = f"{target.name} {start} {len(found.wrong)} {valid.name}".replace(" ", "_")
                (keep / name).write_bytes(content)
                found.wrong.append(f"{wrong} ({keep / name})")

        run()
    return found


def done_before(rows: Path) -> dict[str, list[Found]]:
    """The batches of earlier calls, by command; that with number N had the seed N."""
    found: dict[str, list[Found]] = {}
    for line in rows.read_text(encoding="utf-8").splitlines() if rows.exists() else ():
        row = json.loads(line)
        statuses = Counter({int(status): number for status, number in row["statuses"].items()})
        found.setdefault(row["command"], []).append(Found(row["runs"], statuses, row["wrong"]))
    return found


def table(found: dict[str, list[Found]]) -> Iterator[str]:
    """A row for each command."""
    yield "| command | inputs | of which ended with 0, 1, 2, 3, 4, 5 | tracebacks, hangs, wrong greens |"
    yield "|---|---|---|---|"
    for command, batches in found.items():
        statuses = [f"{sum(each.statuses[status] for each in batches):,}" for status in sorted(STATUSES)]
        runs, wrong = sum(each.runs for each in batches), sum(len(each.wrong) for each in batches)
        yield f"| {command} | {runs:,} | {', '.join(statuses)} | {wrong} |"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Generated inputs for every command that reads a file.")
    parser.add_argument("--inputs", type=int, default=100_000, help="for each command, earlier calls included")
    parser.add_argument("--command", action="append", help="only those whose names begin so; may be repeated")
    parser.add_argument("--keep", type=Path, default=Path("output") / "fuzz", help="where batches are recorded")
    chosen = parser.parse_args(words)
    chosen.keep.mkdir(parents=True, exist_ok=True)
    rows = chosen.keep / "batches.jsonl"
    found = done_before(rows)
    with tempfile.TemporaryDirectory() as temporary, own_files_read_once():
        (Path(temporary) / "out").mkdir()
        left = [
            each
            for each in targets(Path(temporary))
            if not chosen.command or each.name.startswith(tuple(chosen.command))
        ]
        while left := [each for each in left if sum(one.runs for one in found.get(each.name, ())) < chosen.inputs]:
            for target in left:
                batches = found.setdefault(target.name, [])
                batches.append(fuzz(target, BATCH, len(batches), chosen.keep))
                row = {"command": target.name, **vars(batches[-1])}
                with rows.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    for line in table(found):
        print(line)
    wrong = [each for batches in found.values() for batch in batches for each in batch.wrong]
    for each in wrong:
        print(each)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
